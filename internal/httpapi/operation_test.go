package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// An Idempotency-Key names one operation with one body. A repeat of the operation is answered like
// the first request, with a header that says so; any other request under the key is refused.
func TestAKeyStandsForOneOperation(t *testing.T) {
	const mismatch = http.StatusUnprocessableEntity
	s := serve(t, httpapi.Options{})
	type write struct{ method, path, body string }
	check := func(first write, others []write, h ...string) {
		t.Helper()
		key := append([]string{"Idempotency-Key", "k " + first.path}, h...)
		if a := s.do(first.method, first.path, first.body, key...); a.StatusCode > 299 ||
			a.Header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%+v: %d, replayed %q", first, a.StatusCode, a.Header.Get("Idempotency-Replayed"))
		}
		for _, again := range []string{first.body, strings.ReplaceAll(first.body, `": `, `" : `)} {
			if a := s.do(first.method, first.path, again, key...); a.StatusCode > 299 ||
				a.Header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("%+v again: %d, replayed %q: %s", first, a.StatusCode, a.Header.Get("Idempotency-Replayed"),
					a.body)
			}
		}
		for _, w := range others {
			s.refused(mismatch, belay.CodeIdempotencyMismatch, w.method, w.path, w.body, key...)
		}
	}
	path := s.submit(`{"workflow": "w"}`)
	check(write{"POST", path + "/pause", `{}`}, []write{
		{"POST", path + "/cancel", `{}`}, {"POST", path + "/pause", `{"reason": "another"}`}, {"POST", path + "/signal",
			`{"name": "s"}`},
	})
	check(write{"POST", path + "/signal", `{"name": "s", "payload": {"n": 1}}`}, []write{
		{"POST", path + "/signal", `{"name": "s", "payload": {"n": 2}}`}, {"POST", path + "/signal",
			`{"name": "t", "payload": {"n": 1}}`},
		{"POST", path + "/resume", ``},
	})
	check(write{"POST", path + "/fork", `{}`}, []write{
		{"POST", path + "/fork", `{"up_to": 1}`}, {"POST", path + "/fork", `{"at": "a step"}`},
		{"POST", path + "/cancel", ``},
	})
	var x belay.Execution
	s.want(http.StatusOK, &x, http.MethodGet, path, "")
	if x.State != belay.Paused {
		t.Errorf("it is %s, want paused", x.State)
	}

	l := s.locked("")
	check(write{"PUT", l.path + "/checkpoint", `{"data": {"n": 1}}`}, []write{
		{"PUT", l.path + "/checkpoint", `{"data": {"n": 2}}`}, {"PUT", l.path + "/checkpoint",
			`{"data": {"n": 1}, "cost_tokens": 7}`},
		{"PUT", l.path + "/checkpoint", `{"data": {"n": 1}, "cost_tokens": 0.0001}`},
		{"POST", l.lock + "/release", `{"outcome": "complete"}`}, {"POST", l.path + "/pause", `{}`},
	}, l.lease...)
	check(write{"POST", l.lock + "/release", `{"outcome": "complete", "output": {"n": 1}}`}, []write{
		{"POST", l.lock + "/release", `{"outcome": "complete", "output": {"n": 2}}`}, {"POST", l.lock + "/release",
			`{"outcome": "complete"}`},
		{"POST", l.path + "/signal", `{"name": "s"}`},
	})

	check(write{"POST", "/v1/workers", `{"name": "a", "workflows": [{"workflow": "w"}], "capacity": 1}`}, []write{
		{"POST", "/v1/workers", `{"name": "b", "workflows": [{"workflow": "w"}], "capacity": 1}`},
		{"POST", "/v1/workers", `{"name": "a", "workflows": [{"workflow": "w"}], "capacity": 2}`},
	})
	locked := s.submit(`{"workflow": "w", "dispatch": "external"}`)
	check(write{"POST", locked + "/lock", `{"owner": "a", "ttl": "1m"}`}, []write{
		{"POST", locked + "/lock", `{"owner": "b", "ttl": "1m"}`}, {"POST", locked + "/lock",
			`{"owner": "a", "ttl": "2m"}`},
	})
}

