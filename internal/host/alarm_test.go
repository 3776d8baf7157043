package host

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An alarm calls its function at its time, each time it is set. If the machine sleeps past that
// time, the alarm calls the function within alarmPoll after the machine wakes. After Stop it does
// not call the function.
func TestAnAlarmCountsTheTimeTheMachineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		var fired atomic.Int32
		began := time.Now()
		a := NewAlarm(func() time.Duration {
			return time.Since(began) + time.Duration(slept.Load())
		}, func() { fired.Add(1) })
		after := func(d time.Duration, want int32) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := fired.Load(); got != want {
				t.Errorf("it went off %d times, want %d", got, want)
			}
		}
		a.Reset(time.Minute)
		after(time.Minute-1, 0)
		after(1, 1)
		after(time.Hour, 1)
		a.Reset(time.Hour)
		after(time.Minute, 1)
		slept.Store(int64(59 * time.Minute))
		after(alarmPoll, 2)
		a.Reset(-time.Second)
		after(0, 3)
		a.Reset(time.Minute)
		a.Stop()
		after(time.Hour, 3)
	})
}
