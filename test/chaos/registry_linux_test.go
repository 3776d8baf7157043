package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay/registry"
)

// registrar changes a registry, one call after the other, and knows what it was acknowledged.
type registrar struct {
	r        *registry.Registry
	names    map[string]bool // whether the workflow is registered
	swaps    []string        // the swaps that have ended
	problems []error
}

// change registers a workflow or releases an earlier one, and carries out a swap now and then.
func (w *registrar) change(t *testing.T, n int) {
	failed := func(err error) {
		if err != nil {
			w.problems = append(w.problems, err)
		}
	}
	name := fmt.Sprint("w", n)
	_, err := w.r.Register(t.Context(), registry.Registration{Name: name, Recipe: "a", TTL: time.Hour})
	failed(err)
	w.names[name] = err == nil
	if n%3 != 0 {
		self, err := registry.Self()
		failed(err)
		name = fmt.Sprint("w", n-1)
		if w.names[name] {
			failed(w.r.Release(t.Context(), registry.Workflow{Name: name, Owner: self}))
			w.names[name] = false
		}
	}
	if n%5 == 0 {
		s, err := w.r.Begin(t.Context(), "a")
		failed(err)
		if err == nil {
			failed(s.End(t.Context(), nil))
			w.swaps = append(w.swaps, s.Marker().ID)
		}
	}
}

// Rule: after a power cut, the registry has exactly the acknowledged workflows, the state file is
// whole, and the log has the end of each swap whose end was acknowledged.
func TestAPowerCutLosesNoWorkflow(t *testing.T) {
	needsLoop(t)
	cuts := 2
	if *forFlag > time.Minute {
		cuts = 20
	}
	d := newDisk(t, t.TempDir(), "registry", 16<<20)
	r, err := registry.Open(filepath.Join(d.dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	w := &registrar{r: r, names: make(map[string]bool)}
	looked := 0
	for i, n := 0, 0; i < cuts; i++ {
		for range 20 {
			w.change(t, n)
			n++
		}
		// The file system writes its journal some seconds later by itself. So the copy is made at
		// once, and has only what the calls have synced.
		c := d.cut(fmt.Sprint("registry-cut", i))
		c.mount()
		dir := filepath.Join(c.dir, "data")
		s, err := registry.List(t.Context(), dir)
		if err != nil || s.Unsaved != nil || s.Quarantined != nil || s.Swap != nil {
			t.Fatalf("after cut %d: %+v, %v", i, s, err)
		}
		there := make(map[string]bool)
		for _, e := range s.Workflows {
			there[e.Name] = true
		}
		for name, want := range w.names {
			looked++
			if there[name] != want {
				t.Errorf("cut %d: workflow %s is registered: %v, acknowledged: %v", i, name, there[name], want)
			}
		}
		ended := ends(t, filepath.Join(dir, "swap_log.jsonl"))
		for _, id := range w.swaps {
			looked++
			if !ended[id] {
				t.Errorf("cut %d: the log has no end of swap %s", i, id)
			}
		}
		c.unmount()
	}
	for _, err := range w.problems {
		t.Error(err)
	}
	fmt.Fprintf(os.Stdout, "registry: %d power cuts, %d acknowledged changes looked for\n", cuts, looked)
}

// ends returns the swaps whose end is in a log.
func ends(t *testing.T, path string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]bool)
	for line := range strings.Lines(string(data)) {
		var e registry.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("the log has the line %q: %v", line, err)
		}
		if e.Kind == registry.EventDone {
			all[e.Swap] = true
		}
	}
	return all
}
