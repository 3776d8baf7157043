package workflow_test

import (
	"testing"

	"github.com/belaydev/belay/internal/exampletest"
)

// open opens the Backend that an Example runs on.
var open = exampletest.Open

// Every Example holds on both Backends: here they run once more, over HTTP.
func TestExamplesOverHTTP(t *testing.T) { exampletest.OverHTTP(t, 10) }
