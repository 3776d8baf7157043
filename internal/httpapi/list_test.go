package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// Rule: GET /v1/executions finds executions by a part of the text of the error, and counts them by state.
func TestExecutionsAreFoundByTheirErrorsAndCounted(t *testing.T) {
	s := serve(t, httpapi.Options{})
	failed, other := s.submit(`{"workflow": "w"}`), s.submit(`{"workflow": "w"}`)
	s.want(http.StatusOK, nil, "POST", failed+"/quarantine", `{"reason": "Shard 50%_7 is gone"}`)
	id := func(path string) string { return strings.TrimPrefix(path, "/v1/executions/") }
	for text, want := range map[string]string{"SHARD 50%_7": id(failed), "": id(other), "shard 50xx7": ""} {
		var page belay.Page
		s.want(http.StatusOK, &page, "GET", "/v1/executions?count=true&limit=1&error="+url.QueryEscape(text), "")
		got := ""
		if len(page.Executions) > 0 {
			got = page.Executions[0].ID.String()
		}
		if got != want || page.Counts == nil || page.Counts.More {
			t.Errorf("%q finds %q and counts %+v, want %q", text, got, page.Counts, want)
		}
		if text == "" && (page.Counts.States[belay.Failed] != 1 || page.Counts.States[belay.Pending] != 1) {
			t.Errorf("the counts are %+v", page.Counts)
		}
	}
	long := "/v1/executions?error=" + strings.Repeat("x", belay.MaxErrorText+1)
	s.refused(http.StatusBadRequest, belay.CodeMalformed, "GET", long, "")
}
