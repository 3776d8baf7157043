package webui

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const (
	gatesSize = 50 // gates on one page
	counted   = 25 // gates whose places and lines the page counts
)

// gateList lists gates. A gate decides whether an execution that is due may start a run.
type gateList struct {
	Rows  []gateRow
	Pager pager
}

// gateRow is one gate.
type gateRow struct {
	Kind, Name, Address string
	State               state
	Why                 string
	Parts               []string // its limit, rate, circuit breaker and resource
	Line                string   // how many executions wait at it
}

// gatePage is the page of one gate.
type gatePage struct {
	Row           gateRow
	Terms         []term
	Holders, Line []exLink
	MoreHolders   int
	MoreLine      string
	Swap          *exLink // the execution that changes the mode of the resource
	Queued        bool    // the executions that it stops wait in their queues, and have no line here
	Offers        []offer
}

func (p *pages) gates(ctx context.Context, q url.Values, now time.Time) (gateList, error) {
	var list gateList
	found, err := p.backend.Gates(ctx, belay.GateFilter{Cursor: q.Get("cursor"), Limit: gatesSize})
	if err != nil {
		return list, err
	}
	list.Pager = pagerOf("/queues", chosen(q, "cursor", "live"), found.Next)
	read := 0
	for i := range found.Gates[:min(len(found.Gates), gatesSize)] {
		g := &found.Gates[i]
		row := gateRowOf(g, now)
		if (!g.Open || g.Limit != nil) && read < counted {
			read++
			full, err := p.backend.Gate(ctx, g.ID)
			if err != nil {
				return list, err
			}
			row = gateRowOf(&full.GateInfo, now)
		}
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

func gateRowOf(g *belay.GateInfo, now time.Time) gateRow {
	row := gateRow{
		Kind: excerpt(g.Kind, 20), Name: excerpt(g.Name, maxLine), State: gateStateOf(g), Why: whyShut(g, now),
		Address: addressOf("/queues", url.Values{}, "gate", string(g.ID)),
	}
	add := func(text string) { row.Parts = append(row.Parts, line(text)) }
	if l := g.Limit; l != nil {
		text := fmt.Sprintf("limit: %d of %d places taken", g.Held, l.Max)
		if l.Set > 0 {
			text = byOperator(text+", set", l.By, l.Reason)
		}
		add(text)
	}
	if r := g.Rate; r != nil {
		text := fmt.Sprintf("rate: %s per %s, %d may start now", several(r.Max, "run"), short(r.Per.D()), r.Tokens)
		if r.Set {
			text = byOperator(text+", set", r.By, r.Reason)
		}
		add(text)
	}
	if b := g.Breaker; b != nil {
		text := "circuit breaker: " + strings.ReplaceAll(b.State, "_", " ")
		if b.Forced {
			text = byOperator(text+", forced", b.By, b.Reason)
		} else if b.FailureCount > 0 {
			text += ", " + several(b.FailureCount, "failure")
		}
		add(text)
	}
	if r := g.Resource; r != nil {
		add(resourceText(r, now))
	}
	switch {
	case g.Waiting > 100:
		row.Line = "more than 100 wait"
	case g.Waiting > 0:
		row.Line = fmt.Sprintf("%d wait", g.Waiting)
	}
	return row
}

// resourceText describes the mode of a resource and the change of the mode that is under way.
func resourceText(r *belay.GateResourceInfo, now time.Time) string {
	text := "resource: " + string(r.State)
	if r.Mode != "" {
		text += " in the mode " + excerpt(r.Mode, 60)
	}
	if s := r.Swapping; s != nil {
		text += fmt.Sprintf(", changing to %s for %s", excerpt(s.To, 60), short(now.Sub(s.Since)))
	} else if r.Wanted != "" {
		text += ", then " + excerpt(r.Wanted, 60)
	}
	if r.Failures > 0 {
		text += fmt.Sprintf(", %s: %s", several(r.Failures, "failed change"), r.Error)
	}
	if r.Set && r.MaxWait > 0 {
		text += "; other modes wait for at most " + short(r.MaxWait.D())
	}
	return text
}

func gateStateOf(g *belay.GateInfo) state {
	switch {
	case g.Pause != nil && !g.Open:
		return state{"paused", "paused"}
	case g.Resource != nil && g.Resource.State == belay.ResourceFailed:
		return state{"failed", "bad"}
	case g.Open:
		return state{"open", "good"}
	case g.Breaker != nil && g.Breaker.State == "half_open":
		return state{"breaker half open", "hold"}
	case g.Breaker != nil && g.Breaker.State != "closed":
		return state{"breaker open", "bad"}
	}
	return state{"shut", "hold"}
}

// whyShut says why a gate lets no execution through, which operator caused this, and until when.
func whyShut(g *belay.GateInfo, now time.Time) string {
	text := g.Why
	if p := g.Pause; p != nil {
		text = byOperator("paused for "+short(now.Sub(p.Since)), p.By, p.Reason)
	}
	switch {
	case g.Until.IsZero():
	case g.Pause == nil && g.Breaker != nil: // "opens" would say that the breaker stops more calls
		text += "; lets a call try " + when(g.Until, now).Ago
	default:
		text += "; opens " + when(g.Until, now).Ago
	}
	return line(text)
}

// gate makes the page of one gate, with the executions that have its places and those that wait.
func (p *pages) gate(ctx context.Context, id belay.GateID) (view, error) {
	g, err := p.backend.Gate(ctx, id)
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	d := gatePage{Row: gateRowOf(&g.GateInfo, now), Terms: gateTerms(&g.GateInfo, now),
		MoreHolders: max(0, g.Held-len(g.Holders))}
	names, err := p.named(ctx, append(append([]belay.ExecutionID(nil), g.Holders...), g.Line...))
	if err != nil {
		return view{}, err
	}
	for _, e := range g.Holders {
		d.Holders = append(d.Holders, linkTo(e, names[e]))
	}
	for _, e := range g.Line {
		d.Line = append(d.Line, linkTo(e, names[e]))
	}
	d.Queued = g.ID.Kind() == "queue" || g.ID.Kind() == "workflow"
	if g.Waiting > len(g.Line) {
		d.MoreLine = "These are the first of them."
	}
	if r := g.Resource; r != nil && r.Swapping != nil {
		d.Swap = maybeLink(r.Swapping.Execution)
	}
	d.Offers = deedsOn(ctx, ofGate, string(g.ID), gateDeeds(&g.GateInfo)...)
	return view{template: "gate", Title: excerpt(string(g.ID), 60), Page: d}, nil
}

// named returns names for links to executions: the workflow and the end of the id.
func (p *pages) named(ctx context.Context, ids []belay.ExecutionID) (map[belay.ExecutionID]string, error) {
	names := make(map[belay.ExecutionID]string, len(ids))
	for _, id := range ids {
		names[id] = shortID(id)
	}
	if len(ids) == 0 {
		return names, nil
	}
	found, err := p.backend.Executions(ctx, belay.Filter{IDs: ids, Limit: len(ids)})
	for i := range found.Executions {
		e := &found.Executions[i]
		names[e.ID] = excerpt(nameOf(e), 40) + " " + shortID(e.ID)
	}
	return names, err
}

// gateTerms are the times and counts of a gate that the list leaves out.
func gateTerms(g *belay.GateInfo, now time.Time) []term {
	var all []term
	at := func(name string, t time.Time) {
		if m := when(t, now); m != nil {
			all = append(all, term{Name: name, Time: m})
		}
	}
	if b := g.Breaker; b != nil {
		at("Opened", b.OpenedAt)
		at("Last failure", b.LastFailedAt)
		at("Next probe", b.NextRetryAt)
		if b.Probes > 0 {
			all = append(all, term{Name: "Probes under way", Value: fmt.Sprint(b.Probes)})
		}
	}
	if r := g.Resource; r != nil {
		at("In its mode since", r.Since)
		at("Next change at the earliest", r.RetryAt)
		for _, m := range r.Waiting[:min(len(r.Waiting), 20)] {
			text := "waits for " + short(now.Sub(m.Since))
			if m.Executions > 0 {
				text += ", " + several(m.Executions, "execution")
			}
			all = append(all, term{Name: "Mode " + excerpt(m.Mode, maxLine), Value: text})
		}
	}
	at("Changed", g.UpdatedAt)
	if g.UpdatedBy != "" {
		all = append(all, term{Name: "Changed by", Value: line(g.UpdatedBy)})
	}
	return all
}
