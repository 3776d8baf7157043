package main

import (
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// Rule: an operator cordons a worker with a reason; the list of workers and explain show the
// operator and the reason until the worker is uncordoned. Belay refuses a reason that is too long
// or has control characters, and the worker stays as it was.
func TestAnOperatorCordonsAWorker(t *testing.T) {
	dir := t.TempDir() + "/data"
	b, err := embedded.Open(t.Context(), "sqlite:"+dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.OpenWorker(t.Context(), belay.WorkerSpec{
		Name: "builder-1", Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 1,
		TTL: belay.Duration(10 * time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Submit(t.Context(), belay.Submission{Workflow: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	id := out[0].ID.String()
	says := func(code int, want string, args ...string) {
		t.Helper()
		got, out, errs := belayIn(t, dir, args...)
		if got != code || !strings.Contains(out+errs, want) {
			t.Errorf("belay %s: exit code %d, want %d and %q in\n%s%s", strings.Join(args, " "), got, code, want,
				out, errs)
		}
	}
	says(65, "has 201 bytes", "workers", "cordon", "builder-1", "--reason", strings.Repeat("r", 201))
	says(65, "control character", "workers", "cordon", "builder-1", "--reason", "a\x1b[2Jb")
	says(0, "open", "workers", "ls")
	says(0, "is cordoned", "workers", "cordon", "builder-1", "--reason", "its disk is failing")
	says(0, "ago by "+actor()+": its disk is failing", "workers", "ls")
	says(0, `"reason": "its disk is failing"`, "workers", "ls", "-o", "json")
	says(0, actor()+" cordoned it", "explain", id)
	says(64, "unknown flag", "workers", "uncordon", "builder-1", "--reason", "why")
	says(0, "is open", "workers", "uncordon", "builder-1")
	if code, out, _ := belayIn(t, dir, "workers", "ls", "-o", "json"); code != 0 || strings.Contains(out, "its disk") {
		t.Errorf("uncordoned, it is %s", out)
	}
}
