package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// Rule: on a terminal the last line of belay run is green after success and red after any other
// end.
func TestTheColourShowsWhetherTheRunSucceeded(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	for state, colour := range map[belay.State]string{belay.Succeeded: green, belay.Failed: red, belay.Cancelled: red} {
		var out bytes.Buffer
		v := &view{app: &app{streams: streams{out: &out, err: &out}}, tty: true}
		v.finish(&belay.Execution{State: state}, &agent.Result{}, 0)
		if !strings.Contains(out.String(), "\x1b["+colour+"mbelay: "+state.String()) {
			t.Errorf("%s is written as %q", state, out.String())
		}
	}
}
