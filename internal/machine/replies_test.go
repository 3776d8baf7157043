package machine

import (
	"errors"
	"reflect"
	"slices"

	"github.com/belaydev/belay"
)

// replyLog records the replies to clients, with checkers that compare them with the rows: an
// acknowledged write is in the rows, a repetition gets its first answer, an idempotency key leads
// to one execution, an accepted write carries the latest token.
type replyLog struct {
	ops     map[belay.OpID]int64
	keys    map[string]belay.ExecutionID
	drained map[belay.WorkerID]bool
	secrets map[belay.ExecutionID]belay.Secret // the secret of the last lock
}

func newReplyLog() replyLog {
	return replyLog{make(map[belay.OpID]int64), make(map[string]belay.ExecutionID), make(map[belay.WorkerID]bool),
		make(map[belay.ExecutionID]belay.Secret)}
}

// step checks one batch: the rows before and after it, and the replies.
func (t *replyLog) step(before, after *keeper, commands []Command, replies []Reply) error {
	var f faults
	for id, r := range before.records {
		stepExecution(&f, before, after, r, after.records[id])
	}
	for id, x := range before.workers {
		stepSession(&f, before, after, x, after.workers[id], commands)
	}
	checkLimits(&f, before, after)
	latest := make(map[belay.ExecutionID]belay.Token)
	for id, r := range before.records {
		latest[id] = r.execution.Token
	}
	for i, c := range commands {
		if belay.CodeOf(replies[i].Err) == belay.CodeInternal && replies[i].Err != nil {
			f.add("answers", "%T: %v", c, replies[i].Err)
		}
		if replies[i].Err == nil {
			t.answer(&f, before, after, latest, commands, c, replies[i])
		}
	}
	return errors.Join(f...)
}

// content checks which execution answers a submission by content. If the batch did not change the
// execution to which the content led before, the state of this execution decides whether it had to
// be the answer.
func (t *replyLog) content(f *faults, before, after *keeper, c *Submit, r Reply) {
	row, ok := before.keys[c.key()]
	if !ok || c.Idempotency == "" {
		return
	}
	was, is := before.records[row.Execution].execution, after.records[row.Execution].execution
	if was == nil || is == nil || was.Seq != is.Seq {
		return
	}
	if answers := KeyHolderOf(was).answers(); answers != (r.ID == row.Execution) {
		f.add("G9", "the content of %s, which is %s, is answered with %s", row.Execution, was.State, r.ID)
	}
}

