package promise

import (
	"net/url"
	"strings"

	"github.com/belaydev/belay"
)

// G4 checks that transitions are atomic. An execution's row agrees with its events. The end of a
// child and the event of this end in its parent have the same time. The reply to a claim has the
// last accepted checkpoint of every key, and a step with a checkpoint is not carried out again.
func G4(f *Finding) {
	for _, s := range f.History.Stories {
		f.row(s)
		f.Looked += len(s.Events)
	}
	f.children()
	for i := range f.History.Told {
		switch e := &f.History.Told[i]; {
		case e.won() && e.End == OK:
			f.resumed(e)
		case e.Kind == "effect":
			f.again(e)
		}
	}
}

// row compares an execution's row with its history.
func (f *Finding) row(s *Story) {
	x, r := &s.Execution, s.open()
	attempt := s.Failed + 1
	if x.State.Terminal() && x.State != belay.Succeeded {
		attempt = max(1, s.Failed)
	}
	for _, is := range []struct {
		what string
		ok   bool
	}{
		{"its history, of which there is none", len(s.Events) > 0},
		{"its generation", x.Generation == len(s.lives)},
		{"its attempt", x.Attempt == attempt},
		{"its losses", x.Losses >= s.lost.Sure && x.Losses <= s.lost.All},
		{"its run", (x.State == belay.Running) == (r != nil && r.Started != nil)},
		{"its assignment", (x.State == belay.Scheduled) == (r != nil && r.Started == nil)},
		{"its owner", r == nil || r.Worker == x.Worker},
		{"its end", x.State.Terminal() == !x.FinishedAt.IsZero()},
	} {
		if !is.ok {
			f.Violation(s, "its row and its history differ in %s: %s at seq %d, token %d, generation %d, attempt "+
				"%d, losses %d, owner %s, end %s",
				is.what, x.State, x.Seq, x.Token, x.Generation, x.Attempt, x.Losses, x.Worker,
				x.FinishedAt.Format(clock))
		}
	}
}

// childEvent is the end of a child as the events of its parent show it.
type childEvent struct {
	*belay.Event
	times int
}

// children checks that a parent counts its open children, and that one commit contains the end of a
// child and the event of this end in its parent.
func (f *Finding) children() {
	open, eachEntry := make(map[belay.ExecutionID]int), make(map[belay.ExecutionID]childEvent)
	for _, s := range f.History.Stories {
		if !s.IsRoot() && !s.Execution.State.Terminal() {
			open[s.Execution.Parent]++
		}
		for i := range s.Events {
			if ev := &s.Events[i]; ev.Kind == "child" {
				if id, err := belay.ParseExecutionID(ev.Text); err == nil {
					eachEntry[id] = childEvent{ev, eachEntry[id].times + 1}
				}
			}
		}
	}
	for _, s := range f.History.Stories {
		if s.Execution.OpenChildren != open[s.ID] {
			f.Violation(s, "it counts %d open children and has %d", s.Execution.OpenChildren, open[s.ID])
		}
		if !s.IsRoot() {
			f.child(s, eachEntry[s.ID])
		}
	}
}

func (f *Finding) child(s *Story, n childEvent) {
	p, end := f.History.Story(s.Execution.Parent), s.life().end
	switch {
	case p == nil:
		if !f.History.Pruned {
			f.Violation(s, "its parent %s does not exist", s.Execution.Parent)
		}
	case n.times > 1 || n.times == 1 && end == nil:
		f.Violation(s, "it is %s and its parent %s has its end %d times", s.Execution.State, f.name(p.ID), n.times)
	case end == nil:
	case n.times == 1:
		f.Count("child's end told")
		if at, was := p.when(n.Event), s.when(end); !at.Equal(was) {
			f.Violation(s, "it ended at %s and the event in its parent is of %s", was.Format(clock), at.Format(clock))
		}
	default:
		// A parent that had ended before its child ended does not wait for the child, even if an
		// operator has reopened the parent later.
		for i := range p.Events {
			if ev := &p.Events[i]; ev.Final && !ev.At.After(end.At) {
				return
			}
		}
		f.Violation(s, "it ended at %s and its parent %s has no event of that", end.At.Format(clock), f.name(p.ID))
	}
}

// resumed compares the checkpoints in the reply to a claim with the accepted checkpoints.
func (f *Finding) resumed(e *Entry) {
	s := f.storyOf(e)
	if s == nil {
		return
	}
	r := s.Run(e.Token)
	if r == nil {
		f.Violation(s, "token %d was given to %s and never claimed", e.Token, e.Who)
		return
	}
	type key struct{ kind, name string }
	want := make(map[key]*belay.Event)
	for i := range s.Events {
		if ev := &s.Events[i]; IsSave(ev) && ev.Seq < r.Seq && ev.Seq > r.Base && !s.Discarded(ev, r.Seq) {
			want[key{ev.Kind, ev.Name}] = ev
		}
	}
	if len(want) > 0 {
		f.Count("resumed from checkpoints")
	}
	for _, got := range e.Had {
		k := key{got.Kind.String(), got.Key}
		ev := want[k]
		switch {
		case ev == nil && got.Seq > r.Seq: // this run saved the checkpoint, and then the claim was repeated
		case ev == nil, got.Seq < ev.Seq, got.Seq == ev.Seq && !ev.Pruned && !Same(got.Data, ev.Data):
			f.Violation(s, "token %d came with checkpoint %q of seq %d, which is not the last accepted one: %s",
				e.Token, got.Key, got.Seq, format(ev))
		}
		delete(want, k)
	}
	for k := range want {
		f.Violation(s, "token %d came without checkpoint %q", e.Token, k.name)
	}
	if len(s.discards) > 0 && s.discards[len(s.discards)-1].at < r.Seq {
		f.Count("resumed after a retry from a step")
	}
	f.OK()
}

// again finds steps that were carried out again although they had been saved.
func (f *Finding) again(e *Entry) {
	s := f.History.Story(e.Execution)
	if s == nil || s.Run(e.Token) == nil {
		return // the checker of G2 in the chaos tests reports a step of an unknown run
	}
	_, name, _ := strings.Cut(e.Name, "/")
	name, err := url.PathUnescape(name)
	if err != nil {
		f.Violation(s, "the idempotency key %q cannot be read", e.Name)
		return
	}
	r := s.Run(e.Token)
	if ev := s.Find("step", func(ev *belay.Event) bool {
		return ev.Name == name && ev.Seq < r.Seq && ev.Seq > r.Base && !s.Discarded(ev, r.Seq)
	}); ev != nil {
		f.Violation(s, "step %q was carried out again under token %d though seq %d has it", name, e.Token, ev.Seq)
	}
}
