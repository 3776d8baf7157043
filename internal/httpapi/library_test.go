package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

// picky accepts texts that begin with the name of the document.
type picky struct{}

func (picky) Check(name, text string) ([]wire.Detail, error) {
	if strings.HasPrefix(text, name) {
		return nil, nil
	}
	return []wire.Detail{{Location: "line 1, column 2", Message: "no"}}, &belay.Error{
		Code: belay.CodeInvalid, Message: "the document has a problem",
	}
}

func (picky) Graph(text, format string) (string, error) { return format + ": " + text, nil }

func put(text string) string {
	b, err := json.Marshal(map[string]string{"text": text, "actor": "root"})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Rule: PUT makes a version only if the text has changed, and the ETag guards against changes of others.
func TestApplyDocumentByHTTP(t *testing.T) {
	s := serve(t, httpapi.Options{Language: picky{}})
	ann := s.withKey("ann", belay.ScopeOperate, belay.ScopeRead)
	const path = "/v1/workflows/nightly"
	var d belay.DocumentApplied
	a := ann.want(http.StatusCreated, &d, http.MethodPut, path, put("nightly one"), "If-None-Match", "*")
	if a.Header.Get("ETag") != `"1"` || a.Header.Get("Location") != path+"/versions/1" || !d.Created || d.CreatedBy != "ann" {
		t.Errorf("%+v, %v", d, a.Header)
	}
	ann.want(http.StatusOK, &d, http.MethodPut, path, put("nightly one"))
	for _, h := range [][]string{{"If-None-Match", "*"}, {"If-Match", `"2"`}, {"If-Match", `"7"`}} {
		ann.refused(http.StatusPreconditionFailed, belay.CodeConflict, http.MethodPut, path, put("nightly two"), h...)
	}
	for _, h := range [][]string{
		{"If-None-Match", `"1"`}, {"If-Match", "1"}, {"If-Match", `W/"1"`}, {"If-Match", `"01"`}, {"If-Match", `"1", "2"`},
		{"If-Match", "*"}, {"If-Match", `"-1"`}, {"If-Match", `"`}, {"If-Match", strings.Repeat("9", 90)},
	} {
		ann.refused(http.StatusBadRequest, belay.CodeMalformed, http.MethodPut, path, put("nightly two"), h...)
	}
	ann.want(http.StatusCreated, &d, http.MethodPut, path, put("nightly two"), "If-Match", `"1"`)
	var got belay.Document
	a = ann.want(http.StatusOK, &got, http.MethodGet, path, "")
	if got.Version != 2 || got.Text != "nightly two" || a.Header.Get("ETag") != `"2"` {
		t.Errorf("%+v", got)
	}
	var diff wire.DocumentDiff
	ann.want(http.StatusOK, &diff, http.MethodGet, path+"/diff", "")
	if diff.From != 1 || diff.To != 2 || !strings.Contains(diff.Diff, "-nightly one") {
		t.Errorf("%+v", diff)
	}
	ann.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodGet, path+"/diff?to=1", "")
	var graph wire.DocumentGraph
	ann.want(http.StatusOK, &graph, http.MethodGet, path+"/versions/1/graph?format=svg", "")
	if graph.Graph != "svg: nightly one" {
		t.Errorf("%+v", graph)
	}
	var v belay.DocumentVersion
	ann.want(http.StatusOK, &v, http.MethodPost, path+"/versions/2/deprecate", `{"reason": "bad", "actor": "root"}`)
	if v.Deprecated == nil || v.Deprecated.By != "ann" || v.Deprecated.Reason != "bad" {
		t.Errorf("%+v", v)
	}
	var list belay.DocumentPage
	ann.want(http.StatusOK, &list, http.MethodGet, "/v1/workflows", "")
	if len(list.Documents) != 1 || list.Documents[0].Default != 1 || list.Documents[0].Newest.Version != 2 {
		t.Errorf("%+v", list)
	}
	ann.refused(http.StatusPreconditionFailed, belay.CodeConflict, http.MethodDelete, path, "", "If-Match", `"1"`)
	ann.want(http.StatusNoContent, nil, http.MethodDelete, path+"/versions/2?reason=bad", "")
	ann.want(http.StatusNoContent, nil, http.MethodDelete, path, "")
	ann.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, path, "")
}

