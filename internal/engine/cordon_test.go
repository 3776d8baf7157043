package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// A claim of a cordoned worker waits and wins nothing, on the server that received the cordon and
// on every other server, and without repeated queries to the store. The heartbeat of the worker is
// accepted. If the cordon is lifted at the server where the claim waits, the claim wins at once; if
// it is lifted at another server, the next claim wins.
func TestACordonedWorkerWinsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(time.Now)
		here, there := engine.New(m, engine.Options{}), engine.New(m, engine.Options{})
		defer here.Close()
		defer there.Close()
		w := opened(t, here, belay.WorkerSpec{TTL: belay.Duration(time.Hour)})
		number := int64(0)
		claim := func(wait time.Duration) (int, time.Duration) {
			number++
			began := time.Now()
			r := must[belay.ClaimReply](t)(here.Claim(t.Context(), belay.ClaimRequest{
				Worker: w, Number: number, Slots: 1, Wait: wait,
			}))
			return len(r.Assignments), time.Since(began)
		}
		cordon := func(e *engine.Engine, off bool) {
			t.Helper()
			if err := e.Cordon(t.Context(), belay.Cordon{Worker: w, Off: off}); err != nil {
				t.Fatal(err)
			}
		}
		for _, server := range []*engine.Engine{here, there} {
			cordon(server, false)
			submit(t, here)
			before := here.Stats().Commands
			if won, took := claim(20 * time.Second); won != 0 || took != 20*time.Second {
				t.Errorf("cordoned, it won %d after %s", won, took)
			}
			if n := here.Stats().Commands - before; n > 20 {
				t.Errorf("the claim cost %d commands", n)
			}
			must[belay.HeartbeatReply](t)(here.Heartbeat(t.Context(), belay.Heartbeat{Worker: w}))
			cordon(server, true)
			if won, took := claim(20 * time.Second); won != 1 || took != 0 {
				t.Errorf("uncordoned, it won %d after %s", won, took)
			}
		}
		cordon(here, false)
		submit(t, here)
		go func() {
			time.Sleep(5 * time.Second)
			cordon(here, true)
		}()
		if won, took := claim(time.Minute); won != 1 || took != 5*time.Second {
			t.Errorf("uncordoned while the claim waited, it won %d after %s", won, took)
		}
	})
}

// A worker whose health probe has failed wins nothing on any server, like a cordoned worker. It
// keeps its session, and wins executions again after a probe that succeeds. A probe is written only
// if it changes the health. Explain names the failed probe as the reason for which executions wait.
func TestAnUnhealthyWorkerWinsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(time.Now)
		here, there := engine.New(m, engine.Options{}), engine.New(m, engine.Options{})
		defer here.Close()
		defer there.Close()
		w := opened(t, here, belay.WorkerSpec{TTL: belay.Duration(time.Hour), Health: ":9090"})
		number := int64(0)
		claim := func() (won []belay.Assignment, took time.Duration) {
			number++
			began := time.Now()
			r := must[belay.ClaimReply](t)(here.Claim(t.Context(), belay.ClaimRequest{
				Worker: w, Number: number, Slots: 1, Wait: 20 * time.Second,
			}))
			return r.Assignments, time.Since(began)
		}
		submit(t, here)
		held, _ := claim()
		for _, server := range []*engine.Engine{here, there} {
			if s := must[belay.WorkerState](t)(server.Probed(t.Context(), w, "refused")); s != belay.WorkerUnhealthy {
				t.Errorf("the failed probe made it %s", s)
			}
			waiting := submit(t, here)
			before := here.Stats().Commands
			if won, took := claim(); len(won) != 0 || took != 20*time.Second {
				t.Errorf("unhealthy, it won %d after %s", len(won), took)
			}
			if n := here.Stats().Commands - before; n > 20 {
				t.Errorf("the claim cost %d commands", n)
			}
			x := must[belay.Explanation](t)(here.Explain(t.Context(), waiting))
			got := strings.Join(x.Facts, "\n")
			if !strings.Contains(got, "unhealthy for 20s: its health probe at :9090 says: refused\n") {
				t.Errorf("it does not explain the probe:\n%s", got)
			}
			if s := must[belay.WorkerState](t)(server.Probed(t.Context(), w, "")); s != belay.WorkerOpen {
				t.Errorf("the good probe made it %s", s)
			}
			if won, took := claim(); len(won) != 1 || took != 0 {
				t.Errorf("healthy, it won %d after %s", len(won), took)
			}
		}
		must[belay.WorkerState](t)(here.Probed(t.Context(), w, "refused"))
		written := here.Stats().Commits
		for range 100 {
			if s := must[belay.WorkerState](t)(here.Probed(t.Context(), w, "refused")); s != 0 {
				t.Errorf("the same result made it %s", s)
			}
		}
		if n := here.Stats().Commits - written; n != 0 {
			t.Errorf("100 probes with the same result wrote %d times", n)
		}
		lease := held[0].Lease
		must[belay.HeartbeatReply](t)(here.Heartbeat(t.Context(), belay.Heartbeat{
			Worker: w, Holds: []belay.Held{{Execution: lease.Execution, Token: lease.Token}}, ClaimSeen: 1,
		}))
		if err := here.Settle(t.Context(), belay.Settlement{Lease: lease, Op: belay.OpID{1},
			Outcome: belay.OutcomeSucceeded}); err != nil {
			t.Errorf("the unhealthy worker lost its run: %v", err)
		}
		alone := opened(t, here, belay.WorkerSpec{TTL: belay.Duration(time.Hour)})
		if _, err := here.Probed(t.Context(), alone, "refused"); belay.CodeOf(err) != belay.CodeConflict {
			t.Errorf("a worker without an address was probed: %v", err)
		}
	})
}
