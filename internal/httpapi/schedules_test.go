package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// The server judges the executions of a schedule like submissions, and refuses to schedule its own workflow of bulks.
func TestSchedulesAreAdmitted(t *testing.T) {
	judge := func(_ context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
		switch {
		case strings.Contains(string(s.Input), "forbidden"):
			return nil, &belay.Error{Code: belay.CodeForbidden, Op: "submit", Message: "the input is forbidden"}
		case strings.Contains(string(s.Input), "full"):
			return nil, &belay.Error{Code: belay.CodeQueueFull, Op: "submit", Message: "the queue is full"}
		}
		return func(belay.ExecutionID) {}, nil
	}
	s := serve(t, httpapi.Options{Admit: map[string]httpapi.Admission{"command": judge, "document": judge}})
	for _, text := range []string{"allowed", "forbidden"} {
		s.want(http.StatusCreated, nil, http.MethodPut, "/v1/workflows/"+text, `{"text": "`+text+`"}`)
	}
	put := func(execution string) string { return `{"cron": "@daily", "execution": ` + execution + `}` }
	for execution, code := range map[string]belay.Code{
		`{"workflow": "` + belay.BulkWorkflow + `"}`:      belay.CodeForbidden,
		`{"workflow": "command", "input": ["forbidden"]}`: belay.CodeForbidden,
		`{"document": "forbidden"}`:                       belay.CodeForbidden,
		`{"document": "allowed", "input": ["forbidden"]}`: belay.CodeForbidden,
	} {
		s.refused(http.StatusForbidden, code, http.MethodPut, "/v1/schedules/x", put(execution))
	}
	for i, execution := range []string{
		`{"workflow": "command", "input": ["allowed"]}`, `{"workflow": "command", "input": ["full"]}`,
		`{"document": "allowed"}`, `{"workflow": "other", "input": ["forbidden"]}`,
	} {
		status := http.StatusOK
		if i == 0 {
			status = http.StatusCreated
		}
		s.want(status, nil, http.MethodPut, "/v1/schedules/x", put(execution))
	}
}

// To make a schedule, a key needs the scopes submit and operate.
func TestASchedulesKeyMayAlsoSubmit(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const body = `{"cron": "@daily", "execution": {"workflow": "w"}}`
	s.withKey("ops", belay.ScopeOperate).refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPut,
		"/v1/schedules/x", body)
	s.withKey("ci", belay.ScopeSubmit).refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPut,
		"/v1/schedules/x", body)
	s.withKey("both", belay.ScopeOperate, belay.ScopeSubmit).want(http.StatusCreated, nil, http.MethodPut,
		"/v1/schedules/x", body)
	ops := s.withKey("ops again", belay.ScopeOperate)
	ops.want(http.StatusOK, nil, http.MethodPost, "/v1/schedules/x/run", "")
	ops.want(http.StatusNoContent, nil, http.MethodDelete, "/v1/schedules/x", "")
}
