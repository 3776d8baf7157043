package agentapi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/screen"
)

// Rule: the title of a job is the first line of its prompt that shows anything, in at most 80 characters and 200 bytes,
// without characters that deceive a reader.
func TestTitles(t *testing.T) {
	for prompt, want := range map[string]string{
		"fix the build\nand more":           "fix the build",
		"\n \t\r\n\u200b\n  two\twords ":    "two words",
		"\x1b[31mred\x1b]0;title\x07":       "[31mred]0;title",
		"evil\u202egnp.exe":                 "evilgnp.exe",
		"\xff\xfe":                          "",
		"":                                  "",
		strings.Repeat("a", 1<<20):          strings.Repeat("a", 79) + "…",
		strings.Repeat("a", 80):             strings.Repeat("a", 80),
		strings.Repeat("\n", 1<<20) + "far": "",
		strings.Repeat("世", titleScan/3) + "\nsecond": strings.Repeat("世", 66),
	} {
		got := Title(prompt)
		if got != want {
			t.Errorf("the title of %.40q is %q, want %q", prompt, got, want)
		}
		if len(got) > 200 || !utf8.ValidString(got) || strings.ContainsFunc(got, screen.Hostile) {
			t.Errorf("%q", got)
		}
	}
	mine := map[string]string{"prompt": "mine"}
	if all := labelled(&agent.Prompt{Text: "one"}, mine); all["prompt"] != "mine" || len(all) != 1 {
		t.Errorf("%v", all)
	}
}
