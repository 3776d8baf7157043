package client_test

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/retry"
)

// losing returns a server that carries out the first n requests without answering them.
func losing(s *server, n int) func(t *testing.T) http.Handler {
	return func(t *testing.T) http.Handler {
		s.t = t
		s.answer = func(i int, _ http.ResponseWriter, _ *http.Request) bool {
			if i <= n {
				cut()
			}
			return false
		}
		return s
	}
}

// If the reply to a call that is safe to repeat was lost, the client repeats the call with the same
// operation id.
func TestACallWhoseReplyWasLostIsRepeatedWithTheSameID(t *testing.T) {
	x := belay.ExecutionID{1}
	for _, test := range []struct {
		name string
		call func(t *testing.T, c *client.Client) error
		same func(r seen) any
	}{
		{"submit", func(t *testing.T, c *client.Client) error {
			answers, err := c.Submit(t.Context(), belay.Submission{Workflow: "w"})
			if err == nil && (len(answers) != 1 || answers[0].ID.IsZero()) {
				t.Errorf("answers %+v", answers)
			}
			return err
		}, func(r seen) any { return r.ops[0].Submit.ID }},
		{"signal", func(t *testing.T, c *client.Client) error {
			return c.Signal(t.Context(), belay.SignalRequest{Execution: x, Name: "go"})
		}, func(r seen) any { return r.ops[0].Signal.Op }},
		{"control", func(t *testing.T, c *client.Client) error {
			_, err := c.Control(t.Context(), belay.Control{Execution: x, Action: belay.ActionCancel})
			return err
		}, func(r seen) any { return r.header.Get("Idempotency-Key") }},
		{"fork", func(t *testing.T, c *client.Client) error {
			_, err := c.Control(t.Context(), belay.Control{Execution: x, Action: belay.ActionFork})
			return err
		}, func(r seen) any { return r.header.Get("Idempotency-Key") }},
		{"lock", func(t *testing.T, c *client.Client) error {
			_, err := c.Lock(t.Context(), belay.LockRequest{Execution: x, Owner: "me"})
			var e *belay.Error
			// the fake server answers without a lock, so the client returns this error
			if errors.As(err, &e) && e.Code == belay.CodeInternal {
				return nil
			}
			return err
		}, func(r seen) any { return string(r.body) }},
		{"read", func(t *testing.T, c *client.Client) error {
			_, err := c.Execution(t.Context(), x)
			return err
		}, func(r seen) any { return r.path }},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s server
			inBubble(t, losing(&s, 2), func(t *testing.T, c *client.Client) {
				if err := test.call(t, c); err != nil {
					t.Fatal(err)
				}
				got := s.got()
				if len(got) != 3 {
					t.Fatalf("%d requests", len(got))
				}
				for _, r := range got {
					if id := test.same(r); id != test.same(got[0]) || id == nil {
						t.Errorf("repeated under %v, first under %v", id, test.same(got[0]))
					}
				}
			})
		})
	}
}

