package agent

import (
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

// readAll has a reader read a text in pieces of a size.
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

// Structured output is read for steps, the final text and the cost, however it
// arrives; what is not understood is passed over.
func TestStructuredOutput(t *testing.T) {
	want := []Progress{
		{Kind: "system", Name: "init"}, {Kind: "text", Text: "I look."}, {Kind: "tool", Name: "Bash", Text: `{"command":"ls"}`},
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
			if diff := cmp.Diff(&Usage{InputTokens: 15, OutputTokens: 7, CostUSD: 0.25, Turns: 2}, r.usage); diff != "" {
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

// Plain output is the answer, also when it begins like something else; of a long
// one the end is kept, in whole characters.
func TestPlainOutput(t *testing.T) {
	for _, output := range []string{"hello\n", "", "\n\n", "{", `{"no":"type"}` + "\nmore", "{ broken\n{\"type\":\"x\"}\n"} {
		for _, piece := range []int{1, 100} {
			r, told := readAll(OutputAuto, output, piece)
			if text, cut := r.text(); text != output || cut || len(told) != 0 || r.usage != nil {
				t.Errorf("%q became %q", output, text)
			}
		}
	}
	r, _ := readAll(OutputPlain, strings.Repeat("ü", maxAnswer), 4001)
	if text, cut := r.text(); !cut || len(text) > maxAnswer || strings.Trim(text, "ü") != "" {
		t.Errorf("%d bytes are kept of a long answer", len(text))
	}
}

// A secret is taken out of output, however it is cut into pieces; one that is a
// part of another, and what only begins like one, are told apart.
func TestSecretsAreTakenOut(t *testing.T) {
	hidden := map[string]string{"LONG": "abcdefghij-1", "INNER": "abcdefgh", "SHORT": "xy"}
	const output = "xy abcdefg abcdefghij-1 abcdefgh! abcdefghij-2 abcdef"
	const want = "xy abcdefg [LONG] [INNER]! [INNER]ij-2 abcdef"
	for piece := 1; piece <= len(output); piece++ {
		h := newHider(hidden)
		var b strings.Builder
		for rest := output; rest != ""; {
			n := min(piece, len(rest))
			b.Write(h.pass([]byte(rest[:n])))
			rest = rest[n:]
		}
		b.Write(h.rest())
		if b.String() != want {
			t.Errorf("in pieces of %d: %q", piece, b.String())
		}
	}
}
