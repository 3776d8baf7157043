package belay_test

import (
	"testing"

	"github.com/belaydev/belay"
)

// Rule: an execution shows the document and version of its labels only if it runs a document.
func TestDocumentOfAnExecution(t *testing.T) {
	for _, c := range []struct{ workflow, name, version, want string }{
		{"document", "nightly", "3", "nightly@3"},
		{"document", "nightly", "", "nightly"},
		{"document", "", "3", ""},
		{"other", "nightly", "3", ""},
	} {
		e := belay.Execution{Workflow: c.workflow, Labels: map[string]string{}}
		if c.name != "" {
			e.Labels[belay.LabelDocument] = c.name
		}
		if c.version != "" {
			e.Labels[belay.LabelDocumentVersion] = c.version
		}
		if got := e.Document(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
