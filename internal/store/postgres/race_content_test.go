package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// byContent submits an execution that is recognized by its content. The same n in input makes the same
// content.
func byContent(id byte, input byte) *machine.Submit {
	return &machine.Submit{Submission: belay.Submission{
		ID: belay.ExecutionID{id}, Workflow: "w", Input: []byte{'0' + input}, Idempotency: belay.IdempotencyByContent,
	}}
}

// If two servers accept a submission of one content at the same time, there is one execution: when the
// content is new, when its execution has failed, and when its execution was deleted (guarantee G9).
func TestOneContentToTwoServersIsOneExecution(t *testing.T) {
	a, b, clock := two(t)
	race := func(what string, id byte) {
		t.Helper()
		replies, err := a.during(func(*machine.Rows) { b.ok(byContent(id+1, 1)) }, byContent(id, 1))
		if err != nil || replies[0].ID != (belay.ExecutionID{id + 1}) || !replies[0].Replayed {
			t.Errorf("%s: %+v (%v)", what, replies, err)
		}
		if r := b.ok(byContent(id+2, 1)); r.ID != (belay.ExecutionID{id + 1}) || !r.Replayed {
			t.Errorf("%s, afterwards: %+v", what, r)
		}
	}
	end := func(id byte) {
		t.Helper()
		b.ok(&machine.Act{Control: belay.Control{Execution: belay.ExecutionID{id}, Action: belay.ActionCancel}})
	}
	race("the content is new", 1)
	end(2)
	race("its execution has failed", 11)
	end(12)
	clock.Advance(time.Second)
	if p, err := a.Prune(t.Context(), store.Retention{Before: a.Now()}, 100); err != nil || p.Executions != 2 {
		t.Fatalf("pruned %+v (%v)", p, err)
	}
	race("its execution was deleted", 21)
	end(22)
	clock.Advance(time.Second)
	if _, err := a.during(func(*machine.Rows) { // the key is deleted while its execution gives it up
		if _, err := b.Prune(t.Context(), store.Retention{Before: b.Now()}, 100); err != nil {
			t.Error(err)
		}
		clock.Advance(2 * store.KeyLife)
		if p, err := b.Prune(t.Context(), store.Retention{Before: 1}, 100); err != nil || p.Keys != 1 {
			t.Errorf("pruned %+v (%v)", p, err)
		}
	}, byContent(31, 1)); err != nil {
		t.Fatal(err)
	}
	if r := b.ok(byContent(32, 1)); r.ID != (belay.ExecutionID{31}) {
		t.Errorf("after the key was deleted: %+v", r)
	}
}

// Two servers that take the keys of the same failed executions in opposite order cause no deadlock,
// and each content gets one new execution.
func TestTakingKeysOnTwoServersDoesNotDeadlock(t *testing.T) {
	a, b, _ := two(t)
	const many = 9
	for round := range byte(9) {
		var failed []machine.Command
		for n := range byte(many) {
			id := a.ok(byContent(3*round*many+n+1, n)).ID
			failed = append(failed, &machine.Act{Control: belay.Control{Execution: id, Action: belay.ActionCancel}})
		}
		if _, err := a.during(nil, failed...); err != nil {
			t.Fatal(err)
		}
		answers := make([][]machine.Reply, 2)
		var wg sync.WaitGroup
		for i, s := range []server{a, b} {
			wg.Go(func() {
				var commands []machine.Command
				for n := range byte(many) {
					input := n
					if i == 1 {
						input = many - 1 - n
					}
					commands = append(commands, byContent((3*round+byte(i)+1)*many+n+1, input))
				}
				var err error
				if answers[i], err = s.during(nil, commands...); err != nil {
					t.Errorf("commit: %v", err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for n := range many {
			mine, other := answers[0][n], answers[1][many-1-n]
			if mine.ID != other.ID || mine.Replayed == other.Replayed {
				t.Errorf("content %d: %+v and %+v", n, mine, other)
			}
			a.ok(&machine.Act{Control: belay.Control{Execution: mine.ID, Action: belay.ActionCancel}})
		}
	}
	noDeadlock(t)
}
