package agent

import (
	"fmt"
	"strings"
	"testing"
)

// The following formats make the lines of structured output of a conversation.
const (
	begins = `{"type":"stream_event","event":{"type":"message_start","message":{"id":%q}},"parent_tool_use_id":null}`
	opens  = `{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}`
	piece  = `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}}`
	other  = `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}},"parent_tool_use_id":"toolu_1"}`
	thinks = `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":%q}}}`
	whole  = `{"type":"assistant","message":{"id":%q,"content":[{"type":"text","text":%q}]},"parent_tool_use_id":null}`
	nested = `{"type":"assistant","message":{"id":%q,"content":[{"type":"text","text":%q}]},"parent_tool_use_id":"toolu_1"}`
	ends   = `{"type":"result","subtype":"success","result":%q}`
)

func line(form string, values ...any) string { return fmt.Sprintf(form, values...) + "\n" }

// Rule: the texts of an agent are passed on as they arrive. A text that arrives in pieces and again
// as a whole is passed on once. The final text is passed on last. Texts of subagents and thoughts
// are omitted.
func TestAgentTextsArePassedOnOnce(t *testing.T) {
	turn := line(begins, "m1") + line(opens) + line(thinks, "hm") + line(opens) + line(piece, "I ") + line(piece,
		"look.") + line(whole, "m1", "I look.")
	for _, c := range []struct{ name, lines, want, answer string }{
		{"in pieces", turn + line(begins, "m2") + line(opens) + line(piece, "Dö") + line(piece, "ne.") + line(whole,
			"m2", "Döne.") + line(ends, "Döne."), "I look.\n\nDöne.", "Döne."},
		{"whole", line(whole, "m1", "I look.") + line(whole, "m2", "Done.") + line(ends, "Done."), "I look.\n\nDone.",
			"Done."},
		{"two texts in one message", line(begins, "m1") + line(opens) + line(piece, "One.") + line(whole, "m1",
			"One.") + line(opens) + line(piece, "Two.") + line(whole, "m1", "Two.") + line(ends, "Two."),
			"One.\n\nTwo.", "Two."},
		{"pieces of the first only", turn + line(whole, "m2", "Done.") + line(ends, "Done."), "I look.\n\nDone.",
			"Done."},
		{"the same words twice", line(whole, "m1", "Yes.") + line(whole, "m2", "Yes.") + line(ends, "Yes."),
			"Yes.\n\nYes.", "Yes."},
		{"no ids", line(begins, "") + line(piece, "Do") + line(whole, "", "Done.") + line(ends, "Done."), "Done.",
			"Done."},
		{"never whole", line(begins, "m1") + line(piece, "Do") + line(piece, "ne.") + line(ends, "Done."), "Done.",
			"Done."},
		{"a result beside what was said", line(whole, "m1", "I look.") + line(ends, "42"), "I look.\n\n42", "42"},
		{"a result that goes on", line(begins, "m1") + line(piece, "4") + line(ends, "42"), "42", "42"},
		{"a result alone", line(ends, "42"), "42", "42"},
		{"an empty result", line(whole, "m1", "I look.") + line(ends, ""), "I look.", ""},
		{"cut off", turn + line(begins, "m2") + line(opens) + line(piece, "Do"), "I look.\n\nDo", "Do"},
		{"another agent", line(whole, "m1", "I ask.") + line(other, "psst") + line(nested, "m9", "psst") + line(ends,
			"I ask."), "I ask.", "I ask."},
		{"nonsense", `{"type":"stream_event","event":7}` + "\n" + `{"type":"stream_event"}` + "\n" +
			`{"type":"result","result":"a\u0000b"}`, "a\uFFFDb", "a\uFFFDb"},
	} {
		for _, size := range []int{1, 64, 1 << 20} {
			var told strings.Builder
			r := newReader(OutputStreamJSON, func(Progress) {}, func(p []byte) { told.Write(p) })
			for rest := c.lines; rest != ""; {
				n := min(size, len(rest))
				r.write([]byte(rest[:n]))
				rest = rest[n:]
			}
			r.end()
			if answer, _ := r.text(); told.String() != c.want || answer != c.answer {
				t.Errorf("%s, %d bytes at a time: %q was passed on, and the answer is %q", c.name, size, told.String(),
					answer)
			}
		}
	}
}
