package storetest

import (
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/testkit/promise"
	"pgregory.net/rapid"
)

// judge checks the guarantees of docs/guarantees.md during a random walk (a long sequence of
// commands).
type judge struct {
	stories map[*machine.Record]*promise.Story
	seen    map[belay.ExecutionID]*machine.Execution // each execution after the last step
	writes  []ownerWrite
}

// ownerWrite is a write of an owner that was accepted in this step.
type ownerWrite struct {
	lease belay.Lease
	op    belay.OpID
	what  string
}

func newJudge() *judge { return &judge{} }

// note remembers an accepted write of an owner until the next check.
func (j *judge) note(c machine.Command, r machine.Reply) {
	if r.Err != nil || r.Replayed {
		return
	}
	switch c := c.(type) {
	case *machine.Save:
		j.writes = append(j.writes, ownerWrite{c.Lease, c.Op, label(c)})
	case *machine.Settle:
		j.writes = append(j.writes, ownerWrite{c.Lease, c.Op, label(c)})
	case *machine.Append:
		j.writes = append(j.writes, ownerWrite{c.Lease, belay.OpID{}, label(c)})
	}
}

// check checks all rows after a step.
func (j *judge) check(rt *rapid.T, s *snapshot, records map[belay.ExecutionID]*machine.Record) {
	h := &promise.History{Sessions: make(map[belay.WorkerID]*belay.Worker), Pruned: true, NoLetters: true}
	for _, x := range s.Workers {
		w := machine.WorkerView(x.Worker)
		h.Sessions[x.ID] = &w
	}
	// a deleted execution may be submitted again
	stories, seen := make(map[*machine.Record]*promise.Story), make(map[belay.ExecutionID]*machine.Execution)
	for _, rec := range records {
		story := j.stories[rec]
		if story == nil {
			story = promise.NewStory(&promise.Tale{Execution: machine.View(rec), Events: machine.Events(rec, 0, 1<<20)})
		}
		stories[rec] = story
		h.Stories = append(h.Stories, story)
		if was := j.seen[rec.Execution.ID]; was != nil {
			final(rt, was, rec.Execution)
		}
		seen[rec.Execution.ID] = rec.Execution
	}
	j.stories, j.seen = stories, seen
	f := &promise.Finding{History: h, Promise: "G10"}
	f.Books(s.Counts.Executions, s.Counts.DeadLetters)
	if broken := append(h.Judge(), f.Violated...); len(broken) > 0 {
		rt.Fatalf("%s", strings.Join(broken, "\n"))
	}
	j.effects(rt, s, records)
}

// final fails the walk if the end of an execution was not final: until a new generation begins, an
// ended execution does not change, except for its number of open children and its seq (guarantee
// G7). It also fails the walk if a token has fallen (guarantee G1).
func final(rt *rapid.T, was, is *machine.Execution) {
	if is.Token < was.Token {
		rt.Fatalf("G1: the token of %s fell from %d to %d", is.ID, was.Token, is.Token)
	}
	if !was.State.Terminal() || was.Generation != is.Generation {
		return
	}
	w, i := *was, *is
	// An action on an ended execution, such as a fork, adds to its history.
	w.Open, i.Open, w.Seq, i.Seq = 0, 0, 0, 0
	if w.State != i.State || w.FinishedAt != i.FinishedAt || w.Token != i.Token || w.Worker != i.Worker ||
		w.Checkpoints != i.Checkpoints {
		rt.Fatalf("G7: %s ended as %+v and is now %+v", was.ID, w, i)
	}
}

// effects checks the accepted writes of owners: the session was alive or ended in the same step,
// and each write is stored with the owner's token (guarantees G1 and G2).
func (j *judge) effects(rt *rapid.T, s *snapshot, records map[belay.ExecutionID]*machine.Record) {
	now := s.Rows.Now
	for _, d := range j.writes {
		ok := false
		for _, x := range s.Workers {
			if x.ID == d.lease.Worker && (x.ExpiresAt > now || x.EndedAt == now) {
				ok = true
			}
		}
		if !ok {
			rt.Fatalf("G2: %s was accepted from worker %s, whose session has ended", d.what, d.lease.Worker)
		}
		if rec := records[d.lease.Execution]; rec != nil && !d.op.IsZero() && !wrote(rec, d) {
			rt.Fatalf("G1: %s was accepted with token %d and is not stored under it: %+v", d.what, d.lease.Token, rec)
		}
	}
	j.writes = nil
}

// wrote reports whether the record contains the write with the token of its lease.
func wrote(rec *machine.Record, d ownerWrite) bool {
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
