package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/wire"
)

// announcer is a server that answers await requests. It reports that an execution has ended when the
// test closes the channel of that execution in the map ends.
type announcer struct {
	server

	mu     sync.Mutex
	ends   map[belay.ExecutionID]chan struct{}
	opened int           // the number of await requests that are open now
	delay  time.Duration // how long the server takes to begin an answer
}

func newAnnouncer(t *testing.T) *announcer {
	a := &announcer{ends: make(map[belay.ExecutionID]chan struct{})}
	a.server.t = t
	a.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/await" {
			return false
		}
		a.announce(w, r)
		return true
	}
	return a
}

func (a *announcer) end(id belay.ExecutionID) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ends[id] == nil {
		a.ends[id] = make(chan struct{})
	}
	return a.ends[id]
}

func (a *announcer) count(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opened += n
}

func (a *announcer) open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened
}

func (a *announcer) announce(w http.ResponseWriter, r *http.Request) {
	a.count(1)
	defer a.count(-1)
	var asked wire.Await
	if err := json.Unmarshal(r.Context().Value(bodyKey{}).([]byte), &asked); err != nil {
		a.t.Errorf("the await request cannot be read: %v", err)
	}
	time.Sleep(a.delay)
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	ended := make(chan belay.ExecutionID)
	for _, id := range asked.Executions {
		go func() {
			select {
			case <-a.end(id):
			case <-r.Context().Done():
				return
			}
			select {
			case ended <- id:
			case <-r.Context().Done():
			}
		}()
	}
	over := time.NewTimer(wire.Duration(asked.WaitMS))
	defer over.Stop()
	for range asked.Executions {
		select {
		case id := <-ended:
			text, err := json.Marshal(belay.Execution{ID: id, State: belay.Succeeded})
			if err != nil {
				a.t.Error(err)
			}
			fmt.Fprintf(w, "event: ended\ndata: %s\n\n", text)
			_ = flush.Flush()
		case <-over.C:
			fmt.Fprint(w, "event: over\ndata: {}\n\n")
			return
		case <-r.Context().Done():
			return
		}
	}
	fmt.Fprint(w, "event: over\ndata: {}\n\n")
}

func executionID(n int) belay.ExecutionID { return belay.ExecutionID{byte(n >> 8), byte(n), 1} }

// Many waiters share few requests: while the server begins the answers to the first two requests, all
// other waiters queue, and then share requests for a thousand executions each. Each waiter gets its
// answer when its own execution has ended, even if other executions take longer.
func TestManyWaitersShareFewRequests(t *testing.T) {
	var a *announcer
	inBubble(t, func(t *testing.T) http.Handler {
		a = newAnnouncer(t)
		a.delay = 10 * time.Millisecond
		return a
	}, func(t *testing.T, c *client.Client) {
		const many = 2500
		var done sync.WaitGroup
		for n := range many {
			done.Go(func() {
				x, err := c.Await(t.Context(), executionID(n), time.Hour)
				if err != nil || x.ID != executionID(n) || x.State != belay.Succeeded {
					t.Errorf("awaited %+v, %v", x, err)
				}
			})
		}
		time.Sleep(time.Second) // until the server has begun all answers
		if n, most := len(a.got()), 2+(many+wire.MaxAwait-1)/wire.MaxAwait; n > most {
			t.Errorf("%d waiters made %d requests, more than %d", many, n, most)
		}
		for n := range many - 1 {
			close(a.end(executionID(n)))
		}
		time.Sleep(10 * time.Minute) // much longer than one request may wait
		synctest.Wait()
		if n := a.open(); n != 1 {
			t.Errorf("%d requests wait for the last one", n)
		}
		close(a.end(executionID(many - 1)))
		done.Wait()
	})
}

// An await request ends when its last waiter has left, and not earlier.
func TestAnAwaitRequestEndsWithItsLastWaiter(t *testing.T) {
	var a *announcer
	inBubble(t, func(t *testing.T) http.Handler {
		a = newAnnouncer(t)
		return a
	}, func(t *testing.T, c *client.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		var patient, impatient sync.WaitGroup
		patient.Go(func() {
			if x, err := c.Await(t.Context(), executionID(1), 20*time.Second); err != nil || x.State.Terminal() {
				t.Errorf("awaited %+v, %v", x, err)
			}
		})
		impatient.Go(func() {
			if _, err := c.Await(ctx, executionID(1), time.Hour); !errors.Is(err, context.Canceled) {
				t.Errorf("a wait that was given up: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		impatient.Wait()
		synctest.Wait()
		if a.open() == 0 {
			t.Error("the request ended while a waiter was left")
		}
		patient.Wait()
		synctest.Wait()
		if n := a.open(); n != 0 {
			t.Errorf("%d requests have no waiter", n)
		}
	})
}

// If the answer to an await request is cut off, the client sends the request again. If that answer
// reported an error about one execution, waiters for other executions do not get this error.
func TestAnAwaitRequestThatIsCutOffIsRepeated(t *testing.T) {
	var a *announcer
	inBubble(t, func(t *testing.T) http.Handler {
		a = newAnnouncer(t)
		usual := a.answer
		a.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n > 1 {
				return usual(n, w, r)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			const refused = "event: refused\ndata: {\"execution\": %q, \"error\": {\"code\": \"not_found\", " +
				"\"status\": 404}}\n\n"
			fmt.Fprintf(w, refused, executionID(2))
			return true
		}
		close(a.end(executionID(1)))
		return a
	}, func(t *testing.T, c *client.Client) {
		var done sync.WaitGroup
		done.Go(func() {
			if x, err := c.Await(t.Context(), executionID(1), time.Hour); err != nil || x.State != belay.Succeeded {
				t.Errorf("awaited %+v, %v", x, err)
			}
		})
		done.Wait()
		if n := len(a.got()); n != 2 {
			t.Errorf("%d requests, want two", n)
		}
	})
}

// The client waits for each execution in a request of its own if an older server does not support
// the await request.
func TestAnOlderServerGetsOneRequestForEachExecution(t *testing.T) {
	inBubble(t, func(t *testing.T) http.Handler {
		s := &server{t: t}
		s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				refuse(w, &belay.Error{Code: belay.CodeNotFound})
				return true
			}
			reply(w, belay.Execution{ID: executionID(1), State: belay.Succeeded})
			return true
		}
		return s
	}, func(t *testing.T, c *client.Client) {
		for range 2 {
			if x, err := c.Await(t.Context(), executionID(1), time.Hour); err != nil || x.State != belay.Succeeded {
				t.Errorf("awaited %+v, %v", x, err)
			}
		}
	})
}
