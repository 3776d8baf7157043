package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/config"
)

// hired opens the session of a worker that names this address for health probes.
func (r *running) hired(c *http.Client, health string, header ...string) belay.Session {
	r.t.Helper()
	body := fmt.Sprintf(`{"name":"far","workflows":[{"workflow":"w"}],"capacity":1,"ttl":"1m","health":%q}`, health)
	status, text := r.do(c, http.MethodPost, "/v1/workers", body, header...)
	var s belay.Session
	if err := json.Unmarshal([]byte(text), &s); err != nil || status != http.StatusCreated {
		r.t.Fatalf("%d %s: %v", status, text, err)
	}
	return s
}

// claims makes a claim and returns its status.
func (r *running) claims(c *http.Client, s belay.Session, number int, wait time.Duration) int {
	r.t.Helper()
	status, _ := r.do(c, http.MethodPost, "/v1/workers/"+s.ID.String()+"/claim",
		fmt.Sprintf(`{"number":%d,"slots":1,"wait_ms":%d}`, number, wait.Milliseconds()))
	return status
}

// becomes waits until the session has this state.
func (r *running) becomes(s belay.Session, state belay.WorkerState) belay.Worker {
	r.t.Helper()
	for end := time.Now().Add(soon); time.Now().Before(end); {
		all, err := r.engine.Living(r.t.Context(), []belay.WorkerID{s.ID})
		if err != nil || len(all) != 1 {
			r.t.Fatal(all, err)
		}
		if all[0].State == state {
			return all[0]
		}
	}
	r.t.Fatalf("the worker does not become %s\n%s", state, r.log)
	return belay.Worker{}
}

// Rule: the server probes a worker that names an address. While the probes fail, the worker gets no
// executions. The state unhealthy ends with the session: the server probes a new session anew.
func TestTheServerProbesWorkers(t *testing.T) {
	var ill atomic.Bool
	ill.Store(true)
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ill.Load() {
			w.Header().Set("Belay-Health", "no disk")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer health.Close()
	port := health.URL[strings.LastIndexByte(health.URL, ':'):]
	r := start(t, setup{cfg: func(c *config.Config) { c.HealthInterval = time.Second }})
	c := http1(t)
	worker := r.hired(c, port)
	if worker.Warning != "" {
		t.Errorf("the server warns: %s", worker.Warning)
	}
	if w := r.becomes(worker, belay.WorkerUnhealthy); w.UnhealthySince.IsZero() ||
		w.HealthError != "it answered with the status 503: no disk" {
		t.Errorf("unhealthy since %s: %q", w.UnhealthySince, w.HealthError)
	}
	r.submit(c)
	if status := r.claims(c, worker, 1, 0); status != http.StatusNoContent {
		t.Errorf("unhealthy, the worker claims: %d", status)
	}
	if status, text := r.do(c, http.MethodGet, "/metrics", ""); status != http.StatusOK ||
		!strings.Contains(text, `belay_workers{state="unhealthy"} 1`) {
		t.Errorf("the metrics do not count it: %d", status)
	}
	if status, _ := r.do(c, http.MethodDelete, "/v1/workers/"+worker.ID.String(), ""); status != http.StatusNoContent {
		t.Errorf("close: %d", status)
	}
	worker = r.hired(c, port)
	r.becomes(worker, belay.WorkerUnhealthy)
	ill.Store(false)
	if status := r.claims(c, worker, 1, soon/2); status != http.StatusOK {
		t.Errorf("healthy again, the worker claims: %d", status)
	}
	for _, says := range []string{"a worker is unhealthy and gets no new work", "a worker is healthy again"} {
		r.writes(says)
	}
}

// writes waits until the log says this. (The prober writes its line after the change, which others see before.)
func (r *running) writes(says string) {
	r.t.Helper()
	for end := time.Now().Add(soon); !strings.Contains(r.log.String(), says); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("the log does not say %q\n%s", says, r.log)
		}
	}
}

// Rule: a server does not send probes to an address only because a worker names it. The worker
// learns the reason, and gets work like a worker without an address.
func TestAnAddressElsewhereIsNotProbed(t *testing.T) {
	r := start(t, setup{cfg: func(c *config.Config) { c.HealthInterval = time.Second }})
	c := http1(t)
	for _, x := range []struct {
		health, says string
		header       []string
	}{
		{"10.1.2.3:9090", "does not contain 10.1.2.3", nil},
		{"169.254.169.254:8080", "not the address of one machine", nil},
		{"metadata.google.internal:8080", "not IP:PORT", nil},
		{":22", "port 22 is below 1024", nil},
		{":9090", "connects through a proxy", []string{"X-Forwarded-For", "10.1.2.3"}},
		{"10.1.2.3:9090", "connects through a proxy", []string{"X-Forwarded-For", "10.1.2.3"}},
		{"127.0.0.1:9090", "connects through a proxy", []string{"Via", "1.1 proxy"}},
	} {
		s := r.hired(c, x.health, x.header...)
		if !strings.Contains(s.Warning, x.says) {
			t.Errorf("%s with %v: the server warns %q, want %q", x.health, x.header, s.Warning, x.says)
		}
		r.submit(c)
		if status := r.claims(c, s, 1, soon/2); status != http.StatusOK {
			t.Errorf("%s: the claim is answered with %d", x.health, status)
		}
	}
}
