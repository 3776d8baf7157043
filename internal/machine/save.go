package machine

import "github.com/belaydev/belay"

// Save writes a checkpoint on behalf of the run's owner.
type Save struct {
	belay.Save
	judged *judged // the result of Judge; nil before Judge is called
}

// Judge checks that the checkpoint's data is a valid payload, and computes the checksum (OpSum) of
// the operation. The checksum shows later whether a repeated operation has the same content.
func (c *Save) Judge() {
	if c.judged != nil {
		return
	}
	c.judged = &judged{err: CheckPayload("save", "checkpoint "+c.Key, c.Data, belay.MaxPayload)}
	if c.judged.err == nil && !c.Op.IsZero() {
		content := contentOf("save").text(c.Kind.String()).text(c.Key).int(c.Consumes).cost(c.CostTokens)
		for _, seq := range c.AlsoConsumes {
			content = content.int(seq)
		}
		c.judged.sum = content.usage(c.Usage).json(c.Data).sum()
	}
}

// Need asks the store for the execution, the session, the operation if it may be a repetition, and
// the consumed signals.
func (c *Save) Need(n *Need) {
	needLease(n, c.Lease)
	if ref := (OpRef{c.Lease.Execution, c.Op}); c.Repeat {
		n.Ops = append(n.Ops, ref)
	} else if !c.Op.IsZero() {
		n.first = append(n.first, ref)
	}
	if c.Usage != (belay.ModelUsage{}) {
		n.Using, n.Specs = append(n.Using, c.Lease.Execution), append(n.Specs, c.Lease.Execution)
	}
	for _, seq := range c.consumed() {
		n.Signals = append(n.Signals, SignalRef{c.Lease.Execution, seq})
	}
}

// consumed returns the seqs of all signals that the checkpoint consumes. A list that is too long is left out, because
// apply refuses it.
func (c *Save) consumed() []int64 {
	if len(c.AlsoConsumes) > belay.MaxConsumes {
		return nil
	}
	if c.Consumes == 0 {
		return c.AlsoConsumes
	}
	return append([]int64{c.Consumes}, c.AlsoConsumes...)
}

func (c *Save) apply(w *world) (Reply, error) {
	const op = "save"
	c.Judge()
	if c.Repeat || w.overtaken(c.Lease) {
		if seq, ok, err := w.repetition(op, c.Lease.Execution, c.Op, c.judged.sum); ok {
			return Reply{Seq: seq, Replayed: err == nil}, err
		}
	}
	e, err := w.owner(op, c.Lease)
	if err != nil {
		return Reply{}, err
	}
	if c.Kind < belay.KindStep || c.Kind > belay.KindWait {
		return Reply{}, refuse(belay.CodeInvalid, op, "the checkpoint is of no kind that exists: %s", c.Kind)
	}
	if err := checkName(op, "the checkpoint's key", c.Key, true); err != nil {
		return Reply{}, err
	}
	if c.judged.err != nil {
		return Reply{}, c.judged.err
	}
	if c.CostTokens < 0 {
		return Reply{}, refuse(belay.CodeInvalid, op, "the cost is negative")
	}
	if err := c.Usage.Check(); err != nil {
		return Reply{}, refuse(belay.CodeInvalid, op, "the usage is too large")
	}
	taken, err := c.consume(w, e)
	if err != nil {
		return Reply{}, err
	}
	if err := w.use(e, c.Usage); err != nil {
		return Reply{}, err
	}
	w.advance(e)
	if c.Repeat {
		e.Repeated = e.Token
	}
	for _, s := range taken {
		s.ConsumedBy = e.Seq
		if s.Child.IsZero() { // max, because older servers did not count the signals that they kept
			e.Signals, e.SignalBytes = max(0, e.Signals-1), max(0, e.SignalBytes-int64(len(s.Payload)))
		}
		w.out.Consumed = append(w.out.Consumed, s)
	}
	if c.Kind == belay.KindState {
		if e.StateSeq != 0 {
			w.out.Pruned = append(w.out.Pruned, SignalRef{e.ID, e.StateSeq})
		}
		e.StateSeq = e.Seq
	}
	e.Checkpoints++
	e.setLosses(0)
	e.ProgressAt = w.Now
	w.out.Checkpoints = append(w.out.Checkpoints, &Checkpoint{
		Execution: e.ID, Seq: e.Seq, Kind: c.Kind, Key: c.Key, Token: e.Token, Op: c.Op, OpSum: c.judged.sum, At: w.Now,
		Data: c.Data, Cost: c.CostTokens, Took: took(c.Took), Attempt: attempt(c.Attempt),
		Steps: w.stepsText(e, c.Steps),
	})
	seq := e.Seq // charge raises the seq again if it pauses the execution because the budget is spent
	w.charge(e, c.CostTokens)
	return Reply{Seq: seq}, nil
}

// overtaken reports whether a repetition has written a checkpoint of the present run. Then a write
// that is not marked as a repetition may be the delayed first try of that checkpoint: the owner
// repeated the write on another connection or server, and has written newer checkpoints since. If
// the first try were carried out too, it would restore an older state.
func (w *world) overtaken(l belay.Lease) bool {
	e := w.execs[l.Execution]
	return e != nil && e.Repeated != 0 && e.Repeated == l.Token && e.Token == l.Token
}

// consume finds the signals that the checkpoint consumes. A signal can be consumed once.
func (c *Save) consume(w *world, e *Execution) ([]*Signal, error) {
	if len(c.AlsoConsumes) > belay.MaxConsumes {
		return nil, refuse(belay.CodePayloadTooLarge, "save", "the checkpoint consumes %d further signals; the limit "+
			"is %d",
			len(c.AlsoConsumes), belay.MaxConsumes)
	}
	seqs := c.consumed()
	if len(seqs) == 0 {
		return nil, nil
	}
	taken := make([]*Signal, 0, len(seqs))
	seen := make(map[int64]bool, len(seqs))
	for _, seq := range seqs {
		s := w.signal(e.ID, seq)
		if s == nil || s.Seq <= e.BaseSeq { // older signals belong to an earlier input
			return nil, refuse(belay.CodeNotFound, "save", "execution %s has no signal %d", e.ID, seq)
		}
		if s.ConsumedBy != 0 {
			return nil, refuse(belay.CodeConflict, "save", "signal %d of %s was consumed by checkpoint %d", s.Seq, e.ID,
				s.ConsumedBy)
		}
		if seen[seq] {
			return nil, refuse(belay.CodeInvalid, "save", "the checkpoint consumes signal %d twice", seq)
		}
		seen[seq] = true
		taken = append(taken, s)
	}
	return taken, nil
}

func (w *world) signal(id belay.ExecutionID, seq int64) *Signal {
	for _, s := range w.Signals {
		if s.Execution == id && s.Seq == seq {
			return s
		}
	}
	for _, s := range w.out.Signals {
		if s.Execution == id && s.Seq == seq {
			return s
		}
	}
	return nil
}

// Progress notes that a run with an idle timeout was active. Progress is no transition and raises
// no seq.
type Progress struct {
	Execution belay.ExecutionID
	Token     belay.Token
	At        Time
}

// Need asks the store for the execution.
func (c *Progress) Need(n *Need) { n.Executions = append(n.Executions, c.Execution) }

func (c *Progress) apply(w *world) (Reply, error) {
	e, err := w.execution("progress", c.Execution)
	if err != nil {
		return Reply{}, err
	}
	if e.State == belay.Running && e.Token == c.Token && c.At > e.ProgressAt && c.At <= w.Now {
		e.ProgressAt = c.At
		w.changed(e)
	}
	return Reply{}, nil
}
