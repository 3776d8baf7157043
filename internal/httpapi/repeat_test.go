package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// If a submission has the Idempotency-Key of an earlier submission and the same body, the answer is
// the execution of the earlier submission, with a header that says so. If the body differs, the
// submission is refused.
func TestSubmitIsRepeated(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const body = `{"workflow": "w", "input": {"n": 1}}`
	var first, again belay.Execution
	a := s.want(http.StatusCreated, &first, http.MethodPost, "/v1/executions", body, "Idempotency-Key", "k")
	b := s.want(http.StatusOK, &again, http.MethodPost, "/v1/executions", body, "Idempotency-Key", "k")
	if first.ID != again.ID || a.Header.Get("Location") != b.Header.Get("Location") {
		t.Errorf("%s was submitted again as %s", first.ID, again.ID)
	}
	if a.Header.Get("Idempotency-Replayed") != "" || b.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("Idempotency-Replayed is %q and then %q", a.Header.Get("Idempotency-Replayed"),
			b.Header.Get("Idempotency-Replayed"))
	}
	s.refused(http.StatusUnprocessableEntity, belay.CodeIdempotencyMismatch, http.MethodPost, "/v1/executions",
		`{"workflow": "w", "input": {"n": 2}}`, "Idempotency-Key", "k")
}

// The header Idempotency-Key and the field idempotency_key mean the same. A request with two
// different values is refused.
func TestKeyInHeaderAndBody(t *testing.T) {
	s := serve(t, httpapi.Options{})
	var first, again belay.Execution
	s.want(http.StatusCreated, &first, http.MethodPost, "/v1/executions", `{"workflow": "w", "idempotency_key": "k"}`)
	s.want(http.StatusOK, &again, http.MethodPost, "/v1/executions", `{"workflow": "w"}`, "Idempotency-Key", "k")
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/executions", `{"workflow": "w", "idempotency_key": "k"}`,
		"Idempotency-Key", "k")
	if first.ID != again.ID {
		t.Errorf("%s was submitted again as %s", first.ID, again.ID)
	}
	s.refused(http.StatusBadRequest, belay.CodeMalformed, http.MethodPost, "/v1/executions",
		`{"workflow": "w", "idempotency_key": "k"}`, "Idempotency-Key", "l")
}

// locked is an external execution that a client, which is no worker, has locked and so owns.
type locked struct {
	*server
	path, lock string
	lease      []string
}

func (s *server) locked(policy string) *locked {
	s.t.Helper()
	path := s.submit(`{"workflow": "talk", "dispatch": "external"` + policy + `}`)
	a := s.want(http.StatusCreated, nil, http.MethodPost, path+"/lock", `{"owner": "me", "ttl": "1m"}`)
	return &locked{s, path, a.Header.Get("Location"), []string{
		"Lease-Id", a.Header.Get("Lease-Id"), "Lease-Token", a.Header.Get("Lease-Token"),
	}}
}

func (l *locked) events() []belay.Event {
	l.t.Helper()
	var h struct{ Events []belay.Event }
	l.want(http.StatusOK, &h, http.MethodGet, l.path+"/history?data=true", "")
	return h.Events
}

// If an owner repeats a write with the same Idempotency-Key, the store has the write once, and the
// repeat gets the answer of the first request. Without a key, every request for a checkpoint writes
// a checkpoint; a second request to end a run with the same body counts as a repeat.
func TestOwnersWritesAreRepeated(t *testing.T) {
	l := serve(t, httpapi.Options{}).locked("")
	save := func(data, key string) (seq int64) {
		t.Helper()
		var saved struct{ Seq int64 }
		h := l.lease
		if key != "" {
			h = append([]string{"Idempotency-Key", key}, h...)
		}
		l.want(http.StatusOK, &saved, http.MethodPut, l.path+"/checkpoint", `{"data": `+data+`}`, h...)
		return saved.Seq
	}
	if a, b := save("1", "op"), save("1", "op"); a != b {
		t.Errorf("one checkpoint was written as %d and %d", a, b)
	}
	if a, b, c := save("2", ""), save("3", ""), save("2", ""); a == b || b == c || a == c {
		t.Errorf("three checkpoints were written as %d, %d, %d", a, b, c)
	}
	const body = `{"outcome": "complete", "output": 2}`
	l.want(http.StatusOK, nil, http.MethodPost, l.lock+"/release", body, l.lease[2:]...)
	l.want(http.StatusOK, nil, http.MethodPost, l.lock+"/release", body, l.lease[2:]...)
	l.want(http.StatusOK, nil, http.MethodPost, l.lock+"/release", body)
	p := l.refused(http.StatusPreconditionFailed, belay.CodeLeaseLost, http.MethodPost, l.lock+"/release",
		`{"outcome": "complete", "output": 3}`, l.lease[2:]...)
	if p.Cause != belay.CauseFinished {
		t.Errorf("the cause is %q, want finished", p.Cause)
	}
	if n := len(l.events()); n != 7 { // submitted, started, four states, succeeded
		t.Errorf("%d events, want 7", n)
	}
}

