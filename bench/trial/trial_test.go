package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Rule: a sample with wrong counts is an error.
func TestWrongCountsAreAnError(t *testing.T) {
	for _, c := range []struct {
		count Count
		want  string
	}{
		{Count{What: "runs", Want: 2, Got: 2}, ""},
		{Count{What: "runs", Want: 2, Got: 1}, "the store has 1 runs, want 2"},
		{Count{What: "runs", Want: 2, Got: 3}, "the store has 3 runs, want 2"},
		{Count{What: "runs", Want: 2, Got: 3, More: true}, ""},
	} {
		var out bytes.Buffer
		err := Serve(strings.NewReader(`{"contender":"it"}`), &out, map[string]Func{
			"it": func(context.Context, Request) (Sample, error) {
				return Sample{Rate: 1, Counts: []Count{c.count}}, nil
			},
		})
		var s Sample
		if err := errors.Join(err, json.Unmarshal(out.Bytes(), &s)); err != nil || s.Error != c.want {
			t.Errorf("%+v: %q, want %q; %v", c.count, s.Error, c.want, err)
		}
	}
}

// Rule: the rate of a loop counts only calls that end after the warm-up and before the end of the
// loop.
func TestLoopsCountOnlyTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Meter
		begin := time.Now()
		done, err := Loop(t.Context(), Request{For: 10 * time.Second}, 2, &m, func(context.Context, int) error {
			if time.Since(begin) < Warmup {
				time.Sleep(time.Millisecond)
			} else {
				time.Sleep(90 * time.Millisecond)
			}
			m.Add(1)
			return nil
		})
		if rate := done.Sample().Rate; err != nil || rate < 22 || rate > 22.4 {
			t.Errorf("%.1f a second, want 2 in 90 ms; %v", rate, err)
		}
	})
}

// Rule: the first call that fails ends the loop.
func TestLoopsEndWithTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	var m Meter
	if _, err := Loop(t.Context(), Request{For: time.Hour}, 3, &m, func(context.Context, int) error {
		return broken
	}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// Rule: Pace makes its calls at their times even if earlier calls are slow.
func TestPacesDoNotWaitForSlowCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		n, err := Pace(t.Context(), 20, 2*time.Second, func(_ context.Context, i int) error {
			if at := time.Since(begin); at != time.Duration(i)*50*time.Millisecond {
				t.Errorf("call %d at %s", i, at)
			}
			time.Sleep(time.Minute)
			return nil
		})
		if n != 40 || err != nil {
			t.Errorf("%d calls, %v", n, err)
		}
	})
}

// Rule: Times returns an error if an execution did not start, or started twice.
func TestMissingAndRepeatedStartsAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStarts(2)
		s.Submit(0)
		s.Submit(1)
		time.Sleep(3 * time.Millisecond)
		s.Start(0)
		if _, err := s.Times(time.Second); err == nil {
			t.Error("one did not start")
		}
		s.Start(1)
		if times, err := s.Times(time.Second); err != nil || times.P50 != 3 || times.Max != 1003 {
			t.Errorf("%+v, %v", times, err)
		}
		s.Start(1)
		if _, err := s.Times(time.Second); err == nil {
			t.Error("one started twice")
		}
	})
}
