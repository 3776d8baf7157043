package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
)

// While a table that heartbeats need is locked, no server writes a mark of life (a time that shows
// that heartbeats can be written), even if it writes other rows: a command that requests a mark
// waits for the lock, like a heartbeat.
func TestMarksOfLifeStopWhileHeartbeatsCannotBeWritten(t *testing.T) {
	url := database(t)
	a, b := server{open(t, url, postgres.Options{}), t}, server{open(t, url, postgres.Options{}), t}
	a.openWorker(1)
	mark := func() machine.Time {
		var rows *machine.Rows
		if _, err := b.during(func(r *machine.Rows) { rows = r }); err != nil {
			t.Fatal(err)
		}
		return rows.Mark
	}
	opened := mark()
	for n, lock := range []string{"LOCK TABLE workers IN SHARE MODE",
		"LOCK TABLE executions IN ACCESS EXCLUSIVE MODE"} {
		tx := otherTransaction(t, url, lock)
		before := mark()
		ctx := store.Urgent(store.Waiting(context.Background(), 50*time.Millisecond))
		err := a.Commit(ctx, machine.Need{}, func(*machine.Rows) *machine.Changes {
			return &machine.Changes{Mark: true, Beat: time.Second}
		})
		if belay.CodeOf(err) != belay.CodeUnavailable {
			t.Errorf("%s: a mark of life got %v", lock, err)
		}
		if n == 0 { // a lock that still allows reads of sessions does not delay submissions
			b.submit(1)
		}
		if now := mark(); now != before {
			t.Errorf("%s: a mark of life was left at %d after %d", lock, now, before)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a.ok(&machine.Mark{})
	if now := mark(); now <= opened {
		t.Errorf("when all is free, the mark of life is %d after %d", now, opened)
	}
}

// If a heartbeat and a claim of the same session are committed on two connections at the same time,
// each is decided once, and neither undoes the write of the other.
func TestAHeartbeatBesideAClaimOfItsSession(t *testing.T) {
	a, b, clock := two(t)
	w := a.openWorker(1)
	id := a.submit(1)
	decided := 0
	clock.Advance(time.Second)
	replies, err := a.during(func(*machine.Rows) {
		decided++
		clock.Advance(time.Second)
		b.ok(&machine.Heartbeat{Heartbeat: belay.Heartbeat{Worker: w}})
	}, claim(w, 1, 1))
	if err != nil || replies[0].Err != nil || len(replies[0].Claims) != 1 || decided != 1 {
		t.Fatalf("the claim was decided %d times: %+v (%v)", decided, replies, err)
	}
	workers, err := a.Workers(t.Context(), store.WorkerQuery{Limit: 1})
	if err != nil || workers[0].ClaimNo != 1 || workers[0].HeartbeatAt != machine.At(clock.Now()) ||
		workers[0].ExpiresAt != machine.At(clock.Now().Add(belay.DefaultTTL.D())) {
		t.Errorf("the session is %+v (%v)", workers[0].Worker, err)
	}
	a.submit(2)
	decided = 0
	if _, err := a.during(func(*machine.Rows) {
		decided++
		if won := b.ok(claim(w, 2, 1)).Claims; len(won) != 1 {
			t.Errorf("the second claim won %d", len(won))
		}
	}, &machine.Heartbeat{
		Heartbeat: belay.Heartbeat{Worker: w, ClaimSeen: 1, Holds: []belay.Held{{Execution: id, Token: 1}}},
	}); err != nil || decided != 1 {
		t.Errorf("the heartbeat was decided %d times: %v", decided, err)
	}
}