// Rule: a wrong document is refused with its problems, and a hostile name or text with an error that says what is
// wrong.
func TestHostileDocumentsByHTTP(t *testing.T) {
	s := serve(t, httpapi.Options{Language: picky{}})
	var p wire.Problem
	a := s.want(http.StatusUnprocessableEntity, &p, http.MethodPut, "/v1/workflows/nightly", put("x"))
	if len(p.Errors) != 1 || p.Errors[0].Location != "line 1, column 2" {
		t.Errorf("%s", a.body)
	}
	for _, name := range []string{
		"a%2Fb", "%2e%2e", "..%2Fx", "a%00b", "a%40b", "na%C3%AFve", "%E6%97%A5", "a%20b", "-a",
		strings.Repeat("a", 101),
	} {
		path := "/v1/workflows/" + name
		for method, body := range map[string]string{"PUT": put("x"), "GET": "", "DELETE": ""} {
			got, err := s.try(t.Context(), method, path, body)
			if err != nil {
				t.Fatal(err)
			}
			if got.StatusCode < 400 || got.StatusCode >= 500 {
				t.Errorf("%s %s: %d %s", method, path, got.StatusCode, got.body)
			}
		}
	}
	long := "nightly" + strings.Repeat("\n", belay.MaxDocument)
	for _, text := range []string{long, strings.Repeat("a", 10<<20)} {
		s.refused(http.StatusRequestEntityTooLarge, belay.CodePayloadTooLarge, http.MethodPut, "/v1/workflows/nightly",
			put(text))
	}
	s.want(http.StatusCreated, nil, http.MethodPut, "/v1/workflows/nightly", put(long[:belay.MaxDocument]))
	for _, body := range []string{`{}`, `{"text": 1}`, `{"text": null}`, `{"text": "nightly", "x": 1}`, `[]`, `"nightly"`} {
		got, err := s.try(t.Context(), http.MethodPut, "/v1/workflows/nightly", body)
		if err != nil {
			t.Fatal(err)
		}
		if got.StatusCode != http.StatusUnprocessableEntity && got.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, got.StatusCode, got.body)
		}
	}
}

// Rule: a submission by HTTP may name a document; the answer says which version the execution has, and warns of a
// deprecated one. An Admission sees the text.
func TestSubmitADocumentByHTTP(t *testing.T) {
	seen := ""
	s := serve(t, httpapi.Options{Admit: map[string]httpapi.Admission{"document": admitAll(func(x *belay.Submission) {
		seen = string(x.Input)
	})}})
	s.want(http.StatusCreated, nil, http.MethodPut, "/v1/workflows/nightly", put("nightly one"))
	var x belay.Execution
	a := s.want(http.StatusCreated, &x, http.MethodPost, "/v1/executions",
		`{"document": "nightly", "input": {"a": 1}, "idempotency_key": "k"}`)
	if x.Workflow != "document" || x.Labels["document_version"] != "1" || a.Header.Get("Belay-Warning") != "" ||
		!strings.Contains(seen, "nightly one") {
		t.Errorf("%+v; the Admission has seen %s", x, seen)
	}
	s.want(http.StatusCreated, nil, http.MethodPut, "/v1/workflows/nightly", put("nightly two"))
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/workflows/nightly/versions/2/deprecate", `{"reason": "bad"}`)
	a = s.want(http.StatusCreated, &x, http.MethodPost, "/v1/executions", `{"document": "nightly@2"}`)
	if !strings.Contains(a.Header.Get("Belay-Warning"), "bad") {
		t.Errorf("no warning: %v", a.Header)
	}
	a = s.want(http.StatusOK, nil, http.MethodPost, "/v1/batch",
		`{"ops": [{"submit": {"document": "nightly@2"}}, {"submit": {"document": "weekly"}}, {"submit": {}},
		{"submit": {"document": "nightly", "input": {"a": 1.0}, "idempotency_key": "k"}}]}`)
	for _, want := range []string{`"warning":"the version nightly@2 is deprecated: bad"`, "not_found", "invalid", `"replayed":true`} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("the batch's answer lacks %s: %s", want, a.body)
		}
	}
	reader := s.withKey("reader", belay.ScopeRead, belay.ScopeSubmit)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		body := ""
		if method == http.MethodPut {
			body = put("nightly three")
		}
		reader.refused(http.StatusForbidden, belay.CodeForbidden, method, "/v1/workflows/nightly", body)
	}
	reader.want(http.StatusCreated, nil, http.MethodPost, "/v1/executions", fmt.Sprintf(`{"document": %q}`, "nightly"))
}

// admitAll is an Admission that accepts every submission, after see has seen it.
func admitAll(see func(*belay.Submission)) httpapi.Admission {
	return func(_ context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
		see(s)
		return func(belay.ExecutionID) {}, nil
	}
}

// anyDocument accepts every text.
type anyDocument struct{}

func (anyDocument) Check(string, string) ([]wire.Detail, error) { return nil, nil }

func (anyDocument) Graph(text, _ string) (string, error) { return text, nil }
