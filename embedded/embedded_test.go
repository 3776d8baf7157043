package embedded_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// A data directory has one engine at a time. Until the first engine is closed, Open for a second
// engine returns an error that names the process of the first engine.
func TestADataDirectoryHasOneEngine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first, err := embedded.Open(t.Context(), "sqlite:"+dir, embedded.Purpose("the first"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = embedded.Open(t.Context(), "sqlite:"+dir)
	if belay.CodeOf(err) != belay.CodeConflict || !strings.Contains(err.Error(), fmt.Sprintf("process %d (the first)",
		os.Getpid())) {
		t.Errorf("the second got %v", err)
	}
	if holder := embedded.Holder(dir); !strings.Contains(holder, "the first") {
		t.Errorf("the holder is %q", holder)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if holder := embedded.Holder(dir); holder != "" {
		t.Errorf("after Close the holder is %q", holder)
	}
	second, err := embedded.Open(t.Context(), "sqlite:"+dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// No user other than the owner can read a data directory, and git ignores the directory.
func TestOnlyItsOwnerCanReadADataDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?#%", "data")
	b, err := embedded.Open(t.Context(), "sqlite:"+dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "belay.db"): 0o600,
		filepath.Join(dir, "belay.lock"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, ".gitignore")); err != nil || string(text) != "*\n" {
		t.Errorf(".gitignore %q, %v", text, err)
	}
}

// A submission that an engine has acknowledged is visible to a Reader in the same directory, and to
// the next engine that opens the directory.
func TestAReaderAndTheNextEngineSeeAcknowledgedWrites(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "data")
	if _, err := embedded.OpenReader(t.Context(), url); belay.CodeOf(err) != belay.CodeNotFound {
		t.Errorf("a reader of a missing directory got %v", err)
	}
	b, err := embedded.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Submit(t.Context(), belay.Submission{Workflow: "w", Input: []byte(`{"a":1}`)})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	r, err := embedded.OpenReader(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, c := range []interface {
		Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error)
	}{b, r} {
		x, err := c.Execution(t.Context(), out[0].ID)
		if err != nil || x.State != belay.Pending || string(x.Input) != `{"a":1}` {
			t.Errorf("%T: %+v, %v", c, x, err)
		}
	}
	if _, damage, err := r.Check(t.Context()); err != nil || len(damage) > 0 {
		t.Errorf("damage %v, %v", damage, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err = embedded.Open(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if x, err := b.Execution(t.Context(), out[0].ID); err != nil || x.State != belay.Pending {
		t.Errorf("the next engine has %+v, %v", x, err)
	}
}

// Open refuses a URL that names no store.
func TestOpenRefusesAnInvalidURL(t *testing.T) {
	for _, url := range []string{"", "sqlite:", "mysql://x", "./dir", "sqlite"} {
		if _, err := embedded.Open(t.Context(), url); belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("%q: %v", url, err)
		}
	}
}