// answer checks one command that was accepted.
func (t *replyLog) answer(f *faults, before, after *keeper, latest map[belay.ExecutionID]belay.Token,
	commands []Command, c Command, r Reply) {
	switch c := c.(type) {
	case *Submit:
		if first, ok := t.keys[c.IdempotencyKey]; ok && c.IdempotencyKey != "" && first != r.ID {
			f.add("G9", "key %q leads to %s and to %s", c.IdempotencyKey, first, r.ID)
		}
		if c.IdempotencyKey != "" {
			t.keys[c.IdempotencyKey] = r.ID
		}
		if r.ID != c.ID || !r.Replayed { // not the repetition of a submission under its own id
			t.content(f, before, after, c, r)
		}
		if after.records[r.ID].execution == nil {
			f.add("G3", "%s was accepted and does not exist", r.ID)
		}
		if c.Parent != nil && !r.Replayed {
			effect(f, before, latest, *c.Parent, c)
		}
	case *Claim:
		for _, won := range r.Claims {
			id, token := won.Execution.ID, won.Execution.Token
			if c.Repeat && token == latest[id] {
				continue
			}
			if token <= latest[id] {
				f.add("G1", "claim %d won %s with token %d after %d", c.Number, id, token, latest[id])
			}
			if t.drained[c.Worker] {
				f.add("G11", "%s won %s after it was drained", c.Worker, id)
			}
			latest[id] = token
		}
	case *Lock:
		won := r.Claims[0].Execution
		if !r.Replayed && won.Token <= latest[won.ID] || r.Replayed && won.Token != latest[won.ID] {
			f.add("G1", "the lock of %s has token %d after %d (repeated %v)", won.ID, won.Token, latest[won.ID],
				r.Replayed)
		}
		latest[won.ID] = won.Token
		t.secrets[won.ID] = won.Secret
	case *Renew:
		l := c.Lease
		if l.Token == 0 {
			l.Token = latest[l.Execution]
		}
		effect(f, before, latest, l, c)
		if secret, locked := t.secrets[l.Execution]; locked && secret != l.Secret && before.outside(l.Worker) {
			f.add("G2", "a renewal of %s was accepted without the secret of its lease", l.Execution)
		}
	case *Schedule:
		latest[c.Execution] = r.Execution.Token
	case *Save:
		signals := after.records[c.Lease.Execution].signals
		if c.Consumes != 0 && !r.Replayed && !slices.ContainsFunc(signals, func(s *Signal) bool {
			return s.ConsumedBy == r.Seq
		}) {
			f.add("signals", "checkpoint %d of %s consumed a signal that does not name it", r.Seq, c.Lease.Execution)
		}
		t.operation(f, after.records[c.Lease.Execution].op(OpRef{c.Lease.Execution, c.Op}).Seq, c.Op, r)
		if !r.Replayed {
			effect(f, before, latest, c.Lease, c)
		}
	case *Settle:
		var seq int64
		for _, run := range after.records[c.Lease.Execution].runs {
			if run.Op == c.Op {
				seq = run.EndedSeq
			}
		}
		t.operation(f, seq, c.Op, r)
		if !r.Replayed {
			effect(f, before, latest, c.Lease, c)
			if x := after.workers[c.Lease.Worker]; x.Spec.External && !x.State.Ended() {
				f.add("G4", "the run of the external owner %s has ended, and its session has not", x.ID)
			}
		}
	case *Append:
		dropped := slices.ContainsFunc(commands, func(d Command) bool {
			a, ok := d.(*Append)
			return ok && a.drop().covers(c.ref())
		})
		if !dropped && !slices.ContainsFunc(after.records[c.Lease.Execution].chunks, func(k *Chunk) bool {
			return k.ChunkRef == c.ref()
		}) {
			f.add("G3", "chunk %v was acknowledged and does not exist", c.ref())
		}
		if !r.Replayed {
			effect(f, before, latest, c.Lease, c)
		}
	case *Drain:
		t.drained[c.Worker] = true
	case *Deliver:
		t.operation(f, after.records[c.Execution].op(OpRef{c.Execution, c.Op}).Seq, c.Op, r)
	case *Act:
		// If the action had no effect, no row has its operation.
		if seq := after.records[c.Execution].op(OpRef{c.Execution, c.Op}).Seq; seq != 0 || t.ops[c.Op] != 0 {
			t.operation(f, seq, c.Op, r)
		}
		about := slices.DeleteFunc(slices.Clone(commands), func(other Command) bool {
			return !slices.Contains(NeedOf([]Command{other}).Executions, c.Execution)
		})
		if c.From != "" && !r.Replayed && len(about) == 1 {
			discarded(f, before.records[c.Execution], after.records[c.Execution], c.From)
		}
	}
}

// discarded checks that a retry from a step has discarded the step and all work after it, and nothing
// else.
func discarded(f *faults, before, after record, step string) {
	is := Resume(after.history(), 0).Checkpoints
	first := int64(0)
	for _, k := range before.checkpoints {
		if k.Key == step && k.Kind != belay.KindState && k.Seq > before.execution.BaseSeq && !k.Pruned {
			first = k.Seq
			break
		}
	}
	for _, k := range newest(before.checkpoints, before.execution, first-1) {
		if i := slices.IndexFunc(is, func(x belay.Checkpoint) bool { return x.Seq == k.Seq }); i < 0 {
			f.add("discard", "checkpoint %d of %s was saved before %q and is discarded", k.Seq, k.Execution, step)
		} else {
			is = slices.Delete(is, i, i+1)
		}
	}
	for _, k := range is {
		f.add("discard", "checkpoint %d of %s was not saved before %q and is not discarded", k.Seq,
			before.execution.ID, step)
	}
	for _, s := range Unconsumed(after.history(), 0) {
		i := slices.IndexFunc(before.signals, func(x *Signal) bool { return x.Seq == s.Seq })
		if i >= 0 && s.Seq > first && (before.signals[i].ConsumedBy != 0 || !s.Child.IsZero()) {
			f.add("discard", "signal %d of %s came after %q and is not discarded", s.Seq, before.execution.ID, step)
		}
	}
}

