package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/wire"
)

// slow is a server that takes a second for each request.
func slow(s *server) func(t *testing.T) http.Handler {
	return func(t *testing.T) http.Handler {
		s.t = t
		if s.answer == nil {
			s.answer = func(int, http.ResponseWriter, *http.Request) bool { time.Sleep(time.Second); return false }
		}
		return s
	}
}

func save(n int) belay.Save {
	return belay.Save{Kind: belay.KindStep, Key: "step", Data: json.RawMessage(`{"a":"<b>"}`), Consumes: int64(n)}
}

// Concurrent operations share requests, and each operation gets its own result.
func TestBatchesShareRequests(t *testing.T) {
	var s server
	inBubble(t, slow(&s), func(t *testing.T, c *client.Client) {
		const n = 900
		began := time.Now()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if seq, err := c.Save(t.Context(), save(i)); err != nil || seq != int64(i) {
					t.Errorf("save %d: %d, %v", i, seq, err)
				}
			})
		}
		all.Wait()
		if got := len(s.got()); got > 4 {
			t.Errorf("%d saves took %d requests", n, got)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("%d saves took %s, and a request takes one second", n, d)
		}
		if data := s.got()[0].ops[0].Save.Data; string(data) != `{"a":"<b>"}` {
			t.Errorf("the payload became %s", data)
		}
	})
}

// The client sends submissions of root executions in batches of their own, which a header marks.
// Submissions of children are in batches with all other operations.
func TestSubmissionsOfRootsHaveBatchesOfTheirOwn(t *testing.T) {
	var s server
	inBubble(t, slow(&s), func(t *testing.T, c *client.Client) {
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() { _, _ = c.Submit(t.Context(), belay.Submission{Workflow: "w"}) })
			all.Go(func() {
				_, _ = c.Submit(t.Context(), belay.Submission{Workflow: "w", Parent: &belay.Lease{Token: 1}})
			})
			all.Go(func() { _, _ = c.Save(t.Context(), save(i)) })
		}
		all.Wait()
		for _, r := range s.got() {
			roots := 0
			for _, o := range r.ops {
				if o.Submit != nil && o.Submit.Parent == nil {
					roots++
				}
			}
			marked := r.header.Get(wire.HeaderOnly) == wire.OnlySubmits
			if marked != (roots > 0) || marked && roots != len(r.ops) {
				t.Errorf("a batch of %d operations with %d roots is marked: %t", len(r.ops), roots, marked)
			}
		}
	})
}

