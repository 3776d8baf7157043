package simulation

import (
	"bytes"
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// g3 checks G3, that nothing acknowledged is lost, for the rows that the public history does not
// show: chunks and sessions. At the end the store has the rows that were written, and no call
// returned other rows.
func g3(f *finding) {
	for _, c := range f.calls {
		if c.end == promise.Unknown {
			f.Count("outcome unknown")
		}
		if c.err != nil && belay.CodeOf(c.err) == belay.CodeInternal {
			f.violation(nil, nil, "%s %s %s was answered with an internal error: %v", c.actor, c.kind, c.about, c.err)
		}
		if c.end == promise.OK {
			g3call(f, c)
		}
	}
	for _, s := range f.stories {
		g3record(f, s)
	}
}

// g3call finds the rows that an acknowledged call wrote or returned.
func g3call(f *finding, c *call) {
	switch r := c.request.(type) {
	case belay.ExecutionID:
		if x, is := c.reply.(belay.Execution); is {
			g3view(f, c, &x)
		}
	case *belay.Chunk:
		if _, gone := f.deleted[r.Lease.Execution]; gone {
			break
		}
		chunks, err := f.w.store.Chunks(context.Background(), belay.ChunkQuery{
			Execution: r.Lease.Execution, Name: r.Name, From: r.N, Limit: 1,
		})
		if err != nil || len(chunks) != 1 || chunks[0].Token != r.Lease.Token || !bytes.Equal(chunks[0].Data, r.Data) {
			f.violation(f.byID[r.Lease.Execution], nil, "chunk %d of %q was acknowledged and does not exist",
				r.N, r.Name)
			return
		}
	case *belay.WorkerSpec:
		if f.workers[c.reply.(belay.Session).ID] == nil {
			f.violation(nil, nil, "a session of %s was opened and does not exist", r.Name)
			return
		}
	default:
		return
	}
	f.OK()
}

// g3view compares the execution that a call returned with the rows that were written.
func g3view(f *finding, c *call, x *belay.Execution) {
	s := f.byID[x.ID]
	for _, r := range s.rows {
		if r.Seq != x.Seq || r.State != x.State || r.Generation != x.Generation || r.c.real > c.to {
			continue
		}
		if a := s.byToken[r.Token]; x.State == belay.Succeeded && !bytes.Equal(a.Output, x.Output) {
			f.violation(s, r.c, "%s got a view with output %.60q; the output is %.60q", c.actor, x.Output, a.Output)
		}
		return
	}
	f.violation(s, nil, "%s got a view of it as %s at seq %d, which it never was", c.actor, x.State, x.Seq)
}

// g3record compares the rows that were written with the rows and the history in the store at the
// end.
func g3record(f *finding, s *story) {
	r := s.record
	if r == nil {
		f.violation(s, nil, "the execution is not in the store any more")
		return
	}
	last := s.last()
	if e := r.Execution; e.State != last.State || e.Seq != last.Seq || e.Token != last.Token ||
		e.Generation != last.Generation {
		f.violation(s, last.c, "the store has it as %s at seq %d, not as %s at seq %d", e.State, e.Seq, last.State,
			last.Seq)
	}
	told := machine.Events(r, 0, 1<<30)
	if w := s.written; len(r.Runs) != len(w.Runs) || len(r.Checkpoints) != len(w.Checkpoints) ||
		len(r.Signals) != len(w.Signals) || len(r.Deeds) != len(w.Deeds) ||
		len(told) != len(s.Events) {
		f.violation(s, last.c, "the store has %d runs, %d checkpoints, %d signals, %d actions, %d events; written "+
			"were %d, %d, %d, %d, %d",
			len(r.Runs), len(r.Checkpoints), len(r.Signals), len(r.Deeds), len(told), len(w.Runs), len(w.Checkpoints),
			len(w.Signals), len(w.Deeds), len(s.Events))
		return
	}
	for i, t := range told {
		if e := s.Events[i]; t.Seq != e.Seq || t.Kind != e.Kind || t.Final != e.Final || !t.Pruned &&
			!bytes.Equal(t.Data, e.Data) {
			f.violation(s, s.wrote[e.Seq],
				"event %d is shown as %s (final %t) with %.60q and was %s (final %t) with %.60q",
				e.Seq, t.Kind, t.Final,
				t.Data, e.Kind, e.Final, e.Data)
		}
	}
}
