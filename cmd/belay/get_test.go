package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: belay get shows the internal queue and label of a belay run, and the generation, only with
// -o wide.
func TestGetShowsInternalsOnlyWithWide(t *testing.T) {
	e := &belay.ExecutionDetail{Execution: belay.Execution{
		Workflow: "command", Queue: "run:ex_1", Generation: 2,
		Labels: map[string]string{labelLine: "0a1b", "team": "x"},
	}}
	for _, output := range outputs {
		if output == "json" {
			continue
		}
		var out bytes.Buffer
		a := &app{streams: streams{out: &out, err: &out}, output: output}
		if err := a.show(e, nil, nil, "", ""); err != nil {
			t.Fatal(err)
		}
		for _, internal := range []string{"run:ex_1", "0a1b", "generation"} {
			if shown := strings.Contains(out.String(), internal); shown != (output == "wide") {
				t.Errorf("-o %s shows %q: %v\n%s", output, internal, shown, &out)
			}
		}
		if !strings.Contains(out.String(), "label team") {
			t.Errorf("-o %s lacks the label of the user\n%s", output, &out)
		}
	}
}