// operation checks guarantees G2 and G3: an acknowledged operation is in the rows, and each
// repetition gets the same answer.
func (t *replyLog) operation(f *faults, written int64, op belay.OpID, r Reply) {
	if op.IsZero() { // a follow-up command, which has no operation id
		return
	}
	if written == 0 || written != r.Seq {
		f.add("G3", "operation %s was acknowledged as seq %d and written as %d", op, r.Seq, written)
	}
	if first, ok := t.ops[op]; ok && (first != r.Seq || !r.Replayed) {
		f.add("G2", "operation %s was answered %d, and then %d (repeated %v)", op, first, r.Seq, r.Replayed)
	}
	t.ops[op] = r.Seq
}

// effect checks guarantees G1 and G2 for an accepted write of an owner: its token is the latest,
// its session is alive, and the grace period of a cancel is not over.
func effect(f *faults, before *keeper, latest map[belay.ExecutionID]belay.Token, l belay.Lease, c Command) {
	if l.Token != latest[l.Execution] {
		f.add("G1", "%T with token %d was accepted after token %d", c, l.Token, latest[l.Execution])
	}
	x := before.workers[l.Worker]
	_, locked := c.(*Renew) // the session may belong to a lock that was made in this batch
	locked = locked || x == nil && before.records[l.Execution].execution.Token < l.Token
	if x == nil && !locked || x != nil && (x.State.Ended() || before.expires(x) <= before.now) {
		f.add("G2", "%T was accepted from a session that is over", c)
	}
	if e := before.records[l.Execution].execution; e != nil && e.CancelBy != 0 && e.CancelBy <= before.now {
		f.add("G2", "%T was accepted after the cancel's grace", c)
	}
}

// outside reports whether the session belongs to an external owner.
func (k *keeper) outside(id belay.WorkerID) bool {
	return k.workers[id] != nil && k.workers[id].Spec.External
}

// expires is when a session expires, including an extension that is due.
func (k *keeper) expires(x *Worker) Time {
	gap := k.now.Sub(k.mark)
	if k.mark == 0 || gap <= 3*k.beat {
		return x.ExpiresAt
	}
	return max(x.ExpiresAt.Add(gap), k.now.Add(x.ttl()))
}

// stepExecution compares an execution before and after a batch.
func stepExecution(f *faults, before, after *keeper, b, a record) {
	was, is := b.execution, a.execution
	switch {
	case is == nil:
		f.add("G3", "%s is gone", was.ID)
		return
	case is.External != was.External:
		f.add("G8", "%s may have another kind of owner: external %t, was %t", was.ID, is.External, was.External)
	case is.Token < was.Token || is.Seq < was.Seq || is.Generation < was.Generation || is.Cost < was.Cost:
		f.add("G1", "%s went back: %+v, was %+v", was.ID, *is, *was)
	case is.Generation != was.Generation:
		return
	case was.State.Terminal() && (is.State != was.State || is.FinishedAt != was.FinishedAt ||
		is.Message != was.Message):
		f.add("G7", "%s was %s and is %s", was.ID, was.State, is.State)
	case was.CancelBy != 0 && is.State != belay.Cancelled && (is.State.Terminal() || is.CancelBy == 0 ||
		is.CancelBy > was.CancelBy):
		f.add("G7", "%s was being cancelled and is %s", was.ID, describe(is, after.now))
	}
	if is.Token > was.Token {
		stepClaim(f, before, after, b, a)
	}
}

