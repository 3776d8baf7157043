package chaos

import (
	"net/url"
	"strings"

	"github.com/belaydev/belay"
)

// g4: transitions are atomic. The state says what the last events say; a child's
// end and its parent's news are of one moment; a claim comes with the last
// accepted checkpoint of every key, and no step is carried out again that has
// one.
func g4(f *finding) {
	children := make(map[belay.ExecutionID]*belay.Event)
	for _, s := range f.stories {
		for i := range s.Events {
			if ev := &s.Events[i]; ev.Kind == "child" {
				if id, err := belay.ParseExecutionID(ev.Text); err == nil {
					children[id] = ev
				}
			}
			f.ok()
		}
	}
	for _, s := range f.stories {
		g4state(f, s)
		g4family(f, s, children[s.id])
	}
	f.told("claim", ok, func(e *entry) { g4resume(f, e) })
	f.told("effect", "", func(e *entry) { g4again(f, e) })
}

// g4state compares the state with the history.
func g4state(f *finding, s *story) {
	x := &s.Execution
	if len(s.Events) == 0 {
		f.violation(s, "it has no history")
		return
	}
	last := s.Events[len(s.Events)-1]
	running := len(s.runs) > 0 && s.runs[len(s.runs)-1].end == nil
	switch {
	case x.Seq != last.Seq:
		f.violation(s, "its seq is %d and that of its last event %d", x.Seq, last.Seq)
	case running != (x.State == belay.Running):
		f.violation(s, "it is %s and its last run is open: %t", x.State, running)
	case x.State.Terminal() && x.FinishedAt.IsZero():
		f.violation(s, "it is %s and has no end", x.State)
	}
}

// g4family checks that a child's end and its parent's news are one commit, so
// that they have one time.
func g4family(f *finding, s *story, news *belay.Event) {
	p := f.byID[s.Execution.Parent]
	if s.isRoot() || !s.Execution.State.Terminal() {
		return
	}
	if p == nil {
		f.violation(s, "its parent %s is not there", s.Execution.Parent)
		return
	}
	if news != nil {
		if !news.At.Equal(s.Execution.FinishedAt) && s.Execution.Generation == 1 {
			f.violation(s, "it ended at %s and its parent was told at %s", s.Execution.FinishedAt.Format(clock), news.At.Format(clock))
		}
		f.count("child's end told")
		return
	}
	// Nobody waits for it whose parent has ended before, or began anew since.
	for i := range p.Events {
		if ev := &p.Events[i]; ev.Final && !ev.At.After(s.Execution.FinishedAt) {
			return
		}
	}
	f.violation(s, "it ended at %s and its parent %s was not told", s.Execution.FinishedAt.Format(clock), p.id)
}

// g4resume compares what a claim came with with what had been accepted.
func g4resume(f *finding, e *entry) {
	s := f.storyOf(e)
	if s == nil {
		return
	}
	a := s.byToken[e.Token]
	if a == nil {
		f.violation(s, "token %d was handed to %s and is not there", e.Token, e.Who)
		return
	}
	type key struct{ kind, name string }
	want := make(map[key]*belay.Event)
	for i := range s.Events {
		if ev := &s.Events[i]; isSave(ev) && ev.Seq < a.Seq {
			want[key{ev.Kind, ev.Name}] = ev
		}
	}
	if len(want) > 0 {
		f.count("resumed from checkpoints")
	}
	for _, got := range e.Had {
		k := key{got.Kind.String(), got.Key}
		ev := want[k]
		switch {
		case ev == nil && got.Seq > a.Seq: // its own: the claim was asked again
		case ev == nil, got.Seq < ev.Seq, got.Seq == ev.Seq && !ev.Pruned && !same(got.Data, ev.Data):
			f.violation(s, "token %d came with checkpoint %q of seq %d, which is not the last accepted one: %s", e.Token, got.Key, got.Seq, brief(ev))
		}
		delete(want, k)
	}
	for k := range want {
		f.violation(s, "token %d came without checkpoint %q", e.Token, k.name)
	}
	f.ok()
}

// g4again finds steps that were carried out though they had been saved.
func g4again(f *finding, e *entry) {
	s := f.byID[e.Execution]
	if s == nil || s.byToken[e.Token] == nil {
		return // see g2
	}
	_, name, _ := strings.Cut(e.Name, "/")
	name, err := url.PathUnescape(name)
	if err != nil {
		f.violation(s, "the idempotency key %q cannot be read", e.Name)
		return
	}
	begun := s.byToken[e.Token].Seq
	if ev := s.find("step", func(ev *belay.Event) bool { return ev.Name == name && ev.Seq < begun }); ev != nil {
		f.violation(s, "step %q was carried out again under token %d though seq %d has it", name, e.Token, ev.Seq)
	}
}
