package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

// Every text without control characters can be the name of a gate.
func TestGatesHaveAnyName(t *testing.T) {
	s := serve(t, httpapi.Options{})
	for i, name := range []string{
		"a/b", "../../etc/passwd", "..", ".", "a:b:c", "%2f", "a b", "?x=1", "#", "öä€", "\u202e\u200b",
		"'; DROP TABLE x", "*", strings.Repeat("n", belay.MaxName),
	} {
		id := belay.Gate(belay.GateQueue, name)
		path := "/v1/gates/" + url.PathEscape(string(id))
		var g belay.GateDetail
		s.want(http.StatusOK, &g, http.MethodPost, path+"/pause", `{"reason": "why", "actor": "ann"}`)
		if g.ID != id || g.Name != name || g.Open || g.Pause == nil || g.Pause.By != "ann" || g.Pause.Reason != "why" {
			t.Errorf("%q: %+v", name, g)
		}
		var page belay.GatePage
		s.want(http.StatusOK, &page, http.MethodGet, "/v1/gates?kind=queue", "")
		same := func(in belay.GateInfo) bool { return in.ID == id }
		if len(page.Gates) != i+1 || !slices.ContainsFunc(page.Gates, same) {
			t.Errorf("%q: the list has %+v", name, page.Gates)
		}
		g = belay.GateDetail{}
		s.want(http.StatusOK, &g, http.MethodPost, path+"/resume", "")
		if !g.Open || g.Pause != nil {
			t.Errorf("%q: %+v", name, g)
		}
	}
}

// The actor of a change is the name of the request's API key, whatever actor the body names.
func TestChangesOfGatesHaveTheKeysActor(t *testing.T) {
	s := serve(t, httpapi.Options{})
	ann := s.withKey("ann", belay.ScopeOperate, belay.ScopeRead)
	var g belay.GateDetail
	ann.want(http.StatusOK, &g, http.MethodPost, "/v1/queues/q/pause", `{"actor": "root"}`)
	if g.Pause.By != "ann" || g.UpdatedBy != "ann" {
		t.Errorf("paused by %q, changed by %q", g.Pause.By, g.UpdatedBy)
	}
	ann.want(http.StatusOK, nil, http.MethodPut, "/v1/gates/queue:q/limit", `{"max": 5}`)
	g = belay.GateDetail{}
	ann.want(http.StatusOK, &g, http.MethodDelete, "/v1/gates/queue:q/limit?actor=root", "")
	if g.UpdatedBy != "ann" || g.Limit != nil {
		t.Errorf("changed by %q: %+v", g.UpdatedBy, g)
	}
}

// A change with an idempotency key is carried out once. Its repetition does not undo the change of
// another operator, and the key cannot name another change.
func TestChangesOfGatesAreIdempotent(t *testing.T) {
	s := serve(t, httpapi.Options{})
	key := []string{"Idempotency-Key", "incident-17"}
	pause := func() string {
		a := s.want(http.StatusOK, nil, http.MethodPost, "/v1/queues/q/pause", `{"reason": "why"}`, key...)
		return a.Header.Get("Idempotency-Replayed")
	}
	if r := pause(); r != "" {
		t.Errorf("the first one was replayed: %q", r)
	}
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/queues/q/resume", "")
	if r := pause(); r != "true" {
		t.Errorf("the repetition was not replayed: %q", r)
	}
	var g belay.GateDetail
	s.want(http.StatusOK, &g, http.MethodGet, "/v1/gates/queue:q", "")
	if g.Pause != nil {
		t.Errorf("the repetition paused again: %+v", g.Pause)
	}
	s.refused(http.StatusUnprocessableEntity, belay.CodeIdempotencyMismatch, http.MethodPut, "/v1/gates/queue:q/limit",
		`{"max": 1}`, key...)
}

