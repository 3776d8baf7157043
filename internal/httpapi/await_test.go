package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

// told collects the events of the answer to an Await.
type told struct {
	*stream
	ended   []belay.Execution
	refused []wire.Refused
	over    bool
}

// await sends a request that waits for the ends of executions.
func (s *server) await(wait time.Duration, all ...belay.ExecutionID) *told {
	s.t.Helper()
	body, err := json.Marshal(wire.Await{Executions: all, WaitMS: wire.Millis(wait)})
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/await",
		strings.NewReader(string(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	in, err := streamOf(http.DefaultClient, req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = in.body.Close() })
	return &told{stream: in}
}

// next reads an event, and reports whether there was one.
func (x *told) next(t *testing.T) bool {
	t.Helper()
	e, err := x.stream.next()
	switch {
	case errors.Is(err, io.EOF):
		return false
	case err != nil:
		t.Fatal(err)
	case e.name == wire.EventEnded:
		x.ended = append(x.ended, belay.Execution{})
		err = json.Unmarshal([]byte(e.data), &x.ended[len(x.ended)-1])
	case e.name == wire.EventRefused:
		x.refused = append(x.refused, wire.Refused{})
		err = json.Unmarshal([]byte(e.data), &x.refused[len(x.refused)-1])
	case e.name == wire.EventOver:
		x.over = true
	default:
		t.Errorf("an event called %q", e.name)
	}
	if err != nil {
		t.Error(err)
	}
	return true
}

// A request waits for many executions. The answer has one event for each execution, after its end
// and with its whole output. An execution that does not exist gets an event with a refusal, and the
// request still waits for the other executions. The last event says that no more events will come.
func TestManyAreAwaitedAtOnce(t *testing.T) {
	const many, large = 40, 300 << 10
	s := serve(t, httpapi.Options{})
	all, ids := make([]*owner, many), make([]belay.ExecutionID, many)
	for i := range all {
		all[i] = own(t, s.b)
		ids[i] = all[i].lease.Execution
	}
	all[0].complete() // this execution ends before the request
	x := s.await(time.Minute, slices.Concat(ids, ids[:2], []belay.ExecutionID{{1}})...)
	x.next(t)
	x.next(t)
	if len(x.ended) != 1 || x.ended[0].ID != ids[0] || len(x.refused) != 1 ||
		x.refused[0].Error.Code != belay.CodeNotFound {
		t.Fatalf("before any other ended it told of %+v, and refused %+v", x.ended, x.refused)
	}
	output := json.RawMessage(`"` + strings.Repeat("x", large) + `"`)
	var ends sync.WaitGroup
	for _, o := range all[1:] {
		ends.Go(func() {
			err := s.b.Settle(context.WithoutCancel(t.Context()),
				belay.Settlement{Lease: o.lease, Op: belay.OpID{1}, Outcome: belay.OutcomeSucceeded, Output: output})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for x.next(t) {
	}
	ends.Wait()
	seen := make(map[belay.ExecutionID]bool)
	for _, e := range x.ended {
		if seen[e.ID] || e.State != belay.Succeeded || e.ID != ids[0] && len(e.Output) != len(output) {
			t.Errorf("told of %s, %s, with %d bytes; told of before: %t", e.ID, e.State, len(e.Output), seen[e.ID])
		}
		seen[e.ID] = true
	}
	if len(seen) != many || !x.over {
		t.Errorf("told of %d of %d; over: %t", len(seen), many, x.over)
	}
}

// When the time in the request's field wait_ms has passed, the answer ends with the event over. If
// that time is 0, the answer has only the executions that had ended before the request.
func TestAnAwaitIsOver(t *testing.T) {
	s := serve(t, httpapi.Options{})
	ended, runs := own(t, s.b), own(t, s.b)
	ended.complete()
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		x := s.await(wait, ended.lease.Execution, runs.lease.Execution)
		for x.next(t) {
		}
		if len(x.ended) != 1 || !x.over {
			t.Errorf("after %s it has told of %d; over: %t", wait, len(x.ended), x.over)
		}
	}
}

// A server that stops cuts the answer off without the event over, so that the client repeats its
// request to another server.
func TestAnAwaitEndsWithItsServer(t *testing.T) {
	stopping := make(chan struct{})
	s := serve(t, httpapi.Options{Stopping: stopping})
	x := s.await(time.Minute, own(t, s.b).lease.Execution)
	close(stopping)
	for x.next(t) {
	}
	if x.over || len(x.ended) > 0 {
		t.Errorf("it told of %d; over: %t", len(x.ended), x.over)
	}
}

// A key without the scope read cannot await executions.
func TestAnAwaitNeedsTheScope(t *testing.T) {
	s := serve(t, httpapi.Options{})
	o := own(t, s.b)
	s.withKey("submit", belay.ScopeSubmit).want(http.StatusForbidden, nil, http.MethodPost, "/v1/await",
		fmt.Sprintf(`{"executions": [%q]}`, o.lease.Execution))
}

// The number of executions for which all requests together may wait is limited, and a single caller
// may use half of that limit. A request above a limit is refused, and succeeds once another request
// has ended. These refusals are not logged as an outage of the store.
func TestAwaitsAreBounded(t *testing.T) {
	const each, most = 1000, 10
	s := serve(t, httpapi.Options{})
	submissions := make([]belay.Submission, each)
	for i := range submissions {
		submissions[i] = belay.Submission{Workflow: "w", External: true}
	}
	accepted, err := s.b.Submit(t.Context(), submissions...)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]belay.ExecutionID, each)
	for i := range ids {
		ids[i] = accepted[i].ID
	}
	var open []*told
	one := fmt.Sprintf(`{"executions": [%q]}`, ids[0])
	first, second := s.withKey("first", belay.ScopeRead), s.withKey("second", belay.ScopeRead)
	for range most {
		open = append(open, first.await(time.Minute, ids...))
	}
	if a := first.want(http.StatusTooManyRequests, nil, http.MethodPost, "/v1/await",
		one); a.Header.Get("Retry-After") == "" {
		t.Error("the refusal does not say when to ask again")
	}
	for range most {
		open = append(open, second.await(time.Minute, ids...))
	}
	log := s.log.text
	s = s.withKey("third", belay.ScopeRead)
	if a := s.want(http.StatusServiceUnavailable, nil, http.MethodPost, "/v1/await",
		one); a.Header.Get("Retry-After") == "" {
		t.Error("the refusal does not say when to ask again")
	}
	if err := open[0].body.Close(); err != nil {
		t.Error(err)
	}
	for tries := 0; s.do(http.MethodPost, "/v1/await", one).StatusCode != http.StatusOK; tries++ {
		if tries == 10_000 {
			t.Fatal("no request goes through after another has gone")
		}
	}
	if strings.Contains(log.String(), "the store is unavailable") {
		t.Errorf("it is logged as an outage:\n%s", log)
	}
}
