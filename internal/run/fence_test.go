package run_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/run"
)

// fixture is a fence with a TTL of 15 s, opened at the reading 100 s, so that it closes at 110 s.
// Its clock follows the virtual time of synctest, but a test can advance it separately.
type fixture struct {
	*run.Fence
	began  time.Time
	jump   atomic.Int64
	killed atomic.Int32
}

func (f *fixture) alarm(fire func()) run.Alarm { return host.NewAlarm(f.now, fire) }

// sleep simulates that the machine sleeps for d, during which its timers do not run, and then runs
// for half a second.
func (f *fixture) sleep(d time.Duration) {
	f.jump.Add(int64(d))
	time.Sleep(moment)
	synctest.Wait()
}

// moment is how long the simulated machine runs after a sleep. In this time its timers fire, and
// call the functions that a test then checks.
const moment = 500 * time.Millisecond

const (
	opened    = 100 * time.Second
	ttl       = 15 * time.Second
	maxFreeze = time.Minute
)

func (f *fixture) now() time.Duration {
	return opened + time.Since(f.began) + time.Duration(f.jump.Load())
}

func fence(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{began: time.Now()}
		f.Fence = run.NewFence(f.now, f.alarm, opened, ttl, maxFreeze, func() { f.killed.Add(1) })
		defer f.Close()
		test(t, f)
	})
}

// enter starts an effect. The returned channel receives whether the effect may happen.
func (f *fixture) enter(done <-chan struct{}) <-chan bool {
	ok := make(chan bool, 1)
	go func() { ok <- f.Enter(done) }()
	synctest.Wait()
	return ok
}

func entered(ok <-chan bool) bool {
	select {
	case v := <-ok:
		return v
	default:
		return false
	}
}

// Rule: the fence lets effects happen until two thirds of the TTL have passed since the worker sent
// the last acknowledged heartbeat. After that, effects wait.
func TestEffectsPassUpToTheFence(t *testing.T) {
	fence(t, func(t *testing.T, f *fixture) {
		time.Sleep(10*time.Second - 1)
		if !entered(f.enter(nil)) {
			t.Error("an effect waited before the fence closed")
		}
		time.Sleep(time.Nanosecond)
		done := make(chan struct{})
		ok := f.enter(done)
		if entered(ok) || !f.Frozen() {
			t.Error("an effect passed the closed fence")
		}
		close(done)
		synctest.Wait()
		if <-ok {
			t.Error("an effect passed after its run was lost")
		}
	})
}

// Rule: each effect checks the clock. After the clock has jumped forward (suspend, SIGSTOP), the
// fence is closed even if no timer has fired.
func TestAJumpOfTheClockClosesTheFence(t *testing.T) {
	fence(t, func(t *testing.T, f *fixture) {
		froze := 0
		f.OnFreeze(func() { froze++ }, func() {})
		f.jump.Store(int64(time.Minute))
		done := make(chan struct{})
		defer close(done)
		if entered(f.enter(done)) || froze != 1 {
			t.Errorf("passed, or froze %d times", froze)
		}
	})
}

// Rule: if a machine wakes after the fence's deadline, the fence soon calls the freeze functions,
// even if no effect checks the fence. If the machine slept longer than maxFreeze, the fence also
// calls kill.
func TestAMachineThatSleptFreezesWhenItWakes(t *testing.T) {
	fence(t, func(t *testing.T, f *fixture) {
		froze := 0
		f.OnFreeze(func() { froze++ }, func() {})
		f.sleep(9 * time.Second)
		if froze != 0 {
			t.Error("frozen before the fence")
		}
		f.sleep(time.Second)
		if froze != 1 || f.killed.Load() != 0 {
			t.Errorf("frozen %d times, killed %d", froze, f.killed.Load())
		}
		f.sleep(maxFreeze)
		if f.killed.Load() != 1 {
			t.Errorf("killed %d times after a freeze longer than its bound", f.killed.Load())
		}
	})
}

// Rule: an acknowledged heartbeat opens the fence again until two thirds of the TTL have passed
// since that heartbeat was sent, and waiting effects continue.
func TestRenewOpensTheFence(t *testing.T) {
	fence(t, func(t *testing.T, f *fixture) {
		time.Sleep(30 * time.Second)
		ok := f.enter(nil)
		f.Renew(f.now()-12*time.Second, ttl) // too old: the session's time after this heartbeat is over already
		synctest.Wait()
		if entered(ok) {
			t.Error("opened by a heartbeat sent before the fence")
		}
		f.Renew(f.now()-time.Second, ttl)
		synctest.Wait()
		if !entered(ok) || f.Frozen() {
			t.Error("still frozen")
		}
		f.Renew(f.now()-5*time.Second, ttl) // an older heartbeat changes nothing
		time.Sleep(9*time.Second - 1)
		if !entered(f.enter(nil)) {
			t.Error("closed too early")
		}
		time.Sleep(time.Nanosecond)
		done := make(chan struct{})
		defer close(done)
		if entered(f.enter(done)) {
			t.Error("closed too late")
		}
	})
}

// Rule: the freeze functions are called at the fence's deadline, in the order of their
// registration. Each thaw function is called once when the fence opens again.
func TestFreezersAreCalled(t *testing.T) {
	fence(t, func(t *testing.T, f *fixture) {
		var log []string
		on := func(name string) func() {
			return f.OnFreeze(func() { log = append(log, "freeze "+name) }, func() { log = append(log, "thaw "+name) })
		}
		on("a")
		remove := on("b")
		on("c")
		remove()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		on("late")
		f.Renew(f.now(), ttl)
		want := []string{"freeze a", "freeze c", "freeze late", "thaw a", "thaw c", "thaw late"}
		if !slices.Equal(log, want) {
			t.Errorf("%q, want %q", log, want)
		}
	})
}

// Rule: when a freeze has lasted for maxFreeze, kill is called once. A shorter freeze does not call
// kill, and each freeze is measured from its own beginning.
func TestAFreezeLongerThanItsBoundKills(t *testing.T) {
	fence(t, func(t *testing.T, f *fixture) {
		time.Sleep(10*time.Second + maxFreeze - 1)
		f.Renew(f.now(), ttl)
		time.Sleep(10*time.Second + maxFreeze - 1)
		synctest.Wait()
		if n := f.killed.Load(); n != 0 {
			t.Fatalf("killed %d times before the bound", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := f.killed.Load(); n != 1 {
			t.Fatalf("killed %d times at the bound", n)
		}
		time.Sleep(10 * maxFreeze)
		synctest.Wait()
		if n := f.killed.Load(); n != 1 {
			t.Errorf("killed %d times", n)
		}
	})
}
