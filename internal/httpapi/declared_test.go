package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// Attack: a document defines schedules and webhooks that the caller could not make by their own routes: without the
// scope submit, or with executions or notifications that the Admission refuses. The document is not stored either.
func TestDocumentsDoNotDefineTriggersPastTheRoutesOfTriggers(t *testing.T) {
	judge := func(_ context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
		if strings.Contains(string(s.Input), "evil") {
			return nil, &belay.Error{Code: belay.CodeForbidden, Op: "submit", Message: "this is forbidden"}
		}
		return func(belay.ExecutionID) {}, nil
	}
	full := func(context.Context, *belay.Submission) (func(belay.ExecutionID), error) {
		return nil, &belay.Error{Code: belay.CodeQueueFull, Op: "submit", Message: "full"}
	}
	s := serve(t, httpapi.Options{Admit: map[string]httpapi.Admission{"document": judge, "http": judge}})
	operator := s.withKey("operator", belay.ScopeOperate, belay.ScopeRead)
	ann := s.withKey("ann", belay.ScopeOperate, belay.ScopeSubmit, belay.ScopeRead)
	const path = "/v1/workflows/d"
	const schedule = "on: {schedules: {tick: {every: 1h}}}\n"
	const webhook = "on: {webhooks: {push: {scheme: github, secrets: ['${{ secrets.HOOK }}']}}}\n"
	for _, text := range []string{schedule, webhook, "\"\\x6fn\": {schedules: {tick: {every: 1h}}}\n"} {
		a := operator.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPut, path, put("name: d\n"+text))
		if !strings.Contains(a.Detail, "submit") {
			t.Errorf("the refusal does not name the scope: %+v", a)
		}
	}
	for _, text := range []string{
		"on: {schedules: {tick: {every: 1h, input: {to: evil}}}}\n", // by the input of the schedule
		schedule + "description: evil\n",                            // by the text
		schedule + "notify: [{url: 'https://evil.example/'}]\n",
		webhook + "notify: [{url: 'https://evil.example/'}]\n",
	} {
		ann.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPut, path, put("name: d\n"+text))
	}
	ann.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, path, "")
	for _, route := range []string{"/v1/schedules/d.tick", "/v1/webhooks/d.push"} {
		ann.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, route, "")
	}

	var d belay.DocumentApplied
	ann.want(http.StatusCreated, &d, http.MethodPut, path, put("name: d\n"+schedule))
	if len(d.Triggers) != 1 || d.Triggers[0].Name != "d.tick" || d.Triggers[0].Change != belay.TriggerCreated {
		t.Errorf("%+v", d)
	}
	// Without the scope submit, a document with triggers has no new version, and its triggers cannot be removed by
	// their own routes; a version without triggers removes them, as DELETE removes a schedule.
	operator.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPut, path, put("name: d\n"+schedule+"#\n"))
	ann.refused(http.StatusConflict, belay.CodeConflict, http.MethodDelete, "/v1/schedules/d.tick", "")
	ann.refused(http.StatusConflict, belay.CodeConflict, http.MethodPut, "/v1/schedules/d.tick",
		`{"every": "2h", "execution": {"document": "d"}}`)
	var info struct {
		DefinedBy string `json:"defined_by"`
	}
	operator.want(http.StatusOK, &info, http.MethodPost, "/v1/schedules/d.tick/pause", `{"reason": "x"}`)
	if info.DefinedBy != "d" {
		t.Errorf("%+v", info)
	}
	operator.want(http.StatusCreated, &d, http.MethodPut, path, put("name: d\n"))
	if len(d.Triggers) != 1 || d.Triggers[0].Change != belay.TriggerRemoved {
		t.Errorf("%+v", d)
	}

	// A queue that is full now does not concern executions of later.
	s = serve(t, httpapi.Options{Admit: map[string]httpapi.Admission{"document": full}})
	s.want(http.StatusCreated, nil, http.MethodPut, path, put("name: d\n"+schedule))
}

// Rule: a delivery to the webhook of a document is accepted as soon as the document is stored, also if the server has
// looked for the webhook before.
func TestAWebhookOfADocumentAnswersAtOnce(t *testing.T) {
	s := serve(t, httpapi.Options{})
	s.do(http.MethodPost, "/hooks/d.push", "{}")
	text := "name: d\non: {webhooks: {push: {scheme: github, secrets: ['${{ secrets.HOOK }}']}}}\n"
	s.want(http.StatusCreated, nil, http.MethodPut, "/v1/workflows/d", put(text))
	if a := s.do(http.MethodPost, "/hooks/d.push", "{}"); a.StatusCode == http.StatusNotFound {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}
