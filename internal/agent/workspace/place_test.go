package workspace

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Rule: consecutive workspaces of a job get the same directory. If another workspace still uses
// that directory, Prepare waits for a moment and then uses another directory.
func TestConsecutiveWorkspacesShareAPlace(t *testing.T) {
	m, source := open(t), repo(t)
	m.placeTimeout = 100 * time.Millisecond
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
			t.Errorf("place %q was accepted", place)
		}
	}
}

// Rule: a Prepare that waits for its directory continues as soon as the workspace that used the
// directory is removed.
func TestPrepareWaitsForItsPlace(t *testing.T) {
	m, source := open(t), repo(t)
	m.placeTimeout = time.Minute
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

// Rule: Sweep does not salvage a workspace whose owner died before Restore had ended. The workspace
// has at most a part of the restored work, and Belay would take that part for newer work.
func TestUnrestoredWorkspaceIsNotSalvaged(t *testing.T) {
	m, source := open(t), repo(t)
	w := prepare(t, m, Spec{ID: "run-1", Repo: source})
	write(t, filepath.Join(w.Dir, "new.txt"), "new\n")
	s, err := m.Salvage(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	for i, restored := range []bool{false, true} {
		id := []string{"run-2", "run-3"}[i]
		next := prepare(t, m, Spec{ID: id, Repo: source, Commit: w.Commit, Unfinished: true})
		write(t, filepath.Join(next.Dir, "half.txt"), "half\n")
		if restored {
			if err := m.Restore(t.Context(), next, s); err != nil {
				t.Fatal(err)
			}
		}
		die(t, next)
		other := reopen(t, m)
		if err := other.Sweep(t.Context(), func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Work(id); (err == nil) != restored {
			t.Errorf("restored %v: the work in it: %v", restored, err)
		}
	}
}

// Rule: if a dead run has left work in a directory that the next run will use, Belay first keeps
// the work under the ID of the dead run. [Manager.Settle] keeps the work; if Settle was not called,
// the next Prepare keeps it.
func TestWorkOfDeadRunIsKeptBeforeItsPlaceIsReused(t *testing.T) {
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
			t.Error("a living workspace was removed")
		}
		if err := next.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
