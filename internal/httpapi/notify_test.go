package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// Attack: a caller whose requests the server refuses makes the server send them as notifications. The Admission of the
// workflow http judges each notification like a request, on every route: a submission, a batch, a schedule, and an
// action that makes an execution run again. It never learns of an execution, because it is not one of its workflow.
func TestNotificationsDoNotPassTheAdmissionOfRequests(t *testing.T) {
	var strict atomic.Bool
	judge := func(_ context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
		var in struct{ URL string }
		if err := json.Unmarshal(s.Input, &in); err != nil || s.Workflow != "http" {
			t.Errorf("the Admission judges %+v: %v", s, err)
		}
		if strings.Contains(in.URL, "internal") || strict.Load() {
			return nil, &belay.Error{Code: belay.CodeForbidden, Op: "submit", Message: "the host is forbidden"}
		}
		return func(id belay.ExecutionID) {
			if !id.IsZero() {
				t.Errorf("the Admission learns of %s", id)
			}
		}, nil
	}
	s := serve(t, httpapi.Options{Admit: map[string]httpapi.Admission{"http": judge}})
	body := func(host string) string {
		return `{"workflow": "w", "notify": [{"url": "https://good.example/"}, {"url": "https://` + host +
			`/hook", "on": ["failed", "cancelled"]}]}`
	}
	forbidden := func(method, path, body string) {
		t.Helper()
		s.refused(http.StatusForbidden, belay.CodeForbidden, method, path, body)
	}
	forbidden(http.MethodPost, "/v1/executions", body("internal.example"))
	forbidden(http.MethodPut, "/v1/schedules/x", `{"cron": "@daily", "execution": `+body("internal.example")+`}`)
	forbidden(http.MethodPut, "/v1/webhooks/x", `{"scheme": "cloudevents", "execution": `+body("internal.example")+`}`)
	a := s.want(http.StatusOK, nil, http.MethodPost, "/v1/batch", `{"ops": [{"submit": `+body("internal.example")+
		`}, {"submit": `+body("other.example")+`}]}`)
	var batch struct {
		Results []struct {
			Submitted *struct{ ID string }
			Error     *struct{ Code, Detail string }
		}
	}
	if err := json.Unmarshal(a.body, &batch); err != nil || len(batch.Results) != 2 {
		t.Fatalf("%v: %s", err, a.body)
	}
	if r := batch.Results; r[0].Error == nil || r[0].Error.Code != "forbidden" || r[1].Submitted == nil {
		t.Errorf("the batch: %s", a.body)
	}
	const target = "/v1/notification-targets/x"
	forbidden(http.MethodPut, target, `{"url": "https://internal.example/"}`)
	s.want(http.StatusCreated, nil, http.MethodPut, target, `{"url": "https://other.example/"}`)
	strict.Store(true)
	forbidden(http.MethodPost, target+"/test", "")
	s.want(http.StatusOK, nil, http.MethodPost, target+"/pause", "")
	forbidden(http.MethodPost, target+"/resume", "")
	strict.Store(false)
	s.want(http.StatusNoContent, nil, http.MethodDelete, target, "")
	path := s.submit(body("other.example"))
	s.want(http.StatusOK, nil, http.MethodPost, path+"/cancel", "{}")
	strict.Store(true) // the operator forbids requests after the submission
	for action, body := range map[string]string{"retry": "{}", "requeue": `{"input": 1}`, "fork": "{}"} {
		forbidden(http.MethodPost, path+"/"+action, body)
	}
	strict.Store(false)
	s.want(http.StatusOK, nil, http.MethodPost, path+"/retry", "{}")
}

