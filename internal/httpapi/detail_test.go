package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// With a key, created_by is the name of the key, by every route that creates an execution and whatever actor
// the request names. Without keys it is the actor that the request names.
func TestCreatedByIsNotForged(t *testing.T) {
	s := serve(t, httpapi.Options{})
	x := s.execution(s.submit(`{"workflow": "w", "actor": "ann"}`))
	if x.CreatedBy != "ann" {
		t.Errorf("without keys: created by %q", x.CreatedBy)
	}
	ci := s.withKey("ci", belay.ScopeRead, belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeWorker)
	byCI := func(how, path string) {
		t.Helper()
		if x := ci.execution(path); x.CreatedBy != "ci" {
			t.Errorf("%s: created by %q", how, x.CreatedBy)
		}
		var h struct{ Events []belay.Event }
		ci.want(http.StatusOK, &h, http.MethodGet, path+"/history", "")
		if ev := h.Events[0]; ev.Kind != "submitted" || ev.Actor != "ci" {
			t.Errorf("%s: the first event is %+v", how, ev)
		}
	}
	first := ci.submit(`{"workflow": "w", "actor": "root", "idempotency_key": "k"}`)
	byCI("a submission", first)
	var out struct {
		Results []struct{ Submitted belay.Submitted }
	}
	ci.want(http.StatusOK, &out, http.MethodPost, "/v1/batch",
		`{"ops": [{"submit": {"workflow": "w", "actor": "root"}}, {"submit": {"workflow": "w"}}]}`)
	for _, r := range out.Results {
		byCI("a batch", "/v1/executions/"+r.Submitted.ID.String())
	}
	byCI("a fork", ci.want(http.StatusCreated, nil, http.MethodPost, first+"/fork", `{"actor": "root"}`).
		Header.Get("Location"))
	var bulk belay.BulkReply
	ci.want(http.StatusOK, &bulk, http.MethodPost, "/v1/bulk",
		`{"action": "cancel", "filter": {"workflow": "none"}, "actor": "root"}`)
	byCI("a bulk", "/v1/executions/"+bulk.Execution.ID.String())

	// A second submission by another key joins the first execution, whose created_by stays.
	other := s.withKey("other", belay.ScopeRead, belay.ScopeSubmit)
	other.want(http.StatusOK, nil, http.MethodPost, "/v1/executions",
		`{"workflow": "w", "actor": "ci", "idempotency_key": "k", "trigger_payload": 1}`)
	byCI("joined by another key", first)
	for _, wrong := range []string{`7`, `["root"]`, `{"name": "root"}`, `"a\u0000"`, `"` + strings.Repeat("x", 201) + `"`} {
		for _, who := range []*server{s, ci} {
			if a := who.do(http.MethodPost, "/v1/executions", `{"workflow": "w", "actor": `+wrong+`}`); a.StatusCode < 400 ||
				a.StatusCode > 499 {
				t.Errorf("the actor %.20s: %d", wrong, a.StatusCode)
			}
		}
	}
}

// A job and a chat of agents have the name of the key with which they were requested.
func TestAJobNamesTheKeyOfItsRequest(t *testing.T) {
	s := serveAgents(t, 4).withKey("bot", belay.ScopeRead, belay.ScopeSubmit)
	s.want(http.StatusAccepted, nil, http.MethodPost, "/execute", `{"prompt": "a"}`)
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/chat/completions",
		`{"model": "belay", "messages": [{"role": "user", "content": "b"}]}`)
	var page belay.Page
	s.want(http.StatusOK, &page, http.MethodGet, "/v1/executions", "")
	if len(page.Executions) != 2 {
		t.Errorf("%d executions", len(page.Executions))
	}
	for _, x := range page.Executions {
		if x.CreatedBy != "bot" {
			t.Errorf("created by %q: %+v", x.CreatedBy, x)
		}
	}
}

// execution reads an execution.
func (s *server) execution(path string) (x belay.ExecutionDetail) {
	s.t.Helper()
	s.want(http.StatusOK, &x, http.MethodGet, path, "")
	return x
}

