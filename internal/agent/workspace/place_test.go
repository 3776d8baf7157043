package workspace

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Rule: workspaces that follow each other are in the same place; one that still has it
// is waited for, and then left alone.
func TestPlaces(t *testing.T) {
	m, source := open(t), repo(t)
	m.patience = 100 * time.Millisecond
	first := prepare(t, m, Spec{ID: "run-1", Place: "job", Repo: source})
	if want := filepath.Join(m.dir, "jobs", "job", "checkout"); first.Dir != want {
		t.Errorf("it is at %s, want %s", first.Dir, want)
	}
	beside := prepare(t, m, Spec{ID: "run-2", Place: "job", Repo: source})
	if want := filepath.Join(m.dir, "jobs", "run-2", "checkout"); beside.Dir != want {
		t.Errorf("beside another it is at %s, want %s", beside.Dir, want)
	}
	if err := first.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := prepare(t, m, Spec{ID: "run-3", Place: "job", Repo: source})
	if third.Dir != first.Dir {
		t.Errorf("after the first it is at %s", third.Dir)
	}
	list, err := m.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range list {
		got = append(got, i.ID+" "+i.Path)
	}
	if diff := cmp.Diff([]string{"run-2 " + beside.Dir, "run-3 " + third.Dir}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := m.Prepare(t.Context(), Spec{ID: "run-3", Place: "other", Repo: source}); err == nil {
		t.Error("two workspaces have one id")
	}
	for _, place := range []string{"../x", ".new-x", "a/b"} {
		if _, err := m.Prepare(t.Context(), Spec{ID: "run-4", Place: place}); err == nil {
			t.Errorf("place %q is taken", place)
		}
	}
}

// Rule: one that waits for its place gets it as soon as it is free.
func TestAPlaceIsWaitedFor(t *testing.T) {
	m, source := open(t), repo(t)
	m.patience = time.Minute
	first := prepare(t, m, Spec{ID: "run-1", Place: "job", Repo: source})
	got := make(chan *Workspace)
	go func() {
		w, err := m.Prepare(t.Context(), Spec{ID: "run-2", Place: "job", Repo: source})
		if err != nil {
			t.Error(err)
		}
		got <- w
	}()
	if err := first.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := <-got
	defer func() { _ = w.Remove(t.Context()) }()
	if w.Dir != first.Dir {
		t.Errorf("it is at %s", w.Dir)
	}
}

// Rule: what a dead run has left at a place is kept under the name of the run before
// the next one has it, by [Manager.Settle] or by the next one itself.
func TestAPlaceOfTheDead(t *testing.T) {
	m, source := open(t), repo(t)
	for i, settle := range []bool{true, false} {
		dead := []string{"run-1", "run-3"}[i]
		w, err := m.Prepare(t.Context(), Spec{ID: dead, Place: "job", Repo: source})
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(w.Dir, "new.txt"), "new\n")
		write(t, filepath.Join(w.Home, "talk"), "so far\n")
		die(t, w)
		other := reopen(t, m)
		all, err := other.Garbage(func(string) bool { return true })
		if err != nil || len(all) != 1 || all[0].ID != dead {
			t.Errorf("garbage: %+v, %v", all, err)
		}
		if settle {
			if err := other.Settle(t.Context(), func(name string) bool { return name == "job" }); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(w.Dir); err == nil {
				t.Error("it is still there")
			}
		}
		next := prepare(t, other, Spec{ID: "run-" + string(rune('5'+i)), Place: "job", Repo: source, Commit: w.Commit})
		if next.Dir != w.Dir {
			t.Errorf("the next is at %s", next.Dir)
		}
		k, err := other.Work(dead)
		if err != nil || k.Files != 1 || len(k.Home) == 0 {
			t.Fatalf("kept: %+v, %v", k, err)
		}
		if err := other.Restore(t.Context(), next, k.Salvage); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(next.Home, "talk"))
		if err != nil || string(raw) != "so far\n" {
			t.Errorf("restored %q, %v", raw, err)
		}
		if err := other.Settle(t.Context(), func(name string) bool { return name == "job" }); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(next.Dir); err != nil {
			t.Error("a living workspace was taken away")
		}
		if err := next.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
