package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// A caller that may not cancel or requeue an execution can do neither in bulk: not by a submission of the
// built-in workflow on any route, not as a worker or owner of a bulk, and not with another input for a
// bulk of an operator. The actor of a bulk is the name of its key.
func TestABulkNeedsTheScopeOfItsActions(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const cancel = `{"action": "cancel", "filter": {"workflow": "w"}, "actor": "another"}`
	operator := s.withKey("operator", belay.ScopeOperate)
	var reply belay.BulkReply
	operator.want(http.StatusOK, &reply, http.MethodPost, "/v1/bulk", cancel)
	if x := reply.Execution; x == nil || !strings.Contains(string(x.Input), `"actor":"operator"`) {
		t.Fatalf("%+v", reply)
	}
	bulk := "/v1/executions/" + reply.Execution.ID.String()

	weak := s.withKey("weak", belay.ScopeRead, belay.ScopeSubmit, belay.ScopeWorker)
	denied := func(c *server, method, path, body string) {
		t.Helper()
		c.refused(http.StatusForbidden, belay.CodeForbidden, method, path, body)
	}
	denied(weak, http.MethodPost, "/v1/bulk", cancel)
	const forged = `{"workflow": "belay.bulk", "queue": "belay.bulk", "input": {"action": "cancel", "all": true}}`
	denied(weak, http.MethodPost, "/v1/executions", forged)
	var batch struct{ Results []struct{ Error *problem } }
	weak.want(http.StatusOK, &batch, http.MethodPost, "/v1/batch", `{"ops": [{"submit": `+forged+`}]}`)
	if r := batch.Results[0]; r.Error == nil || r.Error.Code != belay.CodeForbidden {
		t.Errorf("in a batch: %+v", r.Error)
	}
	denied(weak, http.MethodPost, "/v1/workers",
		`{"name": "x", "capacity": 1, "queues": ["belay.bulk"], "workflows": [{"workflow": "w"}, {"workflow": "belay.bulk"}]}`)
	denied(weak, http.MethodPost, bulk+"/lock", `{"owner": "x"}`)
	denied(operator, http.MethodPost, bulk+"/requeue", `{"input": {"action": "cancel", "all": true}}`)
	denied(operator, http.MethodPost, bulk+"/retry", `{"input_patch": {"actor": "another"}}`)
	denied(operator, http.MethodPost, bulk+"/fork", `{}`)
	operator.want(http.StatusOK, nil, http.MethodPost, bulk+"/cancel", "")
	denied(weak, http.MethodPost, bulk+"/lock", `{"owner": "x", "reopen": true}`)
	operator.want(http.StatusOK, nil, http.MethodPost, bulk+"/retry", "")

	// A dry run reads, so it needs the scope of reading too.
	const dry = `{"action": "cancel", "filter": {"workflow": "w"}, "dry_run": true}`
	denied(operator, http.MethodPost, "/v1/bulk", dry)
	s.withKey("both", belay.ScopeOperate, belay.ScopeRead).want(http.StatusOK, &reply, http.MethodPost, "/v1/bulk", dry)
}

// A repeated bulk request with the same idempotency key finds the first bulk. A different bulk request with this key is
// refused.
func TestABulkIsStartedOnce(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const body = `{"action": "cancel", "filter": {"workflow": "w"}}`
	var first, again belay.BulkReply
	s.want(http.StatusOK, &first, http.MethodPost, "/v1/bulk", body, "Idempotency-Key", "k")
	a := s.want(http.StatusOK, &again, http.MethodPost, "/v1/bulk", body, "Idempotency-Key", "k")
	if again.Execution.ID != first.Execution.ID || a.Header.Get("Idempotency-Replayed") != "true" || !again.Replayed {
		t.Errorf("%+v %s", a.Header, a.body)
	}
	s.refused(http.StatusUnprocessableEntity, belay.CodeIdempotencyMismatch, http.MethodPost, "/v1/bulk",
		`{"action": "cancel", "filter": {"workflow": "v"}}`, "Idempotency-Key", "k")
}