// The client does not repeat writes under a lease: their caller checks the lease before each try.
func TestCallsOfOwnersAreSentOnce(t *testing.T) {
	parent := &belay.Lease{Execution: belay.ExecutionID{1}}
	for name, call := range map[string]func(t *testing.T, c *client.Client) error{
		"save": func(t *testing.T, c *client.Client) error { _, err := c.Save(t.Context(), save(1)); return err },
		"settle": func(t *testing.T, c *client.Client) error {
			return c.Settle(t.Context(), belay.Settlement{Outcome: belay.OutcomeSucceeded})
		},
		"append": func(t *testing.T, c *client.Client) error { return c.Append(t.Context(), belay.Chunk{Name: "log"}) },
		"claim": func(t *testing.T, c *client.Client) error {
			_, err := c.Claim(t.Context(), belay.ClaimRequest{})
			return err
		},
		"heartbeat": func(t *testing.T, c *client.Client) error {
			_, err := c.Heartbeat(t.Context(), belay.Heartbeat{})
			return err
		},
		"renew": func(t *testing.T, c *client.Client) error { _, err := c.Renew(t.Context(), *parent); return err },
		"child": func(t *testing.T, c *client.Client) error {
			answers, err := c.Submit(t.Context(), belay.Submission{Workflow: "w", Parent: parent})
			if err != nil {
				return err
			}
			return answers[0].Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s server
			inBubble(t, losing(&s, 1), func(t *testing.T, c *client.Client) {
				if err := call(t, c); belay.CodeOf(err) != belay.CodeUnavailable {
					t.Errorf("a lost reply is %v", err)
				}
				if n := len(s.got()); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// Clients that got the same RetryAfter do not all send their requests again at the same moment.
func TestRetriesAreSpreadOverTime(t *testing.T) {
	var mu sync.Mutex
	var arrivals []time.Time
	busy := answering(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if arrivals = append(arrivals, time.Now()); len(arrivals) <= 20 {
			refuse(w, &belay.Error{Code: belay.CodeUnavailable, Message: "restarted", RetryAfter: 4 * time.Second})
			return
		}
		reply(w, belay.Execution{State: belay.Succeeded})
	})
	inBubble(t, busy, func(t *testing.T, c *client.Client) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := c.Execution(t.Context(), belay.ExecutionID{1}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		slices.SortFunc(arrivals, time.Time.Compare)
		first, last := arrivals[20].Sub(arrivals[0]), arrivals[39].Sub(arrivals[0])
		if first < 4*time.Second || last-first < 400*time.Millisecond {
			t.Errorf("RetryAfter was 4s; the first retry arrived after %s and the last after %s", first, last)
		}
	})
}

// The client repeats a call until its Patience is over, and waits between tries for at least the
// RetryAfter of the server.
func TestRepetitionEndsWithThePatience(t *testing.T) {
	var s server
	busy := func(t *testing.T) http.Handler {
		s = server{t: t, answer: func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, &belay.Error{Code: belay.CodeUnavailable, Message: "draining", RetryAfter: 3 * time.Second})
			return true
		}}
		return &s
	}
	inBubble(t, busy, func(t *testing.T, c *client.Client) {
		began := time.Now()
		_, err := c.Execution(t.Context(), belay.ExecutionID{1})
		var e *belay.Error
		if !errors.As(err, &e) || e.Code != belay.CodeUnavailable || e.RetryAfter != 3*time.Second ||
			e.Message != "draining" {
			t.Errorf("after the patience: %v", err)
		}
		if d, n := time.Since(began), len(s.got()); d > 10*time.Second || d < 6*time.Second || n < 3 || n > 4 {
			t.Errorf("%d tries in %s", n, d)
		}
	})
	inBubble(t, busy, func(t *testing.T, c *client.Client) {
		if _, err := c.Execution(t.Context(), belay.ExecutionID{1}); err == nil || len(s.got()) != 1 {
			t.Errorf("%d tries, %v", len(s.got()), err)
		}
	}, client.Patience(0))
	inBubble(t, busy, func(t *testing.T, c *client.Client) { // with retry.Once, as in package worker
		if _, err := c.Execution(retry.Once(t.Context()), belay.ExecutionID{1}); err == nil || len(s.got()) != 1 {
			t.Errorf("%d tries for a caller that repeats its calls itself, %v", len(s.got()), err)
		}
	})
}

// The client does not repeat a refused call.
func TestRefusalsAreFinal(t *testing.T) {
	var s server
	inBubble(t, func(t *testing.T) http.Handler {
		s.t, s.answer = t, func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, &belay.Error{Code: belay.CodeNotFound, Message: "no such execution"})
			return true
		}
		return &s
	}, func(t *testing.T, c *client.Client) {
		if _, err := c.Execution(t.Context(), belay.ExecutionID{1}); belay.CodeOf(err) != belay.CodeNotFound ||
			len(s.got()) != 1 {
			t.Errorf("%d tries, %v", len(s.got()), err)
		}
	})
}