// A body without a required field is refused and changes nothing. Otherwise a heartbeat without the
// field holds, the list of the worker's runs, would release all executions of its worker.
func TestAnIncompleteBodyIsRefused(t *testing.T) {
	s := serve(t, httpapi.Options{})
	session := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "w"}], "capacity": 1}`).Header.Get("Location")
	s.submit(`{"workflow": "w"}`)
	won := s.want(http.StatusOK, nil, http.MethodPost, session+"/claim", `{"number": 1, "slots": 1, "wait_ms": 10000}`)
	run, lease := won.Header.Get("Location"), []string{"Lease-Id", won.Header.Get("Lease-Id")}
	for _, body := range []string{
		`{}`, ` { } `, `{"holds": []}`, `{"holds": [{"token": 1}], "claim_seen": 1}`,
		`{"holds": [{"execution": "ex_01m7w13wbkep9rfsn7shzr3mtm"}], "claim_seen": 1}`,
		`{"holds": [{}], "claim_seen": 1}`,
	} {
		s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, session+"/heartbeat", body)
	}
	for _, body := range []string{`{}`, `{"number": 2}`, `{"slots": 1}`} {
		s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, session+"/claim", body)
	}
	s.want(http.StatusOK, nil, http.MethodPost, run+"/complete", `{}`, lease...)
}

// A write whose token is not the token of its run is refused like a write with a lost lease.
func TestAWriteUnderAnotherTokenIsRefused(t *testing.T) {
	s := serve(t, httpapi.Options{})
	session := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "w"}], "capacity": 1}`).Header.Get("Location")
	s.submit(`{"workflow": "w"}`)
	won := s.want(http.StatusOK, nil, http.MethodPost, session+"/claim", `{"number": 1, "slots": 1, "wait_ms": 10000}`)
	run := won.Header.Get("Location")
	for _, what := range []string{"/heartbeat", "/checkpoint", "/complete", "/suspend"} {
		body := `{}`
		if what == "/heartbeat" {
			body = ""
		}
		p := s.refused(http.StatusPreconditionFailed, belay.CodeLeaseLost, http.MethodPost, run+what, body, "Lease-Id",
			won.Header.Get("Lease-Id"), "Lease-Token", "7")
		if p.Cause != belay.CauseReassigned {
			t.Errorf("%s: the cause is %q", what, p.Cause)
		}
	}
}

// Half of a surrogate pair is no character, and is refused: some readers of JSON would reject it.
func TestHalfASurrogatePairIsRefused(t *testing.T) {
	s := serve(t, httpapi.Options{})
	for _, text := range []string{`\ud800`, `\uDFFF`, `x\uD83dx`, `\ud83d\ud83d`, `\ude00\ud83d`, `\ud83d\\ude00`,
		`\ud83d\n`, `\ud83d\u0041`} {
		s.refused(http.StatusBadRequest, belay.CodeMalformed, http.MethodPost, "/v1/executions",
			`{"workflow": "w", "input": "`+text+`"}`)
		s.refused(http.StatusBadRequest, belay.CodeMalformed, http.MethodPost, "/v1/executions",
			`{"workflow": "w", "input": {"`+text+`": 1}}`)
		s.refused(http.StatusBadRequest, belay.CodeMalformed, http.MethodPost, "/v1/batch",
			`{"ops": [{"submit": {"workflow": "w", "input": "`+text+`"}}]}`)
	}
	for _, text := range []string{`\ud83d\ude00`, `\uD83D\uDE00`, `\\ud800`, `\ud7ff\ue000`} {
		s.want(http.StatusCreated, nil, http.MethodPost, "/v1/executions", `{"workflow": "w", "input": "`+text+`"}`)
	}
}

// The ttl of a session and of a lock has a limit.
func TestATTLHasALimit(t *testing.T) {
	s := serve(t, httpapi.Options{})
	path := s.submit(`{"workflow": "w", "dispatch": "external"}`)
	for _, ttl := range []string{"2562047h47m16s", "8761h"} {
		s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, "/v1/workers",
			`{"name": "a", "workflows": [], "capacity": 1, "ttl": "`+ttl+`"}`)
		s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, path+"/lock",
			`{"owner": "a", "ttl": "`+ttl+`"}`)
	}
}