// stepClaim checks the first claim of an execution in a batch: the execution was due, and neither
// gated, waiting nor paused (guarantees G8 and G11).
func stepClaim(f *faults, before, after *keeper, b, a record) {
	was := b.execution
	i := slices.IndexFunc(a.runs, func(r *Run) bool { return r.Token > was.Token })
	if i < 0 {
		f.add("G1", "%s has token %d of no run", was.ID, a.execution.Token)
		return
	}
	resumed := slices.ContainsFunc(a.deeds, func(d *Deed) bool { return d.Seq > was.Seq && d.Kind == "resume" })
	signalled := slices.ContainsFunc(a.signals, func(s *Signal) bool { return s.Seq > was.Seq })
	early := was.DueAt == 0 || was.DueAt > before.now
	locked := after.outside(a.runs[i].Worker)
	switch {
	case was.External && !locked:
		f.add("G8", "%s is for owners from outside and was claimed", was.ID)
	case was.State == belay.Pending && early:
		f.add("G8", "%s was claimed %s early", was.ID, was.DueAt.Sub(before.now))
	case was.State == belay.Waiting && early && !signalled && !locked:
		f.add("G8", "%s was claimed while it waits", was.ID)
	case was.State == belay.Paused && !resumed:
		f.add("G8", "%s was claimed while it is paused", was.ID)
	}
	x := before.workers[a.runs[i].Worker]
	if x != nil && x.Spec.External {
		f.add("G11", "%s was given to the session of a lock, %s", was.ID, x.ID)
	}
	state := belay.WorkerOpen
	if x != nil {
		state = x.State
	}
	if y := after.workers[a.runs[i].Worker]; y != nil && y.State == belay.WorkerOpen &&
		(state == belay.WorkerCordoned || state == belay.WorkerUnhealthy) {
		state = y.State // the batch let the worker claim again before the claim
	}
	if x != nil && (state != belay.WorkerOpen || before.expires(x) <= before.now) {
		f.add("G11", "%s was given to worker %s, which is %s", was.ID, x.ID, x.State)
	}
}

// stepSession checks that a session that has ended stays ended, that no session is ended before it
// expires (guarantee G6), and that claim numbers only grow.
func stepSession(f *faults, before, after *keeper, was, is *Worker, commands []Command) {
	switch {
	case is == nil:
		f.add("sessions", "%s is gone", was.ID)
	case was.State.Ended() && !reflect.DeepEqual(was, is):
		f.add("sessions", "%s had ended as %s and is %s", was.ID, was.State, is.State)
	case is.ClaimNo < was.ClaimNo || is.ClaimFloor < was.ClaimFloor || rank(is.State) < rank(was.State):
		f.add("sessions", "%s went back: %+v, was %+v", was.ID, *is, *was)
	case !is.State.Ended() && after.mark == before.now && is.ExpiresAt < min(before.expires(was),
		before.now.Add(is.ttl())):
		f.add("G6", "%s was not given the gap: it ends in %s", was.ID, is.ExpiresAt.Sub(before.now))
	case is.State.Ended() && !was.State.Ended():
		by := slices.ContainsFunc(commands, func(c Command) bool {
			switch c := c.(type) {
			case *End:
				return c.Worker == was.ID
			case *Vacate:
				return c.Worker == was.ID
			case *Settle:
				return c.Lease.Worker == was.ID && was.Spec.External
			}
			return false
		})
		if !by && before.expires(was) > before.now {
			f.add("G6", "%s was given up %s early", was.ID, before.expires(was).Sub(before.now))
		}
	}
}

// rank is the position of a session's state in the order in which states follow each other. A worker
// may be cordoned and uncordoned, and unhealthy and healthy, while its session is open.
func rank(s belay.WorkerState) belay.WorkerState {
	if s == belay.WorkerCordoned || s == belay.WorkerUnhealthy {
		return belay.WorkerOpen
	}
	return s
}
