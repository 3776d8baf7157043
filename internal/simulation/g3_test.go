package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// g3: nothing acknowledged is lost. Every ok that a caller got is there at the
// end, byte for byte; what nobody knows of is there wholly and once, or not at
// all. What a script returned is what it must return.
func g3(f *finding) {
	g3ops(f)
	for _, c := range f.calls {
		if c.end == unknown {
			f.count("outcome unknown")
		}
		if c.err != nil && belay.CodeOf(c.err) == belay.CodeInternal {
			f.violation(nil, nil, "%s %s %s was answered with an internal error: %v", c.actor, c.kind, c.about, c.err)
		}
		if c.end == ok {
			g3call(f, c)
		}
	}
	for _, s := range f.stories {
		g3record(f, s)
		g3output(f, s)
	}
}

// g3ops finds operations that were carried out more than once.
func g3ops(f *finding) {
	done := make(map[belay.OpID]string)
	note := func(s *story, c *commit, op belay.OpID, what string) {
		if first := done[op]; first != "" && !op.IsZero() {
			f.violation(s, c, "%s was carried out again: %s", first, what)
		}
		done[op] = what
	}
	for _, s := range f.stories {
		for _, k := range s.saved {
			note(s, k.c, k.Op, fmt.Sprintf("save %q as seq %d", k.Key, k.Seq))
		}
		for _, k := range s.signals {
			note(s, k.c, k.Op, fmt.Sprintf("signal as seq %d", k.Seq))
		}
		for _, d := range s.deeds {
			note(s, d.c, d.Op, fmt.Sprintf("%s as seq %d", d.Kind, d.Seq))
		}
	}
}

// g3call finds what an acknowledged call wrote.
func g3call(f *finding, c *call) {
	switch r := c.request.(type) {
	case *belay.Submission:
		a := c.reply.([]belay.Submitted)[0]
		if a.Err != nil {
			return
		}
		s := f.byID[a.ID]
		if s == nil || len(s.specs) == 0 || !bytes.Equal(s.specs[0].Input, r.Input) {
			f.violation(s, nil, "submission %s was accepted and is not there as it was", a.ID)
			return
		}
		if a.Replayed {
			f.count("submission replayed")
		}
	case *belay.Save:
		s, seq := f.byID[r.Lease.Execution], c.reply.(int64)
		for _, k := range s.saved {
			if k.Seq == seq && k.Op == r.Op && k.Key == r.Key && bytes.Equal(k.Data, r.Data) {
				f.ok()
				return
			}
		}
		f.violation(s, nil, "checkpoint %q was acknowledged as seq %d and is not there", r.Key, seq)
	case *belay.Settlement:
		s := f.byID[r.Lease.Execution]
		a := s.byToken[r.Lease.Token]
		if a == nil || a.EndedSeq == 0 || a.Op != r.Op || a.Outcome != r.Outcome || !bytes.Equal(a.Output, r.Output) {
			f.violation(s, nil, "the end of token %d as %s was acknowledged and is not there", r.Lease.Token, r.Outcome)
			return
		}
	case belay.ExecutionID:
		if x, is := c.reply.(belay.Execution); is {
			g3view(f, c, &x)
		}
	case *belay.SignalRequest:
		s := f.byID[r.Execution]
		for _, k := range s.signals {
			if k.Op == r.Op && bytes.Equal(k.Payload, r.Payload) {
				f.ok()
				return
			}
		}
		f.violation(s, nil, "a signal was acknowledged and is not there: %s", r.Payload)
	case *belay.Control:
		g3control(f, c, r)
	case *belay.Chunk:
		chunks, err := f.w.store.Chunks(context.Background(), belay.ChunkQuery{Execution: r.Lease.Execution, Name: r.Name, From: r.N, Limit: 1})
		if err != nil || len(chunks) != 1 || chunks[0].Token != r.Lease.Token || !bytes.Equal(chunks[0].Data, r.Data) {
			f.violation(f.byID[r.Lease.Execution], nil, "chunk %d of %q was acknowledged and is not there", r.N, r.Name)
			return
		}
	case *belay.WorkerSpec:
		if f.workers[c.reply.(belay.Session).ID] == nil {
			f.violation(nil, nil, "a session of %s was opened and is not there", r.Name)
			return
		}
	default:
		return
	}
	f.ok()
}

