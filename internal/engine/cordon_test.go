package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// A claim of a cordoned worker waits and wins nothing, whichever server has the cordon, and without
// asking the store again and again. The heartbeat of the worker is accepted. When the cordon is lifted
// here, the claim wins at once; when another server lifts it, the next claim wins.
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
