package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

// Rule: the trace of a submission is in its body, or else in the headers of its request; the worker gets it with its
// claim. A trace that is not valid is none, and no error.
func TestASubmissionHasTheTraceOfItsRequest(t *testing.T) {
	const (
		header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		body   = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00"
	)
	s := serve(t, httpapi.Options{})
	session := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "w"}], "capacity": 100}`).Header.Get("Location")
	for i, c := range []struct{ route, fields, traceparent, tracestate, want, state string }{
		{"/v1/executions", ``, header, "a=b", header, "a=b"},
		{"/v1/executions", `, "traceparent": "` + body + `"`, header, "a=b", body, ""},
		{"/v1/executions", `, "traceparent": "` + body + `", "tracestate": "c=d"`, "", "", body, "c=d"},
		{"/v1/executions", ``, "no", "a=b", "", ""},
		{"/v1/executions", ``, header, "ü=b", header, ""},
		{"/v1/executions", `, "traceparent": "no"`, "", "", "", ""},
		{"/v1/batch", ``, header, "a=b", header, "a=b"},
		{"/v1/batch", `, "traceparent": "` + body + `"`, header, "a=b", body, ""},
		{"/v1/batch", ``, "", "a=b", "", ""},
	} {
		text, status := `{"workflow": "w"`+c.fields+`}`, http.StatusCreated
		if c.route == "/v1/batch" {
			text, status = `{"ops": [{"submit": `+text+`}]}`, http.StatusOK
		}
		var headers []string
		for name, value := range map[string]string{"traceparent": c.traceparent, "tracestate": c.tracestate} {
			if value != "" {
				headers = append(headers, name, value)
			}
		}
		s.want(status, nil, http.MethodPost, c.route, text, headers...)
		var won wire.ClaimReply
		s.want(http.StatusOK, &won, http.MethodPost, session+"/claim", fmt.Sprintf(`{"number": %d, "slots": 9, "wait_ms": 10000}`, i+1))
		if len(won.Assignments) != 1 || won.Assignments[0].Traceparent != c.want ||
			won.Assignments[0].Tracestate != c.state {
			t.Errorf("%+v: the claim has %+v", c, won.Assignments)
		}
	}
}
