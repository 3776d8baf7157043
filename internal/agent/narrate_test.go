package agent

import (
	"fmt"
	"testing"
)

// Rule: a line of an agent's structured output is read by itself, and a line of another form is not an agent's.
func TestNarrate(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"assistant","message":{"content":[{"type":"text","text":"Hi"},{"type":"tool_use","name":"Bash",` +
			`"input":{"command":"ls"}}]}}`: `[{text  Hi} {tool Bash {"command":"ls"}}] true`,
		`{"type":"user","message":{"content":[{"type":"tool_result","content":"a\u0000b"}]}}`: "[{tool_result  a\ufffdb}] true",
		`{"type":"result","subtype":"success"}`:                                               "[{result success }] true",
		`{"type":"stream_event","event":{"type":"message_start"}}`:                            "[] true",
		`{"type":"other"}`: "[] false", `{"type":`: "[] false", ``: "[] false", `[1]`: "[] false", `{"type":1}`: "[] false",
		`{"type":"assistant","message":17}`: "[] true",
	} {
		said, known := Narrate([]byte(line))
		if got := fmt.Sprint(said, known); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
