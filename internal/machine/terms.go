package machine

import "github.com/belaydev/belay"

// atGates checks a submission that names a limit or a rate. The first submission that names a limit
// or a rate sets its terms (the limit's max, the rate's max and per), which stay in the row of the
// gate. Later submissions must name the same terms, so that a caller who may only submit can
// neither raise nor lower a limit on which other callers rely. An operator may change the terms;
// then the terms in a submission do not matter any more.
func (c *Submit) atGates(w *world, parent *Execution) error {
	if err := c.besideAncestors(w, parent); err != nil {
		return err
	}
	if c.Joined { // a joined submission must not lock gates; the terms in force when a worker claims it apply to it
		return nil
	}
	rate, pace, err := c.rateTerms(w)
	if err != nil {
		return err
	}
	limit, most, err := c.limitTerms(w)
	if err != nil {
		return err
	}
	if limit != nil {
		if err := c.atLimit(w, limit, most); err != nil {
			return err
		}
		if limit.Limit == nil || *limit.Limit != most {
			limit.Limit, limit.dirty = &most, true
		}
	}
	if rate != nil && (rate.Rate == nil || rate.Rate.Named == nil) {
		rate.Rate, rate.dirty = &pace, true
	}
	return nil
}

// besideAncestors refuses a child that names a limit which one of its ancestors names, or that
// requires a resource whose mode one of its ancestors changes.
func (c *Submit) besideAncestors(w *world, parent *Execution) error {
	for p := parent; p != nil && c.Requires != nil; p = w.execs[p.Parent] {
		if p.isSwap() && p.Gates.Swap == c.Requires.Resource && !p.State.Terminal() {
			return refuse(belay.CodeConflict, "submit",
				"the ancestor %s changes the mode of the resource %q, for which this child would wait", p.ID,
				p.Gates.Swap)
		}
	}
	l := c.Concurrency
	if l == nil {
		return nil
	}
	for p := parent; p != nil; p = w.execs[p.Parent] {
		if p.Gates != nil && p.Gates.Concurrency != nil && p.Gates.Concurrency.Name == l.Name && !p.State.Terminal() {
			return refuse(belay.CodeConflict, "submit",
				"the ancestor %s names the limit %q too: it and this child would wait for each other", p.ID,
				l.Name)
		}
	}
	return nil
}

// named returns a gate that the submission names.
func (w *world) named(id belay.GateID) (*gate, error) {
	g := w.gate(id)
	if g == nil {
		return nil, refuse(belay.CodeInternal, "submit", "the gate %s was not read", id)
	}
	return g, g.err
}

// limitTerms returns the limit that the submission names and the limit's terms with this submission.
// It returns nil if the submission names no limit.
func (c *Submit) limitTerms(w *world) (*gate, Limit, error) {
	l := c.Concurrency
	if l == nil {
		return nil, Limit{}, nil
	}
	g, err := w.named(belay.Gate(belay.GateLimit, l.Name))
	if err != nil {
		return nil, Limit{}, err
	}
	terms := Limit{Named: l.Max}
	if g.Limit != nil {
		if terms = *g.Limit; terms.Named == 0 {
			terms.Named = l.Max
		}
	}
	if terms.Set == 0 && terms.Named != l.Max {
		return nil, terms, refuse(belay.CodeConflict, "submit",
			"the limit %q allows %d, not %d; an operator can change it: belay limits set %s %d", l.Name, terms.Named,
			l.Max, GateWord(g.id), l.Max)
	}
	return g, terms, nil
}

// rateTerms returns the rate that the submission names and the rate's terms with this submission. It
// returns nil if the submission names no rate.
func (c *Submit) rateTerms(w *world) (*gate, Rate, error) {
	if c.Rate == nil {
		return nil, Rate{}, nil
	}
	g, err := w.named(belay.Gate(belay.GateRate, c.Rate.Name))
	if err != nil {
		return nil, Rate{}, err
	}
	named, terms := Pace{c.Rate.Max, c.Rate.Per}, Rate{}
	if g.Rate != nil {
		terms = *g.Rate
	}
	if terms.Named == nil {
		terms.Named = &named
	}
	if now := *terms.Named; terms.Set == nil && now != named {
		return nil, terms, refuse(belay.CodeConflict, "submit",
			"the rate %q allows %d in %s, not %d in %s; an operator can change it: belay rates set %s %d/%s",
			c.Rate.Name, now.Max, now.Per.D(), named.Max, named.Per.D(), GateWord(g.id), named.Max, named.Per.D())
	}
	return g, terms, nil
}

// atLimit refuses the submission or replaces older executions if the limit, with the given terms, is
// full.
func (c *Submit) atLimit(w *world, g *gate, terms Limit) error {
	if c.room > 0 && g.members >= c.room {
		return refuse(belay.CodeQueueFull, "submit", "%d executions of the schedule have not ended", g.members)
	}
	over := g.members + 1 - terms.max()
	if over <= 0 {
		return nil
	}
	switch l := c.Concurrency; l.WhenFull {
	case belay.RejectWhenFull:
		return refuse(belay.CodeConflict, "submit", "the limit %q is full: %d executions under it have not ended",
			l.Name, g.members)
	case belay.ReplaceWhenFull:
		return w.replace(g, over, c.ID)
	case "", belay.WaitWhenFull:
	}
	return nil
}
