package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// guard is an Admission that accepts as many submissions of a workflow as the field room says. It
// refuses every submission whose input contains "bad".
type guard struct {
	mu     sync.Mutex
	room   int
	stored []belay.ExecutionID
}

func (g *guard) judge(_ context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case strings.Contains(string(s.Input), "bad"):
		return nil, &belay.Error{Code: belay.CodeForbidden, Message: "bad"}
	case g.room == 0:
		return nil, &belay.Error{Code: belay.CodeQueueFull, Message: "full"}
	}
	g.room--
	return func(id belay.ExecutionID) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stored = append(g.stored, id)
		if id == (belay.ExecutionID{}) {
			g.room++
		}
	}, nil
}

// Every submission of a workflow passes its Admission, whatever the route. A repeat of a stored
// submission is answered with the stored execution even while the Admission refuses new
// submissions. Submissions of workflows without an Admission are not judged.
func TestNothingIsSubmittedPastItsAdmission(t *testing.T) {
	g := &guard{room: 3}
	s := serve(t, httpapi.Options{Admit: map[string]httpapi.Admission{"w": g.judge}})
	path := s.submit(`{"workflow": "w", "idempotency_key": "k"}`)
	s.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPost, "/v1/executions",
		`{"workflow": "w", "input": "bad"}`)
	s.want(http.StatusCreated, nil, http.MethodPost, "/v1/executions", `{"workflow": "other", "input": "bad"}`)
	a := s.want(http.StatusOK, nil, http.MethodPost, "/v1/batch",
		`{"ops": [{"submit": {"workflow": "w", "input": "bad"}}, {"submit": {"workflow": "w"}}, {"submit": {"workflow": "other"}}, {"submit": {"workflow": "w"}}, {"submit": {"workflow": "w"}}]}`)
	var batch struct {
		Results []struct {
			Submitted *struct{ ID string }
			Error     *struct{ Code string }
		}
	}
	if err := json.Unmarshal(a.body, &batch); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"forbidden", "", "", "", "queue_full"} {
		if r := batch.Results[i]; (r.Error == nil) != (want == "") || r.Error != nil && r.Error.Code != want ||
			(r.Submitted == nil) != (want != "") {
			t.Errorf("operation %d of the batch: %s", i, a.body)
		}
	}
	s.refused(http.StatusTooManyRequests, belay.CodeQueueFull, http.MethodPost, "/v1/executions", `{"workflow": "w"}`)
	if again := s.do(http.MethodPost, "/v1/executions", `{"workflow": "w"}`, "Idempotency-Key",
		"k"); again.StatusCode != http.StatusOK || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("a repeat: %d %s", again.StatusCode, again.body)
	}
	id := strings.TrimPrefix(path, "/v1/executions/")
	s.want(http.StatusOK, nil, http.MethodPost, path+"/cancel", "{}")
	for action, body := range map[string]string{"retry": "{}", "requeue": `{"input": 1}`, "fork": "{}"} {
		s.refused(http.StatusTooManyRequests, belay.CodeQueueFull, http.MethodPost, path+"/"+action, body)
	}
	g.room = 1
	s.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPost, path+"/requeue", `{"input": "bad"}`)
	s.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPost, path+"/retry", `{"input": "bad"}`)
	s.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPost, path+"/requeue", `{"input_patch": "bad"}`)
	s.want(http.StatusOK, nil, http.MethodPost, path+"/retry", "{}")
	if last := g.stored[len(g.stored)-1]; last.String() != id || g.room != 0 {
		t.Errorf("stored %s, want %s; room for %d", last, id, g.room)
	}
	g.room = 1
	s.refused(http.StatusConflict, belay.CodeConflict, http.MethodPost, path+"/retry", "{}") // the execution runs again
	if g.room != 1 {
		t.Error("a refused retry of an open execution takes a place")
	}
	parent := `{"workflow": "w", "id": "` + id +
		`", "parent": {"worker": "wk_00000000000000000000000000", "execution": "` + id +
		`", "token": 1, "secret": "00"}, "parent_key": "c", "input": "bad"}`
	if a := s.do(http.MethodPost, "/v1/executions", parent); a.StatusCode == http.StatusCreated ||
		a.StatusCode == http.StatusOK {
		t.Errorf("a child: %d %s", a.StatusCode, a.body)
	}
}
