package promise

import (
	"net/url"
	"strings"

	"github.com/belaydev/belay"
)

// G4: transitions are atomic. An execution's row says what its events say; a child's end and its
// parent's news are of one
// moment; a claim comes with the last accepted checkpoint of every key, and no step is carried out again that has one.
func G4(f *Finding) {
	for _, s := range f.History.Stories {
		f.row(s)
		f.Looked += len(s.Events)
	}
	f.families()
	for i := range f.History.Told {
		switch e := &f.History.Told[i]; {
		case e.won() && e.End == OK:
			f.resumed(e)
		case e.Kind == "effect":
			f.again(e)
		}
	}
}

// row compares the row with the history.
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

// news is a child's end as its parent was told of it.
type news struct {
	*belay.Event
	times int
}

// families checks that open children are counted, and that a child's end and its parent's news are one commit.
func (f *Finding) families() {
	open, told := make(map[belay.ExecutionID]int), make(map[belay.ExecutionID]news)
	for _, s := range f.History.Stories {
		if !s.IsRoot() && !s.Execution.State.Terminal() {
			open[s.Execution.Parent]++
		}
		for i := range s.Events {
			if ev := &s.Events[i]; ev.Kind == "child" {
				if id, err := belay.ParseExecutionID(ev.Text); err == nil {
					told[id] = news{ev, told[id].times + 1}
				}
			}
		}
	}
	for _, s := range f.History.Stories {
		if s.Execution.OpenChildren != open[s.ID] {
			f.Violation(s, "it counts %d open children and has %d", s.Execution.OpenChildren, open[s.ID])
		}
		if !s.IsRoot() {
			f.child(s, told[s.ID])
		}
	}
}

func (f *Finding) child(s *Story, n news) {
	p, end := f.History.Story(s.Execution.Parent), s.life().end
	switch {
	case p == nil:
		if !f.History.Pruned {
			f.Violation(s, "its parent %s is not there", s.Execution.Parent)
		}
	case n.times > 1 || n.times == 1 && end == nil:
		f.Violation(s, "it is %s and its parent %s was told its end %d times", s.Execution.State, f.name(p.ID), n.times)
	case end == nil:
	case n.times == 1:
		f.Count("child's end told")
		if at, was := p.when(n.Event), s.when(end); !at.Equal(was) {
			f.Violation(s, "it ended at %s and its parent was told at %s", was.Format(clock), at.Format(clock))
		}
	default:
		// A parent that had ended before does not wait for it, nor one that began anew since.
		for i := range p.Events {
			if ev := &p.Events[i]; ev.Final && !ev.At.After(end.At) {
				return
			}
		}
		f.Violation(s, "it ended at %s and its parent %s was not told", end.At.Format(clock), f.name(p.ID))
	}
}

// resumed compares the checkpoints that a claim came with with those that had been accepted.
func (f *Finding) resumed(e *Entry) {
	s := f.storyOf(e)
	if s == nil {
		return
	}
	r := s.Run(e.Token)
	if r == nil {
		f.Violation(s, "token %d was handed to %s and never claimed", e.Token, e.Who)
		return
	}
	type key struct{ kind, name string }
	want := make(map[key]*belay.Event)
	for i := range s.Events {
		if ev := &s.Events[i]; IsSave(ev) && ev.Seq < r.Seq && ev.Seq > r.Base {
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
		case ev == nil && got.Seq > r.Seq: // its own: the claim was asked again
		case ev == nil, got.Seq < ev.Seq, got.Seq == ev.Seq && !ev.Pruned && !Same(got.Data, ev.Data):
			f.Violation(s, "token %d came with checkpoint %q of seq %d, which is not the last accepted one: %s",
				e.Token, got.Key, got.Seq, brief(ev))
		}
		delete(want, k)
	}
	for k := range want {
		f.Violation(s, "token %d came without checkpoint %q", e.Token, k.name)
	}
	f.OK()
}

// again finds steps that were carried out though they had been saved.
func (f *Finding) again(e *Entry) {
	s := f.History.Story(e.Execution)
	if s == nil || s.Run(e.Token) == nil {
		return // see G2
	}
	_, name, _ := strings.Cut(e.Name, "/")
	name, err := url.PathUnescape(name)
	if err != nil {
		f.Violation(s, "the idempotency key %q cannot be read", e.Name)
		return
	}
	r := s.Run(e.Token)
	if ev := s.Find("step", func(ev *belay.Event) bool {
		return ev.Name == name && ev.Seq < r.Seq && ev.Seq > r.Base
	}); ev != nil {
		f.Violation(s, "step %q was carried out again under token %d though seq %d has it", name, e.Token, ev.Seq)
	}
}
