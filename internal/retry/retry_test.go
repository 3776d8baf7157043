package retry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

func fixed(b byte) func() [16]byte {
	var id [16]byte
	for i := range id {
		id[i] = b
	}
	return func() [16]byte { return id }
}

// Rule: the delay doubles from 50 ms to 2 s. Half of each delay is random. After a success the
// delay is 50 ms again.
func TestDelaysDouble(t *testing.T) {
	for _, random := range []byte{0, 0x7f, 0xff} {
		d := NewDelays(fixed(random))
		want := 50 * time.Millisecond
		for n := range 100 {
			if got := d.Next(errors.New("x")); got < want/2 || got > want {
				t.Errorf("with random bytes %x the delay after try %d is %s, want %s to %s", random, n+1, got, want/2,
					want)
			}
			want = min(2*want, 2*time.Second)
		}
		d.Reset()
		if got := d.Next(nil); got > 50*time.Millisecond {
			t.Errorf("after a success the delay is %s", got)
		}
	}
}

// Rule: a delay is at least the error's RetryAfter, also if the error is wrapped, and callers with
// the same RetryAfter call again at different times.
func TestDelaysObeyRetryAfter(t *testing.T) {
	err := fmt.Errorf("save: %w", &belay.Error{Code: belay.CodeRateLimited, RetryAfter: 8 * time.Second})
	first, last := NewDelays(fixed(0)), NewDelays(fixed(0x10))
	a, b := first.Next(err), last.Next(err)
	if a < 8*time.Second || b < 8*time.Second || a > 10100*time.Millisecond || b > 10100*time.Millisecond {
		t.Errorf("the delays are %s and %s, want 8 s and up to a quarter more", a, b)
	}
	if a == b {
		t.Errorf("both callers wait %s", a)
	}
}

// Rule: only the codes unavailable and rate_limited are transient.
func TestTransient(t *testing.T) {
	for code, want := range map[belay.Code]bool{
		belay.CodeUnavailable: true, belay.CodeRateLimited: true, belay.CodeInternal: false, belay.CodeQueueFull: false,
		belay.CodeLeaseLost: false, belay.CodeInvalid: false, belay.CodeConflict: false, belay.CodeNotFound: false,
	} {
		if got := Transient(fmt.Errorf("claim: %w", &belay.Error{Code: code})); got != want {
			t.Errorf("%s is transient: %t, want %t", code, got, want)
		}
	}
}

// Rule: Sleep returns false as soon as its context ends.
func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if Sleep(ctx, time.Hour) || time.Since(start) != time.Second {
			t.Errorf("slept for %s of a context of 1 s", time.Since(start))
		}
		if !Sleep(t.Context(), time.Minute) {
			t.Error("a sleep whose context goes on reported an end")
		}
	})
}
