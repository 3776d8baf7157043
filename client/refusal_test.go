package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/wire"
)

// answering returns a server that answers each request with f.
func answering(f http.HandlerFunc) func(*testing.T) http.Handler {
	return func(*testing.T) http.Handler { return f }
}

// The client returns the error that the server sent: its code, message, cause, holder and
// RetryAfter.
func TestTheClientReturnsTheErrorOfTheServer(t *testing.T) {
	for _, code := range []belay.Code{
		belay.CodeMalformed, belay.CodeInvalid, belay.CodeLeaseLost, belay.CodeLeaseHeld, belay.CodeIdempotencyMismatch,
		belay.CodeQueueFull, belay.CodeNoWorker, belay.CodeCircuitOpen, belay.CodeSwapInProgress,
		belay.CodePayloadTooLarge,
		belay.CodeNotFound, belay.CodeConflict, belay.CodeUnauthorized, belay.CodeForbidden, belay.CodeTokenRequired,
		belay.CodeCursorExpired, belay.CodeRateLimited, belay.CodeUnavailable, belay.CodeInternal,
	} {
		sent := &belay.Error{
			Code: code, Op: "lock ex_1", Message: "it cannot be", Cause: belay.CauseReassigned,
			RetryAfter: 1500 * time.Millisecond,
			Holder: &belay.Holder{
				Owner: "ann", Worker: belay.WorkerID{7}, Token: 1<<32 + 1, ExpiresIn: 20 * time.Second,
			},
		}
		h := answering(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/batch" {
				refuse(w, sent)
				return
			}
			p := wire.ProblemOf(sent)
			reply(w, wire.BatchReply{Results: []wire.Result{{Error: &p}}})
		})
		inBubble(t, h, func(t *testing.T, c *client.Client) {
			_, alone := c.Execution(t.Context(), belay.ExecutionID{1})
			_, inBatch := c.Save(t.Context(), save(1))
			for where, err := range map[string]error{"alone": alone, "in a batch": inBatch} {
				var got *belay.Error
				if !errors.As(err, &got) {
					t.Fatalf("%s: %v", where, err)
				}
				if diff := cmp.Diff(sent, got, cmpopts.IgnoreFields(belay.Error{}, "Err")); diff != "" {
					t.Errorf("%s, %s:\n%s", code, where, diff)
				}
			}
		}, client.Patience(0))
	}
}

// The client recognizes answers that do not come from a Belay server, such as a proxy's error page.
// The error has the code of a temporary error exactly if another try may succeed.
func TestAnswersThatDoNotComeFromABelayServer(t *testing.T) {
	type answer struct {
		status      int
		contentType string
		body        string
		code        belay.Code
	}
	const page = "<html>sorry</html>"
	for _, a := range []answer{
		{200, "text/html", page, belay.CodeInternal},
		{200, "application/json", `{"id": 7}`, belay.CodeInternal},
		{200, "application/json", `[`, belay.CodeInternal},
		{200, "application/json", "", belay.CodeInternal},
		{301, "text/html", page, belay.CodeInvalid},
		{403, "text/html", page, belay.CodeUnavailable},
		{404, "text/html", page, belay.CodeUnavailable},
		{412, "application/json", `{"code":"lease_lost"}`, belay.CodeUnavailable},
		{401, "text/html", page, belay.CodeUnauthorized},
		{413, "text/html", page, belay.CodePayloadTooLarge},
		{429, "text/html", page, belay.CodeRateLimited},
		{502, "text/html", page, belay.CodeUnavailable},
		{503, wire.ProblemType, page, belay.CodeUnavailable},
		{409, wire.ProblemType, `{"code":"of_tomorrow","status":409,"detail":"no"}`, belay.CodeInvalid},
		{500, wire.ProblemType, `{"code":"of_tomorrow","status":500}`, belay.CodeInternal},
	} {
		t.Run(fmt.Sprint(a.status, a.contentType), func(t *testing.T) {
			h := answering(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", a.contentType)
				w.Header().Set("Location", "http://elsewhere.test/")
				w.WriteHeader(a.status)
				_, _ = w.Write([]byte(a.body))
			})
			inBubble(t, h, func(t *testing.T, c *client.Client) {
				_, err := c.Execution(t.Context(), belay.ExecutionID{1})
				var e *belay.Error
				if !errors.As(err, &e) || known(e.Code) != a.code {
					t.Errorf("%v, want %s", err, a.code)
				}
			}, client.Patience(0))
		})
	}
}

// known returns the code, or CodeInternal if the code is not in the list of codes.
func known(c belay.Code) belay.Code {
	if c.Status() == belay.CodeInternal.Status() {
		return belay.CodeInternal
	}
	return c
}

// If a server accepts a request and never answers, the call ends with CodeUnavailable, and the
// error of a write says that the write may have happened.
func TestACallToAServerThatHangsEnds(t *testing.T) {
	hang := answering(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	inBubble(t, hang, func(t *testing.T, c *client.Client) {
		for name, call := range map[string]func() error{
			"read": func() error { _, err := c.Execution(t.Context(), belay.ExecutionID{1}); return err },
			"save": func() error { _, err := c.Save(t.Context(), save(1)); return err },
			"claim": func() error {
				_, err := c.Claim(t.Context(), belay.ClaimRequest{Wait: 20 * time.Second})
				return err
			},
		} {
			began := time.Now()
			err := call()
			unsure := err != nil && strings.Contains(err.Error(), "may have happened")
			if belay.CodeOf(err) != belay.CodeUnavailable || unsure != (name != "read") {
				t.Errorf("%s: %v", name, err)
			}
			if d := time.Since(began); d > 31*time.Second {
				t.Errorf("%s: given up after %s", name, d)
			}
		}
	}, client.Patience(0))
}

// A call whose context ends returns at once: a read returns the cause of the context, and a write
// returns CodeUnavailable with that cause.
func TestACallReturnsWhenItsContextEnds(t *testing.T) {
	hang := answering(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	inBubble(t, hang, func(t *testing.T, c *client.Client) {
		why := errors.New("no longer wanted")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		began := time.Now()
		if _, err := c.Execution(ctx, belay.ExecutionID{1}); !errors.Is(err, why) ||
			belay.CodeOf(err) == belay.CodeUnavailable {
			t.Errorf("read: %v", err)
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("after %s", d)
		}
		for name, call := range map[string]func() error{
			"heartbeat": func() error { _, err := c.Heartbeat(ctx, belay.Heartbeat{}); return err },
			"signal":    func() error { return c.Signal(ctx, belay.SignalRequest{Name: "x"}) },
		} {
			if err := call(); !errors.Is(err, why) || belay.CodeOf(err) != belay.CodeUnavailable {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Close ends calls that only wait. After Close, the client refuses every call.
func TestCloseEndsWaits(t *testing.T) {
	hang := answering(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	inBubble(t, hang, func(t *testing.T, c *client.Client) {
		began := time.Now()
		waited := make(chan error, 2)
		go func() {
			_, err := c.Await(t.Context(), belay.ExecutionID{1}, time.Hour)
			waited <- err
		}()
		go func() {
			_, err := c.Claim(t.Context(), belay.ClaimRequest{Wait: time.Minute})
			waited <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-waited; belay.CodeOf(err) != belay.CodeUnavailable {
				t.Error(err)
			}
		}
		if _, err := c.Save(t.Context(), save(1)); belay.CodeOf(err) != belay.CodeUnavailable {
			t.Error(err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("took %s", d)
		}
	})
}
