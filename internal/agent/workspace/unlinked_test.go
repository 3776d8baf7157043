//go:build linux

package workspace

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/agent/process"
)

// Rule: a removed file counts towards the usage as long as a process has it open, whether or not
// the run has its own user. It counts once, even if it is open several times. Files in memory do
// not count.
func TestRemovedFilesCount(t *testing.T) {
	for name, own := range map[string]bool{"own user": true, "our user": false} {
		t.Run(name, func(t *testing.T) {
			m := open(t)
			if own {
				giveUsers(t, m)
			}
			w := prepare(t, m, Spec{ID: strings.ReplaceAll(name, " ", "-")})
			before, err := w.Usage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			said := make(chan string, 1)
			tree, err := process.Start(t.Context(), process.Command{
				ID: w.ID, Dir: w.Dir, Inherit: process.Basics(), User: w.User, Writable: []string{w.Dir, w.Home, w.Tmp},
				Tmp: w.Tmp, Grace: -1,
				Args: []string{
					"sh", "-ec", `exec 3>gone 4>>gone; rm gone; dd if=/dev/zero bs=1M count=30 >&3 2>/dev/null; echo ready; sleep 600`,
				},
				Output: func(_ context.Context, c process.Chunk) error { said <- string(c.Data); return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { tree.Kill(nil); <-tree.Done() }()
			select {
			case <-said:
			case <-time.After(30 * time.Second):
				t.Fatal("the job has written nothing")
			}
			after, err := w.Usage(t.Context())
			if grew := after.Bytes - before.Bytes; err != nil || grew < 29<<20 || grew > 32<<20 ||
				after.Files-before.Files != 1 {
				t.Errorf("%+v, then %+v, %v", before, after, err)
			}
			m.Quota = Quota{Bytes: 20 << 20}
			var over *QuotaError
			if err := w.Watch(t.Context()); !errors.As(err, &over) {
				t.Errorf("Watch returned %v", err)
			}
		})
	}
}

// Rule: a file that was removed and closed still counts while a process has it mapped into memory.
func TestRemovedFilesInMemoryCount(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	f, err := os.CreateTemp(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mapped(t, f))
	_, _ = os.Remove(f.Name()), f.Close()
	dev, err := deviceOf(dir)
	if u := unlinked([]int{os.Getpid()}, dev); err != nil || u.Bytes < 1<<20 {
		t.Errorf("%+v, %v", u, err)
	}
}
