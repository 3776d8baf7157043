package embedded_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

func open(t *testing.T, dir string) *embedded.Backend {
	t.Helper()
	b, err := embedded.Open(t.Context(), "sqlite:"+dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func shut(t *testing.T, b *embedded.Backend) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func submit(t *testing.T, b belay.Backend) belay.ExecutionID {
	t.Helper()
	out, err := b.Submit(t.Context(), belay.Submission{Workflow: "w", Input: []byte(`{"a":1}`)})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	return out[0].ID
}

// hand is a worker without the worker package: the test itself makes each call of the worker.
type hand struct {
	t *testing.T
	belay.Backend
	id     belay.WorkerID
	number int64
}

func newHand(t *testing.T, b belay.Backend) *hand {
	t.Helper()
	h := &hand{t: t, Backend: b, id: belay.WorkerID(embedded.NewID())}
	if _, err := b.OpenWorker(t.Context(), belay.WorkerSpec{ID: h.id, Name: "hand",
		Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 9}); err != nil {
		t.Fatal(err)
	}
	return h
}

// claim waits for an execution to own.
func (h *hand) claim() belay.Lease {
	h.t.Helper()
	for {
		h.number++
		r, err := h.Claim(h.t.Context(), belay.ClaimRequest{
			Worker: h.id, Number: h.number, Slots: 1, Wait: time.Second,
		})
		if err != nil {
			h.t.Fatal(err)
		}
		if len(r.Assignments) > 0 {
			return r.Assignments[0].Lease
		}
	}
}

// A restored store has the data of the backup and no open session. Its new tokens are larger than all
// earlier tokens. Workers from before the restore get CodeLeaseLost, and other workers continue
// their executions. So one owner writes at a time (G1), no stale write has an effect (G2), and no
// write that the backup has is lost (G3).
func TestARestoreRaisesTokensAndEndsSessions(t *testing.T) {
	dir, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "b.db")
	b := open(t, dir)
	id := submit(t, b)
	old := newHand(t, b)
	mine := old.claim()
	made, err := embedded.Backup(t.Context(), "sqlite:"+dir, to, embedded.CopyOptions{})
	if err != nil || made.Executions != 1 || made.Owned != 1 || made.Sessions != 1 {
		t.Fatalf("%+v, %v", made, err)
	}
	// After the backup, the worker loses the run, and another worker claims the execution.
	if err := b.Bury(t.Context(), old.id, "killed"); err != nil {
		t.Fatal(err)
	}
	highest := newHand(t, b).claim().Token
	if highest <= mine.Token {
		t.Fatalf("token %d after %d", highest, mine.Token)
	}
	shut(t, b)

	elsewhere := filepath.Join(t.TempDir(), "restored")
	done, err := embedded.Restore(t.Context(), to, "sqlite:"+elsewhere, embedded.CopyOptions{})
	if err != nil || done.Ended != 1 || done.Aside != "" || done.Epoch <= made.Epoch {
		t.Fatalf("%+v, %v", done, err)
	}
	b = open(t, elsewhere)
	_, err = b.Heartbeat(t.Context(), belay.Heartbeat{
		Worker: old.id, Holds: []belay.Held{{Execution: id, Token: mine.Token}},
	})
	if belay.CodeOf(err) != belay.CodeLeaseLost || !strings.Contains(err.Error(), "restored from a backup") {
		t.Errorf("the worker from before the restore got %v", err)
	}
	err = b.Settle(t.Context(), belay.Settlement{Lease: mine, Outcome: belay.OutcomeSucceeded})
	if belay.CodeOf(err) != belay.CodeLeaseLost {
		t.Errorf("the result of a worker from before the restore: %v", err)
	}
	again := newHand(t, b).claim()
	if again.Execution != id || again.Token <= highest || again.Token <= done.Epoch {
		t.Errorf("claimed with token %d in epoch %d, after %d", again.Token, done.Epoch, highest)
	}
	events, err := b.Events(t.Context(), belay.EventQuery{Execution: id})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, ev := range events {
		kinds = append(kinds, ev.Kind)
	}
	if got := strings.Join(kinds, " "); got != "submitted started lost started" {
		t.Errorf("its history is %s", got)
	}
}

// Restore refuses a directory that is in use or not empty. With Force it keeps the old database
// complete, and the new epoch (the lower bound of new tokens) is larger than the epochs of the
// backup and of the old database.
func TestARestoreKeepsTheOldDatabase(t *testing.T) {
	dir, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "b.db")
	b := open(t, dir)
	submit(t, b)
	if _, err := embedded.Backup(t.Context(), "sqlite:"+dir, to, embedded.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	later := submit(t, b)
	for _, force := range []bool{false, true} {
		if _, err := embedded.Restore(t.Context(), to, "sqlite:"+dir,
			embedded.CopyOptions{Force: force}); belay.CodeOf(err) != belay.CodeConflict {
			t.Errorf("in use, force %t: %v", force, err)
		}
	}
	crashed(t, dir, b)
	_, err := embedded.Restore(t.Context(), to, "sqlite:"+dir, embedded.CopyOptions{})
	if belay.CodeOf(err) != belay.CodeConflict || !strings.Contains(err.Error(), "--force") {
		t.Errorf("not empty: %v", err)
	}
	first, err := embedded.Restore(t.Context(), to, "sqlite:"+dir, embedded.CopyOptions{Force: true})
	if err != nil || first.Aside == "" || filepath.Dir(first.Aside) != dir {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := embedded.Restore(t.Context(), to, "sqlite:"+dir, embedded.CopyOptions{Force: true})
	if err != nil || second.Epoch <= first.Epoch {
		t.Errorf("the second restore has epoch %d after %d: %v", second.Epoch, first.Epoch, err)
	}
	b = open(t, dir)
	if _, err := b.Execution(t.Context(), later); belay.CodeOf(err) != belay.CodeNotFound {
		t.Errorf("the execution submitted after the backup: %v", err)
	}
	shut(t, b)
	if x, err := open(t, first.Aside).Execution(t.Context(), later); err != nil || string(x.Input) != `{"a":1}` {
		t.Errorf("the old database is not kept: %+v, %v", x, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if n.Name() == "restoring" {
			t.Error("the staging directory is left")
		}
	}
}

// crashed brings a directory into the state after a kill of its engine: the write-ahead log
// contains writes that are not in the database file yet.
func crashed(t *testing.T, dir string, b *embedded.Backend) {
	t.Helper()
	kept := make(map[string][]byte)
	for _, name := range []string{"belay.db", "belay.db-wal"} {
		// Closing a file releases the locks that SQLite has on it in this process. That is harmless
		// here, because no process writes now.
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		kept[name] = text
	}
	shut(t, b)
	for name, text := range kept {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Backup replaces an existing file only with Force, and refuses a file in the data directory
// itself.
func TestBackupRefusesUnsafeTargets(t *testing.T) {
	dir, place := filepath.Join(t.TempDir(), "data"), t.TempDir()
	taken := filepath.Join(place, "taken")
	if err := os.WriteFile(taken, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	url := "sqlite:" + dir
	if _, err := embedded.Backup(t.Context(), url, taken,
		embedded.CopyOptions{}); belay.CodeOf(err) != belay.CodeNotFound {
		t.Errorf("a backup of a missing directory: %v", err)
	}
	submit(t, open(t, dir))
	link := filepath.Join(place, "link")
	if err := os.Symlink(taken, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url, to string
		force   bool
		code    belay.Code
	}{
		{url, taken, false, belay.CodeConflict},
		{url, link, true, belay.CodeInvalid},
		{url, filepath.Join(dir, "b.db"), true, belay.CodeInvalid},
		{url, filepath.Join(dir, "belay.db"), true, belay.CodeInvalid},
		{url, dir, false, belay.CodeInvalid},
		{"postgres://localhost/belay", taken, true, belay.CodeInvalid},
		{"memory:", taken, true, belay.CodeInvalid},
	} {
		if _, err := embedded.Backup(t.Context(), c.url, c.to,
			embedded.CopyOptions{Force: c.force}); belay.CodeOf(err) != c.code {
			t.Errorf("%s to %s, force %t: %v", c.url, c.to, c.force, err)
		}
	}
	if _, err := embedded.Backup(t.Context(), url, filepath.Join(place, "none", "b.db"),
		embedded.CopyOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a directory that is not there: %v", err)
	}
	if text, err := os.ReadFile(taken); err != nil || string(text) != "mine" {
		t.Fatalf("the other file is %q, %v", text, err)
	}
	if _, err := embedded.Backup(t.Context(), url, taken, embedded.CopyOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(taken); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	made, err := embedded.Backup(t.Context(), url, place, embedded.CopyOptions{})
	if err != nil || filepath.Dir(made.File) != place || !strings.HasPrefix(filepath.Base(made.File), "belay-20") {
		t.Errorf("%+v, %v", made, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := embedded.Backup(ctx, url, filepath.Join(place, "never"), embedded.CopyOptions{}); err == nil {
		t.Error("a cancelled backup was made")
	}
	if names, err := filepath.Glob(filepath.Join(place, ".*")); err != nil || len(names) > 0 {
		t.Errorf("%q is left, %v", names, err)
	}
}

// Files that root restores into the directory of another user belong to that user.
func TestARestoreByRootBelongsToTheOwnerOfTheDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can do this")
		return
	}
	dir, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "b.db")
	submit(t, open(t, dir))
	if _, err := embedded.Backup(t.Context(), "sqlite:"+dir, to, embedded.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	theirs := t.TempDir()
	if err := os.Chown(theirs, 65532, 65533); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := embedded.Restore(t.Context(), to, "sqlite:"+theirs,
			embedded.CopyOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(theirs, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); !ok || s.Uid != 65532 || s.Gid != 65533 {
			t.Errorf("%s does not belong to the directory's owner: %+v", path, info.Sys())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
