package worker_test

import (
	"testing"

	"github.com/belaydev/belay/internal/testkit/exampletest"
)

// open opens the Backend that the Examples use.
var open = exampletest.Open

// Rule: each Example has the same output on a Backend over HTTP. go test runs the Examples with a
// Backend in this process; this test runs them with a Backend over HTTP.
func TestExamplesOverHTTP(t *testing.T) { exampletest.OverHTTP(t, 3) }