// g3view holds what somebody was shown of an execution against what was written.
func g3view(f *finding, c *call, x *belay.Execution) {
	s := f.byID[x.ID]
	for _, r := range s.rows {
		if r.Seq != x.Seq || r.State != x.State || r.Generation != x.Generation || r.c.real > c.to {
			continue
		}
		if a := s.byToken[r.Token]; x.State == belay.Succeeded && !bytes.Equal(a.Output, x.Output) {
			f.violation(s, r.c, "%s was shown output %.60q; it is %.60q", c.actor, x.Output, a.Output)
		}
		return
	}
	f.violation(s, nil, "%s was shown it as %s at seq %d, which it never was", c.actor, x.State, x.Seq)
}

// g3control finds an action. One that found its work done already leaves none.
func g3control(f *finding, c *call, r *belay.Control) {
	s := f.byID[r.Execution]
	for _, d := range s.deeds {
		if d.Op == r.Op {
			return
		}
	}
	already := false
	for i, x := range s.rows {
		until := c.to
		if i+1 < len(s.rows) {
			until = s.rows[i+1].c.real
		}
		if x.c.real > c.to || until < c.from {
			continue
		}
		switch r.Action {
		case belay.ActionCancel:
			already = already || x.State == belay.Cancelled || x.CancelBy != 0
		case belay.ActionPause:
			already = already || x.State == belay.Paused || x.PauseRequested
		case belay.ActionResume:
			already = already || x.State != belay.Paused && !x.PauseRequested
		case belay.ActionPreempt:
			already = already || x.Preempting
		case belay.ActionFork:
			already = f.byID[r.Fork] != nil
		}
	}
	if !already {
		f.violation(s, nil, "%s was acknowledged and is not there", r.Action)
	}
}

// g3record compares what was written with what the store holds at the end.
func g3record(f *finding, s *story) {
	r := s.record
	if r == nil {
		f.violation(s, nil, "the execution is not in the store any more")
		return
	}
	last := s.last()
	if e := r.Execution; e.State != last.State || e.Seq != last.Seq || e.Token != last.Token || e.Generation != last.Generation {
		f.violation(s, last.c, "the store has it as %s at seq %d, not as %s at seq %d", e.State, e.Seq, last.State, last.Seq)
	}
	if len(r.Runs) != len(s.runs) || len(r.Checkpoints) != len(s.saved) || len(r.Signals) != len(s.signals) || len(r.Deeds) != len(s.deeds) {
		f.violation(s, last.c, "the store has %d runs, %d checkpoints, %d signals, %d actions; written were %d, %d, %d, %d",
			len(r.Runs), len(r.Checkpoints), len(r.Signals), len(r.Deeds), len(s.runs), len(s.saved), len(s.signals), len(s.deeds))
	}
	for i, k := range r.Checkpoints {
		if i < len(s.saved) && !k.Pruned && !bytes.Equal(k.Data, s.saved[i].Data) {
			f.violation(s, s.saved[i].c, "checkpoint %d has other data in the store", k.Seq)
		}
	}
}

// g3output holds the output of a script against the script.
func g3output(f *finding, s *story) {
	last := s.last()
	if last.State != belay.Succeeded || last.Workflow != "play" {
		return
	}
	out := machine.View(s.record).Output
	var script []op
	var said []string
	if err := json.Unmarshal(s.specs[len(s.specs)-1].Input, &script); err != nil {
		f.violation(s, nil, "the input cannot be read: %v", err)
		return
	}
	if err := json.Unmarshal(out, &said); err != nil {
		f.violation(s, nil, "the output %.60q cannot be read: %v", out, err)
		return
	}
	rest, err := expected(script, "", said)
	if err != nil || len(rest) > 0 {
		f.violation(s, last.c, "the output %q is not that of its script %s: %v, %d too many", said, s.specs[len(s.specs)-1].Input, err, len(rest))
		return
	}
	f.ok()
}
