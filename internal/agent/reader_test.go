package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const conversation = `{"type":"system","subtype":"init"}
{"type":"assistant","message":{"content":[{"type":"text","text":"I look."},{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"a.txt"}]}]}}
not JSON at all
{"type":"unheard of","x":{"y":[1,2]}}
{"type":"assistant","message":{"content":"done"}}
{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"All done.","total_cost_usd":0.25,"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":7}}
`

// readAll passes a text to a reader in pieces of the given size.
func readAll(form, output string, piece int) (*reader, []Progress) {
	var told []Progress
	r := newReader(form, func(p Progress) { told = append(told, p) }, nil)
	for len(output) > 0 {
		n := min(piece, len(output))
		r.write([]byte(output[:n]))
		output = output[n:]
	}
	r.end()
	return r, told
}

// Rule: the reader finds the progress, the final text and the cost in structured output, even if a
// write ends in the middle of a line. It ignores lines of unknown form.
func TestStructuredOutput(t *testing.T) {
	want := []Progress{
		{Kind: "system", Name: "init"}, {Kind: "text", Text: "I look."}, {Kind: "tool", Name: "Bash",
			Text: `{"command":"ls"}`},
		{Kind: "tool_result", Text: "a.txt"}, {Kind: "text", Text: "done"}, {Kind: "result", Name: "success"},
	}
	for _, piece := range []int{1, 7, 1 << 20} {
		for _, form := range []string{OutputAuto, OutputStreamJSON} {
			r, told := readAll(form, conversation, piece)
			if diff := cmp.Diff(want, told); diff != "" {
				t.Errorf("in pieces of %d: %s", piece, diff)
			}
			if text, cut := r.text(); text != "All done." || cut || r.failed {
				t.Errorf("the answer is %q", text)
			}
			if diff := cmp.Diff(&Usage{InputTokens: 15, OutputTokens: 7, CacheReadTokens: 5, CostUSD: 0.25, Turns: 2},
				r.usage); diff != "" {
				t.Error(diff)
			}
		}
	}
	r, _ := readAll(OutputAuto, `{"type":"assistant","message":{"content":"cut o"}}`, 3)
	if text, _ := r.text(); text != "cut o" {
		t.Errorf("without a result the answer is %q", text)
	}
	r, _ = readAll(OutputAuto, `{"type":"result","subtype":"error_max_turns","is_error":true}`+"\n", 5)
	if !r.failed {
		t.Error("an error was not seen")
	}
}

// Rule: plain output as a whole is the answer, even if its beginning looks like structured output.
// A long answer loses its beginning, and no character is split.
func TestPlainOutput(t *testing.T) {
	for _, output := range []string{"hello\n", "", "\n\n", "{", `{"no":"type"}` + "\nmore",
		"{ broken\n{\"type\":\"x\"}\n"} {
		for _, piece := range []int{1, 100} {
			r, told := readAll(OutputAuto, output, piece)
			if text, cut := r.text(); text != output || cut || len(told) != 0 || r.usage != nil {
				t.Errorf("%q gave %q", output, text)
			}
		}
	}
	r, _ := readAll(OutputPlain, strings.Repeat("ü", maxAnswer), 4001)
	if text, cut := r.text(); !cut || len(text) > maxAnswer || strings.Trim(text, "ü") != "" {
		t.Errorf("%d bytes are kept of a long answer", len(text))
	}
}

// denied is the output of Claude Code 2.1.330 in a conversation in which two tools were not
// permitted.
const denied = `{"type":"system","subtype":"init","cwd":"/w","session_id":"3eeacec9-8fd8-4b6a-a54c-79bcb8b8b403","permissionMode":"default"}
{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"echo shelled >> log.txt"}}]},"parent_tool_use_id":null}
{"type":"system","subtype":"permission_denied","tool_name":"Bash","tool_use_id":"t1","message":"Output redirection to '/w/log.txt' needs approval."}
{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"Output redirection needs approval.","is_error":true,"tool_use_id":"t1"}]},"parent_tool_use_id":null}
{"type":"assistant","message":{"id":"m2","content":[{"type":"text","text":"All done."}]},"parent_tool_use_id":null}
{"permission_denials":[{"tool_name":"Bash","tool_use_id":"t1","tool_input":{"command":"echo shelled >> log.txt"}},{"tool_name":"Write","tool_use_id":"t2","tool_input":{"file_path":"/w/new.txt"}}],"is_error":false,"num_turns":3,"subtype":"success","result":"All done.","type":"result"}
`

// Rule: the reader records the id of the conversation, and each denied tool once, even if the agent
// ends without the message result.
func TestDeniedToolsAreNamed(t *testing.T) {
	r, told := readAll(OutputAuto, denied, 7)
	if diff := cmp.Diff([]string{"Bash", "Write"}, r.denied); diff != "" || r.failed {
		t.Errorf("failed: %v; (-want +got):\n%s", r.failed, diff)
	}
	if r.session != "3eeacec9-8fd8-4b6a-a54c-79bcb8b8b403" {
		t.Errorf("the conversation is %q", r.session)
	}
	if !slices.Contains(told, Progress{Kind: "system", Name: "permission_denied", Text: "Bash"}) {
		t.Errorf("progress tells %+v", told)
	}
	early, _, _ := strings.Cut(denied, `{"type":"user"`)
	r, _ = readAll(OutputAuto, early, 1<<20)
	if diff := cmp.Diff([]string{"Bash"}, r.denied); diff != "" {
		t.Errorf("without a result (-want +got):\n%s", diff)
	}
	r, _ = readAll(OutputStreamJSON, strings.Repeat(`{"type":"system","subtype":"permission_denied","tool_name":"`+
		strings.Repeat("x", 5000)+`"}`+"\n", 100), 1<<20)
	if len(r.denied) != 1 || len(r.denied[0]) > maxName {
		t.Errorf("%d tools of %d bytes are named", len(r.denied), len(r.denied[0]))
	}
}

// Rule: a run fails if its agent was denied a tool, even if the agent ends with exit code 0.
func TestADenialIsAFailure(t *testing.T) {
	for _, c := range []struct {
		a    Answer
		err  error
		want string
	}{
		{Answer{Denied: []string{"Bash", "Write"}}, nil,
			"the agent was not permitted to use Bash, Write; see agent.permissions"},
		{Answer{
			Denied: []string{"Bash"}, SaidFailed: true,
		}, nil, "the agent was not permitted to use Bash; see agent.permissions"},
		{
			Answer{Denied: []string{"Bash"}, ExitCode: 1}, errors.New("x"),
			"the agent ended with exit code 1: the agent was not permitted to use Bash; see agent.permissions",
		},
	} {
		err := c.a.judge(t.Context(), c.err)
		if err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v", c.a, err)
		}
	}
}
