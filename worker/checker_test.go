package worker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Rule: however many probes arrive, the program's own check runs only once at a time, and its
// result also answers the probes of the next half second. A check that does not end in time, or
// panics, counts as failed.
func TestTheCheckOfAProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, running atomic.Int32
		var fails atomic.Pointer[error]
		never := make(chan struct{})
		var hangs atomic.Bool
		c := &checker{check: func(ctx context.Context) error {
			calls.Add(1)
			if running.Add(1) > 1 {
				t.Error("two checks run at the same time")
			}
			defer running.Add(-1)
			if hangs.Load() {
				<-never
			}
			time.Sleep(100 * time.Millisecond)
			if err := fails.Load(); err != nil {
				return *err
			}
			return nil
		}}
		together := func() (err error) {
			results := make(chan error)
			for range 1000 {
				go func() { results <- c.result(t.Context()) }()
			}
			for range 1000 {
				err = <-results
			}
			return err
		}
		if err := together(); err != nil || calls.Load() != 1 {
			t.Errorf("%v after %d calls", err, calls.Load())
		}
		full := errors.New("the disk is full")
		fails.Store(&full)
		if err := together(); err != nil {
			t.Errorf("the last result was not used: %v", err)
		}
		time.Sleep(checkValid)
		if err := together(); !errors.Is(err, full) || calls.Load() != 2 {
			t.Errorf("%v after %d calls", err, calls.Load())
		}
		time.Sleep(checkValid)
		hangs.Store(true)
		for range 3 {
			if err := together(); err == nil || !strings.Contains(err.Error(), "has not ended within 2s") {
				t.Errorf("a check that hangs: %v", err)
			}
			time.Sleep(10 * time.Second)
		}
		hangs.Store(false)
		fails.Store(nil)
		close(never)
		synctest.Wait()
		time.Sleep(time.Second)
		if err := together(); err != nil || calls.Load() != 4 {
			t.Errorf("%v after %d calls", err, calls.Load())
		}
	})
	c := &checker{check: func(context.Context) error { panic("oh") }}
	if err := c.result(t.Context()); err == nil || !strings.Contains(err.Error(), "panicked: oh") {
		t.Error(err)
	}
}

// Rule: the reason in an answer is one short line of valid text.
func TestTheReasonIsALine(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\nBelay-Health: b\x00\x1b[2J": "a Belay-Health: b [2J",
		"\xff":                            "?",
		strings.Repeat("ä", 300):          strings.Repeat("ä", 100),
	} {
		if got := reason(errors.New(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