// An action and a signal that are repeated with their Idempotency-Key are carried out once.
func TestActionsAreRepeated(t *testing.T) {
	s := serve(t, httpapi.Options{})
	path := s.submit(`{"workflow": "w"}`)
	for range 2 {
		s.want(http.StatusAccepted, nil, http.MethodPost, path+"/signal", `{"name": "go"}`, "Idempotency-Key", "s")
		s.want(http.StatusOK, nil, http.MethodPost, path+"/pause", `{}`, "Idempotency-Key", "p")
	}
	s.want(http.StatusOK, nil, http.MethodPost, path+"/resume", `{}`)
	s.want(http.StatusOK, nil, http.MethodPost, path+"/pause", `{}`, "Idempotency-Key", "p")
	var x belay.Execution
	s.want(http.StatusOK, &x, http.MethodGet, path, "")
	if x.Seq != 4 || x.State != belay.Pending {
		t.Errorf("seq %d, state %s; want 4, pending: submitted, signal, pause, resume", x.Seq, x.State)
	}
	var fork, same belay.Execution
	s.want(http.StatusCreated, &fork, http.MethodPost, path+"/fork", ``, "Idempotency-Key", "f")
	s.want(http.StatusCreated, &same, http.MethodPost, path+"/fork", ``, "Idempotency-Key", "f")
	if fork.ID != same.ID {
		t.Errorf("one fork became %s and %s", fork.ID, same.ID)
	}
}

// An owner that is not a worker locks an execution. While the owner has the lock, another client's
// request for the lock is refused, and the refusal names the owner. A write without the lock is
// refused. After an operator has stolen the lock, every write of the old owner is refused, and the
// next owner continues from the checkpoint.
func TestOutsideOwner(t *testing.T) {
	l := serve(t, httpapi.Options{}).locked(`, "on_lost": "requeue"`)
	l.want(http.StatusOK, nil, http.MethodPut, l.path+"/checkpoint", `{"data": {"turn": 1}}`, l.lease...)
	p := l.refused(http.StatusConflict, belay.CodeLeaseHeld, http.MethodPost, l.path+"/lock", `{"owner": "other"}`)
	if p.Holder == nil || p.Holder.Owner != "me" || p.Holder.Token != 1 || p.Holder.ExpiresInMS <= 0 {
		t.Errorf("the holder is %+v", p.Holder)
	}
	l.refused(http.StatusPreconditionRequired, belay.CodeTokenRequired, http.MethodPut, l.path+"/checkpoint",
		`{"data": 1}`)
	l.refused(http.StatusPreconditionRequired, belay.CodeTokenRequired, http.MethodPut, l.path+"/checkpoint",
		`{"data": 1}`, l.lease[:2]...)
	var renewed struct {
		ExpiresInMS int64 `json:"expires_in_ms"`
		Cancel      bool
	}
	l.want(http.StatusOK, &renewed, http.MethodPut, l.lock, "")
	if renewed.ExpiresInMS != 60_000 || renewed.Cancel {
		t.Errorf("renewed: %+v", renewed)
	}
	l.want(http.StatusOK, nil, http.MethodPost, l.path+"/lock/steal", `{"reason": "it hangs"}`)
	for _, write := range []func() problem{
		func() problem { return l.refused(412, belay.CodeLeaseLost, http.MethodPut, l.lock, "") },
		func() problem {
			return l.refused(412, belay.CodeLeaseLost, http.MethodPut, l.path+"/checkpoint", `{"data": 1}`, l.lease...)
		},
		func() problem {
			return l.refused(412, belay.CodeLeaseLost, http.MethodPost, l.lock+"/release", `{"outcome": "complete"}`)
		},
	} {
		if p := write(); p.Cause != belay.CauseExpired && p.Cause != belay.CauseReassigned {
			t.Errorf("the cause is %q", p.Cause)
		}
	}
	var next struct {
		Lease      struct{ Token belay.Token }
		Execution  belay.Execution
		Checkpoint struct{ Data json.RawMessage }
	}
	l.want(http.StatusCreated, &next, http.MethodPost, l.path+"/lock", `{"owner": "other"}`)
	if data := strings.ReplaceAll(string(next.Checkpoint.Data), " ", ""); next.Lease.Token <= 1 ||
		data != `{"turn":1}` {
		t.Errorf("the next owner got token %d and %s", next.Lease.Token, next.Checkpoint.Data)
	}
	var token struct {
		Token belay.Token
		State belay.State
	}
	l.want(http.StatusOK, &token, http.MethodGet, l.path+"/token", "")
	if token.Token != next.Lease.Token || token.State != belay.Running {
		t.Errorf("third parties read the token %+v", token)
	}
}

// A submission is a repeat even if its input is written in another way, such as with another order
// of fields. Another submission with the same key is refused.
func TestInputsAreComparedByValue(t *testing.T) {
	s := serve(t, httpapi.Options{})
	key := []string{"Idempotency-Key", "k"}
	s.want(http.StatusCreated, nil, "POST", "/v1/executions", `{"workflow": "w", "input": {"b": [1, 2.0], "a": "x"}}`, key...)
	for body, status := range map[string]int{
		`{"input": {"a": "\u0078", "b": [1e0, 2]}, "workflow": "w"}`:         http.StatusOK,
		`{"input": {"a": "x", "b": [2, 1]}, "workflow": "w"}`:                http.StatusUnprocessableEntity,
		`{"input": {"a": "x", "b": [1, 2], "c": 0}, "workflow": "w"}`:        http.StatusUnprocessableEntity,
		`{"input": {"a": "x", "b": [1, 2]}, "workflow": "w", "priority": 1}`: http.StatusUnprocessableEntity,
	} {
		s.want(status, nil, "POST", "/v1/executions", body, key...)
	}
}
