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