// If an operator sets a limit below the number of executions that have a place, these executions
// keep their places, and no further execution gets a place.
func TestALimitMayBeLowerThanItsHolders(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const all = 3
	for range all + 1 {
		s.submit(fmt.Sprintf(`{"workflow": "w", "concurrency": {"name": "x", "max": %d}}`, all))
	}
	session := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "w"}], "capacity": 10}`).Header.Get("Location")
	s.want(http.StatusOK, nil, http.MethodPost, session+"/claim", `{"number": 1, "slots": 10, "wait_ms": 10000}`)
	var g belay.GateDetail
	s.want(http.StatusOK, &g, http.MethodPut, "/v1/gates/limit:x/limit", `{"max": 1}`)
	if g.Open || g.Held != all || len(g.Holders) != all || g.Waiting != 1 || len(g.Line) != 1 || g.Limit.Max != 1 ||
		g.Limit.Named != all {
		t.Errorf("%+v", g)
	}
}

// The circuit breaker of a target is shown with its counts and times, and an operator can set its
// state.
func TestCircuitBreakersAreShown(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const path = "/v1/gates/target:payments:charge"
	s.want(http.StatusOK, nil, http.MethodPut, path+"/breaker", `{"state": "open"}`)
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/gates/target:mail/pause", `{"reason": "spam"}`)
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/queues/q/pause", "")
	var list wire.CircuitBreakers
	s.want(http.StatusOK, &list, http.MethodGet, "/v1/circuit-breakers", "")
	if len(list.CircuitBreakers) != 2 || list.CircuitBreakers[0].Target != "mail" ||
		list.CircuitBreakers[0].State != "closed" || list.CircuitBreakers[0].Paused == nil {
		t.Errorf("%+v", list)
	}
	var one wire.CircuitBreaker
	s.want(http.StatusOK, &one, http.MethodGet, "/v1/circuit-breakers/payments:charge", "")
	if one.Target != "payments:charge" || one.State != "open" || !one.Forced || one.OpenedAt.IsZero() {
		t.Errorf("%+v", one)
	}
	s.want(http.StatusOK, nil, http.MethodPut, path+"/breaker", `{"state": "automatic"}`)
	one = wire.CircuitBreaker{}
	s.want(http.StatusOK, &one, http.MethodGet, "/v1/circuit-breakers/payments:charge", "")
	if one.State != "closed" || one.Forced {
		t.Errorf("%+v", one)
	}
	one = wire.CircuitBreaker{}
	s.want(http.StatusOK, &one, http.MethodGet, "/v1/circuit-breakers/never", "")
	if one.State != "closed" || one.Target != "never" {
		t.Errorf("%+v", one)
	}
}

// A list of three thousand gates (ten thousand in make test-long) has pages of bounded size, each gate
// is on exactly one page, and a list of one kind has no gates of another kind.
func TestManyGatesHavePages(t *testing.T) {
	s := serve(t, httpapi.Options{})
	all, rounds := 3000, 30
	if os.Getenv("BELAY_TEST_LONG") != "" {
		all, rounds = 10_000, 100
	}
	for round := range rounds {
		var group sync.WaitGroup
		for n := range all / rounds {
			group.Go(func() {
				_, err := s.b.ChangeGate(t.Context(), belay.GateChange{
					Gate: belay.Gate(belay.GateQueue, fmt.Sprintf("q%d", round*all/rounds+n)), Action: belay.GatePause,
					Reason: strings.Repeat("r", belay.MaxName), Actor: strings.Repeat("a", belay.MaxName),
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/workflows/w/pause", "")
	seen := make(map[belay.GateID]bool)
	for cursor, pages := "", 0; ; pages++ {
		var page belay.GatePage
		a := s.want(http.StatusOK, &page, http.MethodGet,
			"/v1/gates?kind=queue&limit=1000&cursor="+url.QueryEscape(cursor), "")
		if len(a.body) > 2<<20 || len(page.Gates) > 1000 || pages > all/1000 {
			t.Fatalf("page %d has %d gates and %d bytes", pages, len(page.Gates), len(a.body))
		}
		for _, g := range page.Gates {
			if g.Kind != belay.GateQueue || seen[g.ID] {
				t.Fatalf("%s is here, or is here twice", g.ID)
			}
			seen[g.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != all {
		t.Errorf("%d gates of %d", len(seen), all)
	}
}

// A submission can name gates, whether it is sent alone or in a batch. The server answers with a
// conflict if the submission gives a limit of the same name another maximum, or if the limit is
// full and its when_full is reject.
func TestSubmissionsNameGates(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const gates = `"concurrency": {"name": "x", "max": 1, "when_full": "reject"},
		"rate": {"name": "y", "max": 1, "per": "1s"}, "target": "z"`
	s.submit(`{"workflow": "w", `+gates+`}`, "Idempotency-Key", "k")
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/executions", `{"workflow": "w", `+gates+`}`, "Idempotency-Key", "k")
	s.refused(http.StatusUnprocessableEntity, belay.CodeIdempotencyMismatch, http.MethodPost, "/v1/executions",
		`{"workflow": "w"}`, "Idempotency-Key", "k")
	s.refused(http.StatusConflict, belay.CodeConflict, http.MethodPost, "/v1/executions", `{"workflow": "w", `+gates+`}`)
	s.refused(http.StatusConflict, belay.CodeConflict, http.MethodPost, "/v1/executions",
		`{"workflow": "w", "concurrency": {"name": "x", "max": 2}}`)
	var reply struct {
		Results []struct{ Error *problem }
	}
	s.want(http.StatusOK, &reply, http.MethodPost, "/v1/batch", `{"ops": [{"submit": {"workflow": "w", `+gates+`}},
		{"submit": {"workflow": "w", "rate": {"name": "y", "max": 1, "per": "1s"}}}]}`)
	if e := reply.Results[0].Error; e == nil || e.Code != belay.CodeConflict || reply.Results[1].Error != nil {
		t.Errorf("%+v", reply.Results)
	}
	var page belay.GatePage
	s.want(http.StatusOK, &page, http.MethodGet, "/v1/gates", "")
	var ids []belay.GateID
	for _, g := range page.Gates {
		ids = append(ids, g.ID)
	}
	if fmt.Sprint(ids) != "[limit:x rate:y]" { // the gate of a target is made when the first call fails
		t.Errorf("gates %q", ids)
	}
}
