package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

// Rule: belay top shows workers, queues and states, as text and as JSON; no hostile name reaches the screen; with
// colours the text is the same, and its columns are as wide.
func TestTopShowsOneView(t *testing.T) {
	dir := t.TempDir() + "/data"
	b, err := embedded.Open(t.Context(), "sqlite:"+dir)
	if err != nil {
		t.Fatal(err)
	}
	name := "evil\u202egnp\u200b\u2066x"
	_, err = b.OpenWorker(t.Context(), belay.WorkerSpec{
		Name: name, Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Submit(t.Context(), belay.Submission{Workflow: name, Queue: name}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	code, plain, errs := belayIn(t, dir, "top", "--once")
	if code != 0 || !strings.Contains(plain, "pending 1") || !strings.Contains(plain, "0/3") ||
		!strings.Contains(plain, "evil\uFFFDgnp\uFFFD\uFFFDx") {
		t.Fatalf("exit code %d: %s%s", code, plain, errs)
	}
	for _, r := range plain {
		if screen.Hostile(r) && r != '\n' {
			t.Errorf("%U reaches the screen: %q", r, plain)
		}
	}
	_, text, _ := belayIn(t, dir, "top", "-o", "json", "--color", "always")
	var v topView
	if err := json.Unmarshal([]byte(text), &v); err != nil || len(v.Fleet) != 1 || v.Fleet[0].Name != name ||
		len(v.Lanes) != 1 || v.Lanes[0].Pending != 1 || strings.Contains(text, "\x1b") {
		t.Errorf("%v: %s", err, text)
	}
	_, none, _ := belayIn(t, dir, "workers", "ls", "--color", "never")
	_, coloured, _ := belayIn(t, dir, "workers", "ls", "--color", "always")
	if got := screen.Text(coloured); !strings.Contains(coloured, "\x1b[32mopen\x1b[0m  ") ||
		strings.Split(got, "HEARTBEAT")[0] != strings.Split(none, "HEARTBEAT")[0] || strings.Contains(none, "\x1b") {
		t.Errorf("with colours %q, without %q", coloured, none)
	}
	if code, _, _ := belayIn(t, dir, "ls", "--color", "pink"); code != 64 {
		t.Errorf("--color pink: exit code %d", code)
	}
}
