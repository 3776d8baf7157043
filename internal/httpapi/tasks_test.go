package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// tasks reads and repairs an execution of a document; fakeDocuments answers.
func (w *walker) tasks() {
	w.t.Helper()
	path, _ := w.submitted(`{"workflow": "document", "input": {}}`)
	w.step(200, "GET", path+"/tasks?task=build&state=failed&cursor=7&limit=5&outputs=true", "")
	w.step(400, "GET", path+"/tasks?state=odd", "")
	w.step(400, "GET", path+"/tasks?limit=1001", "")
	w.step(200, "POST", path+"/repair", `{"from": ["a"], "skip": [{"task": "b[1]", "output": {"x": 1}}], "reason": "r",
		"actor": "me", "generation": 1}`, "Idempotency-Key", "k")
	w.step(422, "POST", path+"/repair", `{"from": "a"}`)
	w.step(422, "POST", path+"/repair", `{"skip": [{"output": 1}]}`)
}

// fakeDocuments is a Documents with one task.
type fakeDocuments struct{}

func (fakeDocuments) Tasks(context.Context, belay.TaskQuery) (belay.TaskPage, error) {
	at := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	return belay.TaskPage{Document: "d", Total: 9, Next: "12", Tasks: []belay.Task{{
		ID: "build[7]", Uses: "command", Description: "text", Needs: []string{"a"}, Compensates: true,
		State: belay.TaskFailed, Execution: belay.ExecutionID{1}, Attempt: 2, Generation: 1, StartedAt: at, EndedAt: at,
		WaitsFor: "a worker", Question: &belay.TaskQuestion{Signal: "s", Approval: true, Message: "m"}, Error: "e",
		Output: json.RawMessage(`{"x":1}`), Items: &belay.TaskItems{Total: 3, Pending: 1, Open: 1, Succeeded: 1},
		ByHand: &belay.TaskByHand{By: "ann", Note: "n"},
	}}}, nil
}

func (fakeDocuments) Repair(ctx context.Context, r belay.Repair) (belay.Execution, error) {
	belay.NoteReplay(ctx)
	return belay.Execution{
		ID: r.Execution, Workflow: "document", Queue: "default", State: belay.Pending, Seq: 7, Token: 1, Generation: 2,
		Attempt: 1, Reason: &belay.Reason{Code: "reopened", Text: "run again by " + r.Actor},
		CreatedAt: time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC),
	}, nil
}

// Without documents, the routes refuse and say why.
func TestTasksOfAProcessWithoutDocuments(t *testing.T) {
	s := serve(t, httpapi.Options{})
	path := "/v1/executions/" + belay.ExecutionID{1}.String()
	s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodGet, path+"/tasks", "")
	s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, path+"/repair", `{"from": ["a"]}`)
}

// recorder is a Documents that keeps the last repair.
type recorder struct {
	fakeDocuments
	last belay.Repair
}

func (r *recorder) Repair(ctx context.Context, x belay.Repair) (belay.Execution, error) {
	r.last = x
	return r.fakeDocuments.Repair(ctx, x)
}

// The key of a request is the actor of its repair, whatever the body says.
func TestTheKeyIsTheActorOfARepair(t *testing.T) {
	r := &recorder{}
	s := serve(t, httpapi.Options{Documents: r})
	s.withKey("ann", belay.ScopeOperate).want(http.StatusOK, nil, http.MethodPost,
		"/v1/executions/"+belay.ExecutionID{1}.String()+"/repair", `{"from": ["a"], "actor": "bob"}`)
	if r.last.Actor != "ann" {
		t.Errorf("the actor is %q", r.last.Actor)
	}
}