// The trigger payload is returned by GET of its execution, with the scope read, and by no other route.
func TestTheTriggerPayloadIsReadOfOneExecution(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const secret = "s3cret-of-the-hook"
	body := `{"workflow": "w", "idempotency_key": "k", "trigger_payload": {"a": ["` + secret + `"]}}`
	submit := s.withKey("hooks", belay.ScopeSubmit)
	a := submit.want(http.StatusCreated, nil, http.MethodPost, "/v1/executions", body)
	again := submit.want(http.StatusOK, nil, http.MethodPost, "/v1/executions", body)
	path := a.Header.Get("Location")
	submit.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodGet, path, "")
	ops := s.withKey("ops", belay.ScopeRead, belay.ScopeOperate, belay.ScopeWorker)
	answers := map[string]*answer{"the submission": a, "its repetition": again}
	for _, get := range []string{
		"/v1/executions", "/v1/executions?key=k", path + "/history?data=true", path + "/explain",
	} {
		answers[get] = ops.want(http.StatusOK, nil, http.MethodGet, get, "")
	}
	answers["an action"] = ops.want(http.StatusOK, nil, http.MethodPost, path+"/pause", `{}`)
	ops.want(http.StatusOK, nil, http.MethodPost, path+"/resume", `{}`)
	answers["minimal"] = ops.want(http.StatusOK, nil, http.MethodGet, path, "", "Prefer", "return=minimal")
	answers["a short wait"] = ops.want(http.StatusOK, nil, http.MethodGet, path, "", "Prefer", "wait=0.01")
	worker := ops.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "w"}], "capacity": 1}`).Header.Get("Location")
	answers["a claim"] = ops.want(http.StatusOK, nil, http.MethodPost, worker+"/claim",
		`{"number": 1, "slots": 1, "wait_ms": 10000}`)
	for what, a := range answers {
		if strings.Contains(string(a.body), secret) {
			t.Errorf("%s has the payload: %s", what, a.body)
		}
	}
	if got := string(ops.execution(path).TriggerPayload); got != `{"a":["`+secret+`"]}` && got != `{"a": ["`+secret+`"]}` {
		t.Errorf("the payload is %s", got)
	}
	if text := s.log.text.String(); strings.Contains(text, secret) {
		t.Errorf("the log has the payload: %s", text)
	}
}

// A payload of 64 KiB beside an input of 1 MiB is accepted. A larger or deeper payload, and one that is no JSON,
// are refused, alone and in a batch; in a batch the other submissions are accepted.
func TestTriggerPayloadsAreBounded(t *testing.T) {
	s := serve(t, httpapi.Options{})
	text := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	path := s.submit(`{"workflow": "w", "input": ` + text(belay.MaxPayload) + `, "trigger_payload": ` +
		text(belay.MaxTriggerPayload) + `}`)
	if n := len(s.execution(path).TriggerPayload); n != belay.MaxTriggerPayload {
		t.Errorf("%d bytes are kept", n)
	}
	for _, c := range []struct {
		name, payload string
		status        int
		code          belay.Code
	}{
		{"large", text(belay.MaxTriggerPayload + 1), http.StatusRequestEntityTooLarge, belay.CodePayloadTooLarge},
		{"huge", text(4 << 20), http.StatusRequestEntityTooLarge, belay.CodePayloadTooLarge},
		{"deep", strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000), http.StatusBadRequest, belay.CodeMalformed},
		{"a NUL", `"\u0000"`, http.StatusBadRequest, belay.CodeMalformed},
		{"no JSON", `{"a"`, http.StatusBadRequest, belay.CodeMalformed},
		{"a name twice", `{"a": 1, "a": 2}`, http.StatusBadRequest, belay.CodeMalformed},
	} {
		t.Log(c.name)
		s.refused(c.status, c.code, http.MethodPost, "/v1/executions",
			`{"workflow": "w", "trigger_payload": `+c.payload+`}`)
	}
	var out struct {
		Results []struct {
			Submitted *belay.Submitted
			Error     *problem
		}
	}
	s.want(http.StatusOK, &out, http.MethodPost, "/v1/batch", `{"ops": [{"submit": {"workflow": "w", "trigger_payload": `+
		text(belay.MaxTriggerPayload+1)+`}}, {"submit": {"workflow": "w", "trigger_payload": null}}]}`)
	if r := out.Results; r[0].Error == nil || r[0].Error.Code != belay.CodePayloadTooLarge || r[1].Submitted == nil {
		t.Errorf("%+v", out.Results)
	}
}

// GET of an execution has its newest action by a person or program and its metrics, which are equal at each
// read until the execution changes: so its ETag holds while a run goes on.
func TestAnExecutionIsReadWithItsMetrics(t *testing.T) {
	s := serve(t, httpapi.Options{})
	o := own(t, s.b)
	a := s.want(http.StatusOK, nil, http.MethodGet, o.path, "")
	s.want(http.StatusNotModified, nil, http.MethodGet, o.path, "", "If-None-Match", a.Header.Get("ETag"))
	x := s.execution(o.path)
	if m := x.Metrics; m == nil || m.Runs != 1 || m.RunningSince.IsZero() || m.WaitMS < 1 || m.DurationMS != 0 ||
		m.Children != nil || !x.ModifiedAt.IsZero() {
		t.Errorf("while it runs: %s", a.body)
	}
	s.want(http.StatusOK, nil, http.MethodPost, o.path+"/pause", `{"actor": "ann"}`)
	s.want(http.StatusOK, nil, http.MethodGet, o.path, "", "If-None-Match", a.Header.Get("ETag"))
	if x := s.execution(o.path); x.ModifiedBy != "ann" || x.ModifiedAt.IsZero() {
		t.Errorf("modified by %q at %s", x.ModifiedBy, x.ModifiedAt)
	}
	s.want(http.StatusOK, nil, http.MethodPost, o.path+"/resume", `{"actor": "bob"}`)
	o.complete()
	x = s.execution(o.path)
	if m := x.Metrics; m.DurationMS < 1 || m.RunningMS < 1 || m.Outcomes["succeeded"] != 1 ||
		!m.RunningSince.IsZero() || x.ModifiedBy != "bob" {
		t.Errorf("at the end: %+v of %+v", m, x)
	}
	least := s.want(http.StatusOK, nil, http.MethodGet, o.path, "", "Prefer", "return=minimal")
	if strings.Contains(string(least.body), "metrics") || least.Header.Get("Preference-Applied") != "return=minimal" {
		t.Errorf("%v %s", least.Header, least.body)
	}
	var page struct{ Runs []belay.RunRecord }
	s.want(http.StatusOK, &page, http.MethodGet, "/v1/runs", "")
	if len(page.Runs) != 1 || page.Runs[0].DurationMS < 1 {
		t.Errorf("runs: %+v", page.Runs)
	}
}