// Attack: a document has the notification that a submission may not have. It is judged on every route: the text of a
// submission, also in a batch; a document that is stored; a schedule, a webhook and its deliveries. A document that was
// stored past the API is judged when it is submitted. A fork or a retry with another text keeps the notifications of
// its execution.
func TestNotificationsOfDocumentsDoNotPassTheAdmissionOfRequests(t *testing.T) {
	judge := func(_ context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
		if strings.Contains(string(s.Input), "internal") {
			return nil, &belay.Error{Code: belay.CodeForbidden, Op: "submit", Message: "the host is forbidden"}
		}
		return func(belay.ExecutionID) {}, nil
	}
	s := serve(t, httpapi.Options{Admit: map[string]httpapi.Admission{"http": judge}})
	quote := func(text string) string {
		b, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	text := func(host string) string { return "name: d\nnotify: [{url: 'https://" + host + ".example/'}]\n" }
	input := func(host string) string { return `{"document": ` + quote(text(host)) + `}` }
	body := func(host string) string { return `{"workflow": "document", "input": ` + input(host) + `}` }
	forbidden := func(method, path, body string) {
		t.Helper()
		s.refused(http.StatusForbidden, belay.CodeForbidden, method, path, body)
	}
	const escaped = `{"workflow": "document", "input": {"document": "\"n\\x6ftify\": [{url: 'https://internal/'}]"}}`
	forbidden(http.MethodPost, "/v1/executions", body("internal"))
	forbidden(http.MethodPost, "/v1/executions", escaped)
	a := s.want(http.StatusOK, nil, http.MethodPost, "/v1/batch", `{"ops": [{"submit": `+body("internal")+`}]}`)
	if !strings.Contains(string(a.body), `"forbidden"`) {
		t.Errorf("the batch: %s", a.body)
	}
	forbidden(http.MethodPut, "/v1/workflows/d", `{"text": `+quote(text("internal"))+`}`)
	forbidden(http.MethodPut, "/v1/schedules/x", `{"cron": "@daily", "execution": `+body("internal")+`}`)

	hook := func(name, execution string) {
		t.Helper()
		s.want(http.StatusCreated, nil, http.MethodPut, "/v1/webhooks/"+name, `{"scheme": "cloudevents", "execution": `+
			execution+`}`)
	}
	deliver := func(id, data string) string {
		return `{"id": "` + id + `", "data": ` + data + `}`
	}
	hook("text", `{"workflow": "document"}`)
	forbidden(http.MethodPost, "/v1/webhooks/text/deliveries", deliver("1", input("internal")))
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/webhooks/text/deliveries", deliver("2", input("good")))

	s.want(http.StatusCreated, nil, http.MethodPut, "/v1/workflows/d", `{"text": `+quote(text("good"))+`}`)
	s.want(http.StatusCreated, nil, http.MethodPut, "/v1/schedules/x", `{"cron": "@daily", "execution": {"document": "d"}}`)
	hook("stored", `{"document": "d"}`)
	if _, err := s.b.ApplyDocument(t.Context(), belay.DocumentApply{Name: "d", Text: text("internal")}); err != nil {
		t.Fatal(err)
	}
	forbidden(http.MethodPost, "/v1/executions", `{"document": "d"}`)
	forbidden(http.MethodPut, "/v1/schedules/y", `{"cron": "@daily", "execution": {"document": "d"}}`)
	forbidden(http.MethodPut, "/v1/webhooks/y", `{"scheme": "cloudevents", "execution": {"document": "d"}}`)
	forbidden(http.MethodPost, "/v1/webhooks/stored/deliveries", deliver("1", "{}"))
	s.want(http.StatusCreated, nil, http.MethodPost, "/v1/executions", `{"document": "d@1"}`)

	path := s.submit(body("good"))
	s.want(http.StatusOK, nil, http.MethodPost, path+"/cancel", "{}")
	for _, action := range []string{"fork", "retry"} {
		a := s.do(http.MethodPost, path+"/"+action, `{"input": `+input("internal")+`}`)
		var x belay.Execution
		if err := json.Unmarshal(a.body, &x); err != nil || a.StatusCode >= 300 || len(x.Notify) != 1 ||
			x.Notify[0].URL != "https://good.example/" {
			t.Errorf("%s: %d %s", action, a.StatusCode, a.body)
		}
	}
}

// A caller who may only read or work cannot notify, and nobody can make up a delivery: its id, its key and its trigger
// belong to Belay.
func TestDeliveriesCannotBeMadeUp(t *testing.T) {
	s := serve(t, httpapi.Options{})
	path := s.submit(`{"workflow": "w", "notify": [{"url": "https://good.example/", "on": ["cancelled"]}]}`)
	id, err := belay.ParseExecutionID(strings.TrimPrefix(path, "/v1/executions/"))
	if err != nil {
		t.Fatal(err)
	}
	delivery := belay.NotificationID(id, 1, 0).String()
	for _, more := range []string{
		`"id": "` + delivery + `"`, `"idempotency_key": "notification:` + id.String() + `:1:0"`,
		`"target": "notification:good.example:0"`, `"concurrency": {"name": "notification:good.example:0", "max": 1}`,
		`"notify": [{"url": "https://me:secret@good.example/"}]`, `"notify": [{"url": "file:///etc/passwd"}]`,
		`"notify": [{"url": "https://good.example/", "secret": "whsec_plain"}]`,
	} {
		s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, "/v1/executions",
			`{"workflow": "http", "input": {"url": "https://good.example/"}, `+more+`}`)
	}
	s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, path+"/fork",
		`{"fork": "`+delivery+`"}`)
	s.want(http.StatusOK, nil, http.MethodPost, path+"/cancel", "{}")
	a := s.want(http.StatusOK, nil, http.MethodGet, "/v1/executions/"+delivery, "")
	var x belay.Execution
	if err := json.Unmarshal(a.body, &x); err != nil || x.Trigger != belay.TriggerNotification ||
		x.Workflow != "http" || x.Labels[belay.LabelNotification] != id.String() {
		t.Errorf("%v: %s", err, a.body)
	}
	for _, scope := range []belay.Scope{belay.ScopeRead, belay.ScopeWorker} {
		s.withKey(string(scope), scope).refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPost,
			"/v1/executions", `{"workflow": "w", "notify": [{"url": "https://good.example/"}]}`)
	}
}
