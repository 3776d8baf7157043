package engine_test

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// No worker loses its lease because the database was shut down or crashed, even if the outage lasts
// longer than a TTL. After the outage, the first server that judges sessions finds from the marks
// of life of all servers (times that each server stores at short intervals) that no session could
// be renewed. This server extends every session by the length of the outage.
func TestAnOutageOfTheDatabaseCostsNoLease(t *testing.T) {
	const ttl, outage = 4 * time.Second, 6 * time.Second
	srv := pgtest.Start(t, pgtest.Options{})
	url := srv.Database(t)
	a, b := start(t, url, withHints), start(t, url, withHints)
	id := a.submit(t, "x")
	w := a.open(t, "w", "x", ttl)
	lease := a.won(t, w, 1).Lease
	beat := belay.Heartbeat{Worker: w, ClaimSeen: 1, Holds: []belay.Held{{Execution: id, Token: lease.Token}}}
	for n, end := range []func() error{srv.Stop, srv.Kill} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Heartbeat(t.Context(), beat); belay.CodeOf(err) != belay.CodeUnavailable {
			t.Errorf("without a database a heartbeat got %v", err)
		}
		at(time.Now().Add(outage))
		if err := srv.Resume(); err != nil {
			t.Fatal(err)
		}
		at(time.Now().Add(ttl / 2)) // long enough for the sweepers to check the sessions
		eventually(t, soon, "the heartbeat is accepted", func() bool {
			r, err := b.Heartbeat(t.Context(), beat)
			if err != nil && belay.CodeOf(err) != belay.CodeUnavailable || len(r.Revoked) > 0 {
				t.Fatalf("after the outage a heartbeat got %+v, %v", r, err)
			}
			return err == nil
		})
		if _, err := a.Save(t.Context(), belay.Save{Lease: lease, Op: belay.OpID{byte(n + 1)}, Kind: belay.KindState,
			Key: "k"}); err != nil {
			t.Errorf("after the outage a write of its lease got %v", err)
		}
	}
	a.settle(t, belay.Assignment{Lease: lease})
	if runs := a.history(t, id); len(runs) != 1 {
		t.Errorf("it ran %d times", len(runs))
	}
}

// If only one of two servers ends, no session is extended: the other server ends a session that was
// opened at the first server when the session's TTL is over (guarantee G6), and does not wait for
// its slow poll.
func TestAnotherServerEndsAnExpiredSession(t *testing.T) {
	const ttl = 2 * time.Second
	a, b := two(t)
	w := a.open(t, "w", "x", ttl)
	id := a.submit(t, "x")
	a.won(t, w, 1)
	opened := a.session(t, w).HeartbeatAt
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	events, err := b.Events(t.Context(), belay.EventQuery{Execution: id, After: 2, Wait: 25 * time.Second})
	if err != nil || len(events) != 1 || events[0].Kind != "lost" {
		t.Fatalf("events %+v, %v", events, err)
	}
	if took := events[0].At.Sub(opened); took < ttl || took > ttl+soon {
		t.Errorf("it was given up after %s", took)
	}
}