// The client sends a single operation at once, in a batch of its own.
func TestBatchDoesNotWait(t *testing.T) {
	s := server{answer: func(int, http.ResponseWriter, *http.Request) bool { return false }}
	inBubble(t, slow(&s), func(t *testing.T, c *client.Client) {
		began := time.Now()
		for i := range 3 {
			if _, err := c.Save(t.Context(), save(i)); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d != 0 || len(s.got()) != 3 {
			t.Errorf("three saves took %s and %d requests", d, len(s.got()))
		}
	})
}

// A batch does not exceed the server's limits of operations and bytes.
func TestBatchIsBounded(t *testing.T) {
	var s server
	inBubble(t, slow(&s), func(t *testing.T, c *client.Client) {
		many := make([]belay.Submission, 3*wire.MaxBatch)
		answers, err := c.Submit(t.Context(), many...)
		if err != nil || len(answers) != len(many) {
			t.Fatal(len(answers), err)
		}
		ids := map[belay.ExecutionID]bool{}
		for _, a := range answers {
			if ids[a.ID] = true; a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		if len(ids) != len(many) {
			t.Errorf("%d ids for %d submissions", len(ids), len(many))
		}
		before := len(s.got())
		big, _ := json.Marshal(strings.Repeat("x", belay.MaxPayload-2))
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				if _, err := c.Save(t.Context(), belay.Save{Kind: belay.KindStep, Key: "k", Data: big}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, r := range s.got() {
			if len(r.ops) > wire.MaxBatch || len(r.body) > wire.MaxBatchBody {
				t.Errorf("a batch of %d operations, %d bytes", len(r.ops), len(r.body))
			}
		}
		if n := len(s.got()) - before; n < 20 {
			t.Errorf("40 MiB in %d requests: small operations would wait behind large batches", n)
		}
	})
}

// The client itself refuses an operation that is larger than the limit of every server, and sends no
// request for it.
func TestAnOperationBeyondEveryLimitIsNotSent(t *testing.T) {
	var s server
	inBubble(t, slow(&s), func(t *testing.T, c *client.Client) {
		big, _ := json.Marshal(strings.Repeat("x", wire.MaxBatchBody))
		_, err := c.Save(t.Context(), belay.Save{Kind: belay.KindStep, Key: "k", Data: big})
		if belay.CodeOf(err) != belay.CodePayloadTooLarge || !strings.Contains(err.Error(), "1048576") {
			t.Error(err)
		}
		answers, err := c.Submit(t.Context(), belay.Submission{Workflow: "w", Input: big},
			belay.Submission{Workflow: "w"})
		if err != nil || belay.CodeOf(answers[0].Err) != belay.CodePayloadTooLarge || answers[1].Err != nil {
			t.Errorf("%+v, %v: only the first submission should be refused", answers, err)
		}
		if _, err := c.Save(t.Context(), belay.Save{Kind: belay.KindStep, Key: "k",
			Data: json.RawMessage(`{`)}); belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("invalid JSON: %v", err)
		}
		if n := len(s.got()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// If the caller of an operation stops waiting before the operation is sent, the client never sends
// it. If the operation was sent, its result is unknown.
func TestAnOperationOfACallerThatGaveUpIsNotSent(t *testing.T) {
	var s server
	inBubble(t, slow(&s), func(t *testing.T, c *client.Client) {
		why := errors.New("the caller changed its mind")
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(chan error, 3)
		for i := range 3 { // the client sends two operations and queues the third
			go func() {
				_, err := c.Save(ctx, save(i))
				errs <- err
			}()
			synctest.Wait()
		}
		cancel(why)
		for range 3 {
			if err := <-errs; belay.CodeOf(err) != belay.CodeUnavailable || !errors.Is(err, why) {
				t.Errorf("given up: %v", err)
			}
		}
		if _, err := c.Save(t.Context(), save(7)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Save(ctx, save(8)); !errors.Is(err, why) {
			t.Error(err)
		}
		var sent []int64
		for _, r := range s.got() {
			for _, o := range r.ops {
				sent = append(sent, o.Save.Consumes)
			}
		}
		if len(sent) != 3 || sent[2] != 7 {
			t.Errorf("sent %v", sent)
		}
	})
}

// A refused operation does not make the other operations of its batch fail.
func TestARefusedOperationFailsAlone(t *testing.T) {
	var s server
	s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		time.Sleep(time.Second)
		if n < 3 {
			return false
		}
		lost := wire.ProblemOf(&belay.Error{
			Code: belay.CodeLeaseLost, Cause: belay.CauseReassigned, Op: "save", Message: "gone",
		})
		reply(w, wire.BatchReply{Results: []wire.Result{{Error: &lost}, {Seq: 9}}})
		return true
	}
	inBubble(t, slow(&s), func(t *testing.T, c *client.Client) {
		var all sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			all.Go(func() { _, errs[i] = c.Save(t.Context(), save(i)) })
			synctest.Wait()
		}
		all.Wait()
		if errs[0] != nil || errs[1] != nil || errs[3] != nil {
			t.Error(errs)
		}
		var e *belay.Error
		if !errors.As(errs[2], &e) || e.Code != belay.CodeLeaseLost || e.Cause != belay.CauseReassigned {
			t.Error(errs[2])
		}
	})
}

// An operation that the server cannot read does not make the other operations of its batch fail.
func TestAnUnreadableOperationFailsAlone(t *testing.T) {
	var s server
	s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		time.Sleep(time.Second)
		body, _ := r.Context().Value(bodyKey{}).([]byte)
		if !strings.Contains(string(body), "poison") {
			return false
		}
		refuse(w, &belay.Error{Code: belay.CodeMalformed, Message: "no JSON that can be read"})
		return true
	}
	inBubble(t, slow(&s), func(t *testing.T, c *client.Client) {
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				one := save(i)
				if i == 61 {
					one.Data = json.RawMessage(`"poison"`)
				}
				seq, err := c.Save(t.Context(), one)
				switch {
				case i == 61 && belay.CodeOf(err) != belay.CodeMalformed:
					t.Errorf("the poison: %v", err)
				case i != 61 && (err != nil || seq != int64(i)):
					t.Errorf("save %d: %d, %v", i, seq, err)
				}
			})
		}
		all.Wait()
		if n := len(s.got()); n > 20 {
			t.Errorf("%d requests", n)
		}
	})
}

// If the server sends fewer results than the batch has operations, each operation fails.
func TestBatchWithMissingResults(t *testing.T) {
	s := server{answer: func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		reply(w, wire.BatchReply{})
		return true
	}}
	inBubble(t, slow(&s), func(t *testing.T, c *client.Client) {
		if _, err := c.Save(t.Context(), save(1)); belay.CodeOf(err) != belay.CodeInternal {
			t.Error(err)
		}
	})
}
