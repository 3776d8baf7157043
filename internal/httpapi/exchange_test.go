package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

const targetPath = "/v1/notification-targets/events"

// Rule: a server without RabbitMQ refuses a target at an exchange, and says what is missing.
func TestAServerWithoutRabbitMQRefusesExchanges(t *testing.T) {
	s := serve(t, httpapi.Options{})
	a := s.refused(http.StatusConflict, belay.CodeConflict, http.MethodPut, targetPath, `{"exchange": "ex"}`)
	if !strings.Contains(a.Detail, "broker.url") {
		t.Errorf("%+v", a)
	}
	for body, want := range map[string]string{
		`{"exchange": "ex", "url": "https://a.example/"}`: "not both", `{}`: "the url is empty",
		`{"exchange": "ex", "format": "slack"}`: "the format event", `{"routing_key": "k"}`: "without an exchange",
		`{"exchange": "${{ secrets.A }}"}`: "cannot refer to a secret",
	} {
		a := s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPut, targetPath, body)
		if !strings.Contains(a.Detail, want) {
			t.Errorf("%s: %+v", body, a)
		}
	}
}

// Attack: an exchange of Belay itself as a target, and every way in which a user starts executions, with a workflow
// that publishes. The Admission judges targets when they are set, tested and resumed.
func TestExchangesPassTheAdmission(t *testing.T) {
	closed := false
	judge := func(_ context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
		var in struct{ Exchange string }
		if err := json.Unmarshal(s.Input, &in); err != nil || s.Workflow != belay.PublishWorkflow {
			t.Errorf("the Admission judges %+v: %v", s, err)
		}
		if strings.HasPrefix(in.Exchange, "belay.") || closed {
			return nil, &belay.Error{Code: belay.CodeForbidden, Message: "not for events"}
		}
		return func(belay.ExecutionID) {}, nil
	}
	s := serve(t, httpapi.Options{Admit: map[string]httpapi.Admission{belay.PublishWorkflow: judge}})
	forbidden := func(method, path, body string) {
		t.Helper()
		s.refused(http.StatusForbidden, belay.CodeForbidden, method, path, body)
	}
	forbidden(http.MethodPut, targetPath, `{"exchange": "belay.dead.1"}`)
	a := s.want(http.StatusCreated, nil, http.MethodPut, targetPath, `{"exchange": "ex", "routing_key": "k"}`)
	var got map[string]any
	if err := json.Unmarshal(a.body, &got); err != nil || got["exchange"] != "ex" || got["routing_key"] != "k" ||
		got["url"] != nil {
		t.Errorf("%v: the target is %s", err, a.body)
	}
	s.want(http.StatusOK, nil, http.MethodPost, targetPath+"/test", `{}`)
	closed = true
	forbidden(http.MethodPost, targetPath+"/test", `{}`)
	s.want(http.StatusOK, nil, http.MethodPost, targetPath+"/pause", `{}`)
	forbidden(http.MethodPost, targetPath+"/resume", `{}`)

	// The rules refuse these, and not the Admission.
	const publish = `{"workflow": "belay.publish", "input": {"exchange": "secret", "target": "t", "body": {}}}`
	p := s.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPost, "/v1/executions", publish)
	if !strings.Contains(p.Detail, "belay notify set") {
		t.Errorf("%+v", p)
	}
	forbidden(http.MethodPut, "/v1/schedules/x", `{"cron": "@daily", "execution": `+publish+`}`)
	forbidden(http.MethodPut, "/v1/webhooks/x", `{"scheme": "cloudevents", "execution": `+publish+`}`)
	notify := `{"workflow": "w", "notify": [{"url": "amqp:ex"}]}`
	s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, "/v1/executions", notify)
	s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, "/v1/executions",
		`{"workflow": "w", "notify": [{"exchange": "ex"}]}`)
}
