package storetest

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"pgregory.net/rapid"
)

// judge watches a walk for what Belay promises of every history.
type judge struct {
	seen map[belay.ExecutionID]*machine.Execution // as it stood last
	done []done
}

// done is an owner's write that was accepted in this step.
type done struct {
	lease belay.Lease
	op    belay.OpID
	what  string
}

func newJudge() *judge { return &judge{seen: make(map[belay.ExecutionID]*machine.Execution)} }

// note remembers what was accepted.
func (j *judge) note(c machine.Command, r machine.Reply) {
	if r.Err != nil || r.Replayed {
		return
	}
	switch c := c.(type) {
	case *machine.Save:
		j.done = append(j.done, done{c.Lease, c.Op, label(c)})
	case *machine.Settle:
		j.done = append(j.done, done{c.Lease, c.Op, label(c)})
	case *machine.Append:
		j.done = append(j.done, done{c.Lease, belay.OpID{}, label(c)})
	}
}

// check looks at all rows after a step.
func (j *judge) check(rt *rapid.T, s *snapshot, records map[belay.ExecutionID]*machine.Record) {
	letters, seen := int64(0), make(map[belay.ExecutionID]*machine.Execution) // what was pruned may begin anew
	for _, rec := range records {
		x := rec.Execution
		j.history(rt, rec)
		j.tokens(rt, rec)
		j.attempts(rt, rec)
		if was := j.seen[x.ID]; was != nil {
			final(rt, was, x)
		}
		seen[x.ID] = x
		if x.State == belay.Failed && x.Parent.IsZero() && (x.Policy == nil || !x.Policy.NoDeadLetters) {
			letters++
		}
	}
	j.seen = seen
	if s.Counts.DeadLetters != letters {
		rt.Fatalf("G10: %d open dead letters for %d failed roots", s.Counts.DeadLetters, letters)
	}
	j.effects(rt, s, records)
}

// history has every seq once, from the first to the execution's own (G15), and
// after an end nothing but an action that needs no owner (G7).
func (j *judge) history(rt *rapid.T, rec *machine.Record) {
	events := machine.Events(rec, 0, 1<<20)
	for i, ev := range events {
		if ev.Seq != int64(i)+1 {
			rt.Fatalf("G15: event %d of %s has seq %d: %+v", i+1, rec.Execution.ID, ev.Seq, events)
		}
	}
	if int64(len(events)) != rec.Execution.Seq {
		rt.Fatalf("G15: %s has %d events and seq %d: %+v", rec.Execution.ID, len(events), rec.Execution.Seq, events)
	}
	ended := false
	for _, ev := range events {
		switch ev.Kind {
		case "retry", "requeue":
			ended = false
		case "fork", "forget": // of what has ended
		default:
			if ended {
				rt.Fatalf("G7: %s goes on after its end with %+v: %+v", rec.Execution.ID, ev, events)
			}
		}
		ended = ended || ev.Final
	}
}

// tokens strictly increase, runs do not overlap, and what an owner wrote lies
// within its run (G1).
func (j *judge) tokens(rt *rapid.T, rec *machine.Record) {
	x := rec.Execution
	if was := j.seen[x.ID]; was != nil && x.Token < was.Token {
		rt.Fatalf("G1: the token of %s fell from %d to %d", x.ID, was.Token, x.Token)
	}
	ended := int64(0)
	for i, r := range rec.Runs {
		begun := r.ScheduledSeq
		if begun == 0 {
			begun = r.StartedSeq
		}
		last := i == len(rec.Runs)-1
		owned := x.State == belay.Running || x.State == belay.Scheduled
		if begun <= ended || r.EndedSeq == 0 && !(last && owned) || last && r.Token != x.Token {
			rt.Fatalf("G1: runs of %s overlap, or one that has no end is not the current: %+v", x.ID, rec.Runs)
		}
		ended = r.EndedSeq
		for _, k := range rec.Checkpoints {
			if k.Token == r.Token && (k.Seq < begun || ended != 0 && k.Seq > ended) {
				rt.Fatalf("G2: checkpoint %d of %s lies outside of its run %+v", k.Seq, x.ID, r)
			}
		}
	}
}

// attempts keep to their number and their terms (G8).
func (j *judge) attempts(rt *rapid.T, rec *machine.Record) {
	x := rec.Execution
	var policy belay.Policy
	if x.Policy != nil {
		policy = *x.Policy
	}
	policy = machine.Defaults(policy)
	failed, generation := 0, 0
	var earliest machine.Time
	for _, r := range rec.Runs {
		if r.Generation != generation {
			failed, generation, earliest = 0, r.Generation, 0
		}
		if begun := max(r.ScheduledAt, r.StartedAt); begun < earliest {
			rt.Fatalf("G8: run %d of %s began %s before its backoff was over", r.Token, x.ID, earliest.Sub(begun))
		}
		earliest = 0
		if r.Outcome == belay.OutcomeFailed || r.Outcome == belay.OutcomeTimedOut {
			failed++
			earliest = r.EndedAt.Add(machine.Backoff(policy, failed, 0))
		}
	}
	if failed > policy.MaxAttempts || x.Losses > policy.MaxLosses {
		rt.Fatalf("G8: %s failed %d times of %d and was lost %d times of %d", x.ID, failed, policy.MaxAttempts, x.Losses, policy.MaxLosses)
	}
}

// final reports an end that was not: after it only another generation changes
// anything but the number of open children (G7).
func final(rt *rapid.T, was, is *machine.Execution) {
	if !was.State.Terminal() || was.Generation != is.Generation {
		return
	}
	w, i := *was, *is
	// An action on what has ended, such as a fork, is history too.
	w.Open, i.Open, w.Seq, i.Seq = 0, 0, 0, 0
	if w.State != i.State || w.FinishedAt != i.FinishedAt || w.Token != i.Token || w.Worker != i.Worker || w.Checkpoints != i.Checkpoints {
		rt.Fatalf("G7: %s ended as %+v and is now %+v", was.ID, w, i)
	}
}

// effects were accepted of owners only whose session lives, or ended in the
// same step, and stand under their own token (G1, G2).
func (j *judge) effects(rt *rapid.T, s *snapshot, records map[belay.ExecutionID]*machine.Record) {
	now := s.Rows.Now
	for _, d := range j.done {
		ok := false
		for _, x := range s.Workers {
			if x.ID == d.lease.Worker && (x.ExpiresAt > now || x.EndedAt == now) {
				ok = true
			}
		}
		if !ok {
			rt.Fatalf("G2: %s was accepted of worker %s, whose session is over", d.what, d.lease.Worker)
		}
		if rec := records[d.lease.Execution]; rec != nil && !d.op.IsZero() && !wrote(rec, d) {
			rt.Fatalf("G1: %s was accepted with token %d and does not stand under it: %+v", d.what, d.lease.Token, rec)
		}
	}
	j.done = nil
}

// wrote reports whether the record has what an owner did under its token.
func wrote(rec *machine.Record, d done) bool {
	for _, k := range rec.Checkpoints {
		if k.Op == d.op && k.Token == d.lease.Token {
			return true
		}
	}
	for _, r := range rec.Runs {
		if r.Op == d.op && r.Token == d.lease.Token {
			return true
		}
	}
	return false
}
