package screen

import "testing"

// Rule: only marked words have colours, and other text is made safe.
func TestPaintShowsOnlyMarkedWords(t *testing.T) {
	for in, want := range map[string]string{
		mark("failed") + " x":              "\x1b[31mfailed\x1b[0m x",
		mark("new") + " → " + mark("open"): "new → \x1b[32mopen\x1b[0m",
		"\x1b[31mred\x1b[0m \u202e\xff":    "red \uFFFD\uFFFD", "failed": "failed", mark("Two words"): "Two words",
	} {
		if got := string(Paint([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := Cut("äö"+mark("open"), 4); got != "äö"+mark("op") {
		t.Errorf("%q", got)
	}
}
