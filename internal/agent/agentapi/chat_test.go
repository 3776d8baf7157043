package agentapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// queue is a Backend in which a job never gets a slot. It records the reason of each cancellation.
type queue struct {
	belay.Client
	cancelled []string
	responses bool // ask sends requests for responses
	policy    belay.Policy
	submit    func() // if set, called during Submit
	read      func()
}

func (q *queue) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	if q.submit != nil {
		q.submit()
	}
	q.policy = s[0].Policy
	return []belay.Submitted{{ID: belay.ExecutionID{1}}}, ctx.Err()
}

func (q *queue) Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	return belay.Execution{ID: id, Workflow: agent.Prompted, State: belay.Pending}, ctx.Err()
}

func (q *queue) Await(ctx context.Context, id belay.ExecutionID, wait time.Duration) (belay.Execution, error) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
	return q.Execution(ctx, id)
}

func (q *queue) Executions(context.Context, belay.Filter) (belay.Page, error) {
	return belay.Page{}, nil
}

func (q *queue) Chunks(ctx context.Context, _ belay.ChunkQuery) ([]belay.StoredChunk, error) {
	if q.read != nil {
		q.read()
	}
	return nil, ctx.Err()
}

func (q *queue) Control(_ context.Context, c belay.Control) (belay.Execution, error) {
	q.cancelled = append(q.cancelled, c.Reason)
	return belay.Execution{}, nil
}

// ask sends a chat request, and returns the response and the duration of the request.
func (q *queue) ask(ctx context.Context, key string, stream bool, stopping chan struct{}) (*httptest.ResponseRecorder,
	time.Duration) {
	body := `{"messages":[{"role":"user","content":"x"}]}`
	if q.responses {
		body = `{"input":"x"}`
	}
	if stream {
		body = strings.Replace(body, "{", `{"stream":true,`, 1)
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	s := New(q, Options{QueueDepth: 1, ChatTimeout: 40 * time.Second, Setup: agent.Setup{
		Command: agent.Template{"a"}, Timeout: time.Hour,
	}})
	w, began := httptest.NewRecorder(), time.Now()
	if d := (&endpoint{s, stopping}); q.responses {
		d.respond(w, r)
	} else {
		d.complete(w, r)
	}
	return w, time.Since(began)
}

// Rule: a chat whose job gets no slot ends after ChatTimeout; until then, pings keep a streamed
// response open. At the end of ChatTimeout the server cancels the job of a chat without an
// Idempotency-Key. The job of a chat with a key continues, and the error says so.
func TestChatWithoutASlotEndsAfterItsTimeout(t *testing.T) {
	for _, key := range []string{"", "k"} {
		for _, stream := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				q := &queue{responses: true}
				if w, _ := q.ask(t.Context(), key, stream, nil); stream &&
					!strings.HasPrefix(lastEvent(w.Body.String()), "event: response.failed\n") {
					t.Errorf("key %q: %s", key, w.Body)
				}
				q = &queue{}
				w, took := q.ask(t.Context(), key, stream, nil)
				body := w.Body.String()
				if took < 40*time.Second || took > 41*time.Second ||
					!strings.Contains(body, "the chat took longer than 40s") {
					t.Errorf("key %q: after %s: %s", key, took, body)
				}
				if (key == "") != (len(q.cancelled) == 1) ||
					strings.Contains(body, "same Idempotency-Key") != (key != "") {
					t.Errorf("key %q: cancelled for %q: %s", key, q.cancelled, body)
				}
				if lost := q.policy.OnLost == belay.Fail; lost != (key == "") {
					t.Errorf("key %q: %+v", key, q.policy)
				}
				if stream {
					if w.Code != http.StatusOK || strings.Count(body, ": ping\n\n") != 2 ||
						!strings.HasPrefix(lastEvent(body), `{"error":{`) {
						t.Errorf("key %q, streamed: %d %s", key, w.Code, body)
					}
					return
				}
				status, again := http.StatusUnprocessableEntity, ""
				if key != "" {
					status, again = http.StatusServiceUnavailable, "5"
				}
				if h := w.Header(); w.Code != status || h.Get("Retry-After") != again ||
					(h.Get("X-Should-Retry") == "false") != (key == "") {
					t.Errorf("key %q: %d %v", key, w.Code, h)
				}
			})
		}
	}
}

func lastEvent(body string) string {
	parts := strings.Split(strings.TrimSpace(body), "\n\n")
	return strings.TrimPrefix(parts[len(parts)-1], "data: ")
}

// Rule: if the caller of a chat disconnects at any moment, or the server stops, the server cancels
// the job of the chat. It does not cancel the job of a chat with an Idempotency-Key.
func TestChatOfADisconnectedCallerIsCancelled(t *testing.T) {
	type moment struct {
		name    string
		happens func(q *queue, leave func(), stopping chan struct{})
		why     string
	}
	for _, m := range []moment{
		{"while it waits", func(_ *queue, leave func(), _ chan struct{}) {
			time.AfterFunc(5*time.Second, leave)
		}, "its caller has disconnected"},
		{"while it is accepted", func(q *queue, leave func(), _ chan struct{}) {
			q.submit = leave
		}, "its caller has disconnected"},
		{"while it waits or its log is read", func(q *queue, leave func(), _ chan struct{}) {
			q.read = leave
			time.AfterFunc(5*time.Second, leave)
		}, "its caller has disconnected"},
		{"when the server stops", func(_ *queue, _ func(), stopping chan struct{}) {
			time.AfterFunc(5*time.Second, func() { close(stopping) })
		}, "the server stops"},
	} {
		for _, key := range []string{"", "k"} {
			for _, stream := range []bool{false, true} {
				for _, responses := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						ctx, leave := context.WithCancel(t.Context())
						defer leave()
						q, stopping := &queue{responses: responses}, make(chan struct{})
						m.happens(q, leave, stopping)
						_, took := q.ask(ctx, key, stream, stopping)
						if took > 6*time.Second || (key == "") != (len(q.cancelled) == 1) || key == "" &&
							!strings.HasPrefix(q.cancelled[0], m.why) {
							t.Errorf("%s, key %q, stream %v, response %v: after %s cancelled for %q", m.name, key,
								stream, responses, took, q.cancelled)
						}
					})
				}
			}
		}
	}
}
