package worker_test

import (
	"testing"

	"github.com/belaydev/belay/internal/testkit/exampletest"
)

// open opens the Backend that an Example runs on.
var open = exampletest.Open

// Each Example has the same output on a Backend over HTTP. go test runs the Examples in process;
// this test runs them over HTTP.
func TestExamplesOverHTTP(t *testing.T) { exampletest.OverHTTP(t, 3) }
