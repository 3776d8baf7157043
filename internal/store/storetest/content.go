package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// byContent makes a submission that is recognized by its content.
func byContent(s *belay.Submission) { s.Idempotency = belay.IdempotencyByContent }

// contentKey is the key of a submission that byContent has made.
func (e *env) contentKey() machine.Key {
	s := belay.Submission{ID: e.id(), Workflow: "w", Input: []byte(`{"n":1}`)}
	byContent(&s)
	return machine.NeedOf([]machine.Command{&machine.Submit{Submission: s}}).Keys[0]
}

// leads checks that the key of the content leads to an execution; zero for no key.
func (e *env) leads(when string, to belay.ExecutionID) {
	e.Helper()
	key := e.contentKey()
	rows := e.rows(machine.Need{Keys: []machine.Key{key}}).Keys
	switch {
	case to.IsZero() && len(rows) == 0:
	case len(rows) != 1 || rows[0].Execution != to:
		e.Errorf("%s the key leads to %+v, want %s", when, rows, to)
	case !slices.Equal(e.list(store.List{Key: key.Key}), []belay.ExecutionID{to}):
		e.Errorf("%s the list of the key is %v, want %s", when, e.list(store.List{Key: key.Key}), to)
	}
}

var contentCases = []testCase{
	{"a key that follows from a content leads to its newest execution", func(e *env) {
		first := e.submit(byContent)
		e.leads("at first", first)
		if again := e.submit(byContent); again != first {
			e.Errorf("submitted again as %s, want %s", again, first)
		}
		e.control(first, belay.ActionCancel)
		second := e.submit(byContent)
		if second == first {
			e.Error("a cancelled execution answers")
		}
		e.leads("after the first was cancelled", second)
		e.clock.Advance(time.Second)
		e.prune(e.now(), 0)
		e.clock.Advance(2 * store.KeyLife)
		e.prune(e.now().Add(-2*store.KeyLife), 0)
		e.leads("after the first was deleted", second)
		e.control(second, belay.ActionCancel)
		e.clock.Advance(time.Second)
		e.prune(e.now(), 0)
		third := e.submit(byContent)
		e.leads("after the second was deleted", third)
		e.clock.Advance(2 * store.KeyLife)
		e.prune(e.now().Add(-2*store.KeyLife), 0)
		e.leads("when the key of the second would have expired", third)
	}},
	{"a key changes hands twice in one batch", func(e *env) {
		first := e.submit(byContent)
		e.control(first, belay.ActionCancel)
		submission := func() *machine.Submit {
			s := belay.Submission{ID: e.id(), Workflow: "w", Input: []byte(`{"n":1}`)}
			byContent(&s)
			return &machine.Submit{Submission: s}
		}
		second, third, again := submission(), submission(), submission()
		end := &machine.Act{Control: belay.Control{Execution: second.ID, Action: belay.ActionCancel}}
		r := e.fold(second, end, third, again)
		if r[0].ID != second.ID || r[2].ID != third.ID || r[3].ID != third.ID || !r[3].Replayed {
			e.Errorf("answers %+v", r)
		}
		e.leads("afterwards", third.ID)
	}},
	{"one of many submissions takes the key of a failed execution", func(e *env) {
		const rounds, many = 8, 16
		for range rounds {
			e.control(e.submit(byContent), belay.ActionQuarantine)
			commands, replies := make([]machine.Command, many), make([]machine.Reply, many)
			for i := range commands {
				s := belay.Submission{ID: e.id(), Workflow: "w", Input: []byte(`{"n":1}`)}
				byContent(&s)
				commands[i] = &machine.Submit{Submission: s}
			}
			var all sync.WaitGroup
			for i, c := range commands {
				all.Go(func() {
					r, err := fold(e.Context(), e.store, []machine.Command{c})
					if err != nil {
						e.Errorf("commit: %v", err)
						return
					}
					replies[i] = r[0]
				})
			}
			all.Wait()
			winners := 0
			for _, r := range replies {
				if r.ID != replies[0].ID || r.Err != nil {
					e.Errorf("%+v beside %s", r, replies[0].ID)
				}
				if !r.Replayed {
					winners++
				}
			}
			if winners != 1 {
				e.Errorf("%d submissions started an execution", winners)
			}
			e.leads("afterwards", replies[0].ID)
			e.control(replies[0].ID, belay.ActionCancel)
		}
	}},
}
