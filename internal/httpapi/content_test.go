package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// A submission with the idempotency content is answered with the execution of its content, alone and in a batch. Such a
// submission may not have an idempotency key too, neither in the body nor in the header. No submission may have a key
// in the form that Belay uses for contents.
func TestSubmissionsByContent(t *testing.T) {
	s := serve(t, httpapi.Options{})
	submit := func(status int, input, more string) (x belay.Execution) {
		t.Helper()
		body := `{"workflow": "w", "idempotency": "content", "input": ` + input + more + `}`
		a := s.want(status, &x, http.MethodPost, "/v1/executions", body)
		if replayed := a.Header.Get("Idempotency-Replayed"); (replayed == "true") != (status == http.StatusOK) {
			t.Errorf("status %d, replayed %q", a.StatusCode, replayed)
		}
		return x
	}
	first := submit(http.StatusCreated, `{"a": 1, "b": [1200, "x"]}`, "")
	if again := submit(http.StatusOK, `{"b": [1.2e3, "\u0078"], "a": 1.0}`, `, "labels": {"a": "b"}`); again.ID != first.ID ||
		len(first.InputsHash) != 64 || len(first.ConfigHash) != 64 || again.InputsHash != first.InputsHash {
		t.Errorf("%+v and %+v", first, again)
	}
	if other := submit(http.StatusCreated, `{"a": 1, "b": [1200, "x"]}`, `, "timeout": "15m"`); other.ID == first.ID ||
		other.InputsHash != first.InputsHash || other.ConfigHash == first.ConfigHash {
		t.Errorf("with another policy %+v", other)
	}
	op := `{"submit": {"workflow": "w", "idempotency": "content", "input": 7}}`
	a := s.want(http.StatusOK, nil, http.MethodPost, "/v1/batch", `{"ops": [`+op+`, `+op+`, `+op+`]}`)
	var batch struct {
		Results []struct{ Submitted belay.Submitted }
	}
	if err := json.Unmarshal(a.body, &batch); err != nil {
		t.Fatal(err)
	}
	created := 0
	for _, r := range batch.Results {
		if r.Submitted.ID != batch.Results[0].Submitted.ID {
			t.Errorf("a second execution in the batch: %s", a.body)
		}
		if !r.Submitted.Replayed {
			created++
		}
	}
	if created != 1 || len(batch.Results) != 3 {
		t.Errorf("%d executions in the batch: %s", created, a.body)
	}
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/executions/"+first.ID.String()+"/cancel", "{}")
	if next := submit(http.StatusCreated, `{"a": 1, "b": [1200, "x"]}`, ""); next.ID == first.ID || next.Key != first.Key {
		t.Errorf("after the cancel %+v", next)
	}
	const path = "/v1/executions"
	s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, path,
		`{"workflow": "w", "idempotency": "content", "idempotency_key": "k"}`)
	s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, path,
		`{"workflow": "w", "idempotency_key": "`+first.Key+`"}`)
	for name, header := range map[string]string{"w": "k", "other": first.Key} {
		body := `{"workflow": "` + name + `", "idempotency": "content"}`
		if name == "other" {
			body = `{"workflow": "other"}`
		}
		a := s.do(http.MethodPost, path, body, "Idempotency-Key", header)
		if a.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s with the key %s: %d %s", body, header, a.StatusCode, a.body)
		}
	}
	for _, bad := range []string{`"Content"`, `"key"`, `1`, `true`, `{}`} {
		if a := s.do(http.MethodPost, path, `{"workflow": "w", "idempotency": `+bad+`}`); a.StatusCode/100 != 4 {
			t.Errorf("idempotency %s: %d %s", bad, a.StatusCode, a.body)
		}
	}
	a = s.do(http.MethodPost, path, `{"workflow": "w", "idempotency": "content", "input": {"a": 1, "a": 2}}`)
	if a.StatusCode/100 != 4 {
		t.Errorf("duplicate members: %d %s", a.StatusCode, a.body)
	}
}
