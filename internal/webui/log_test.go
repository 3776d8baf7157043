package webui

import (
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// The end of a log begins with a whole line, and says that it is only the end, also if one chunk has more than a page
// shows.
func TestTheEndOfALogBeginsWithALine(t *testing.T) {
	f := running()
	f.chunks = []belay.StoredChunk{{Data: []byte(strings.Repeat("a row of the log\n", 4000) + "the last\n")}}
	text := get(t, f, here+id(1).String()).root.class("log")[0].words()
	if !strings.HasPrefix(text, "a row") || !strings.HasSuffix(text, "the last") || len(text) > tailBytes {
		t.Errorf("the log has %d bytes and begins with %.40q", len(text), text)
	}
	if page := get(t, f, here+id(1).String()); !strings.Contains(page.body, "This is the end of the log") {
		t.Error("the page does not say that the log is cut")
	}
}
