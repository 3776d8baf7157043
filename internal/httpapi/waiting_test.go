package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// A caller may have a limited number of requests at a time that wait or stream. A further request
// of this kind is refused, with Retry-After. Requests of the caller that do not wait succeed, and
// so do all requests of other callers.
func TestWaitsOfACallerAreBounded(t *testing.T) {
	const most = 20
	s := serve(t, httpapi.Options{Waiting: most})
	path := s.submit(`{"workflow": "w"}`)
	worker := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "other"}], "capacity": 1}`).Header.Get("Location")
	greedy, other := s.withKey("greedy", belay.ScopeRead, belay.ScopeWorker, belay.ScopeSubmit),
		s.withKey("other", belay.ScopeRead)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	hold := func() {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+greedy.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		all.Go(func() {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	for range most {
		hold()
	}
	for _, r := range [][3]string{
		{http.MethodGet, path + "/events", ""}, {http.MethodGet, path + "/history?after=99&wait=60s", ""},
		{http.MethodPost, "/v1/await", `{"executions": ["` + strings.TrimPrefix(path, "/v1/executions/") + `"]}`},
		{http.MethodGet, path + "/logs/output", ""},
	} {
		a := greedy.do(r[0], r[1], r[2])
		if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", r[1], a.StatusCode, a.body)
		}
	}
	greedy.want(http.StatusOK, nil, http.MethodGet, "/v1/executions", "")
	greedy.want(http.StatusNoContent, nil, http.MethodPost, worker+"/claim", `{"number": 1, "slots": 1, "wait_ms": 1}`)
	for range 2 * most {
		other.want(http.StatusOK, nil, http.MethodGet, path+"/explain", "")
	}
	other.want(http.StatusOK, nil, http.MethodGet, path, "", "Prefer", "wait=0")
	cancel()
	for began := time.Now(); greedy.do(http.MethodGet, path, "").StatusCode != http.StatusOK; {
		if time.Since(began) > 20*time.Second {
			t.Fatal("streams that have ended still count")
		}
	}
}

// A body for which there is not enough memory is refused with 503, and the refusal is not logged as
// an outage of the store.
func TestABoundIsNoOutage(t *testing.T) {
	s := serve(t, httpapi.Options{Bodies: 100 << 10})
	body := `{"workflow": "w", "input": "` + strings.Repeat("x", 200<<10) + `"}`
	s.refused(http.StatusServiceUnavailable, belay.CodeUnavailable, http.MethodPost, "/v1/executions", body)
	if text := s.log.text.String(); strings.Contains(text, "the store is unavailable") {
		t.Errorf("it is logged as an outage:\n%s", text)
	}
}
