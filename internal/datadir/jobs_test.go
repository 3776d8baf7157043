//go:build linux

package datadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/socket"
)

// TestMain lets the test binary also run as a supervisor of jobs and as a job.
func TestMain(m *testing.M) {
	process.Main(process.Helper{Name: "intrude", Run: intrude}, process.Helper{Name: "usurp", Run: usurp})
	os.Exit(m.Run())
}

// intrude is a job that tries each request on the socket of the directory os.Args[1].
func intrude() int {
	dir := os.Args[1]
	o := Options{Purpose: "job", Log: quiet, Patience: time.Second}
	ctx := context.Background()
	b, err := Open(ctx, dir, o)
	if err == nil {
		_, err = b.CreateKey(ctx, belay.KeySpec{Name: "stolen", Scopes: []belay.Scope{belay.ScopeAdmin}})
	}
	fmt.Println("open:", belay.CodeOf(err), err)
	err = socket.AskToYield(ctx, dir, o.judge(), "job")
	fmt.Println("yield:", err)
	err = ask(filepath.Join(dir, socket.Name))
	fmt.Println("health:", err)
	return 0
}

// usurp is a job that hosts the directory os.Args[1] until it is killed.
func usurp() int {
	b, err := Open(context.Background(), os.Args[1], Options{Purpose: "job", Log: quiet})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("serves", b.Hosting())
	select {}
}

func isolations() []process.Isolation {
	if os.Geteuid() != 0 {
		return []process.Isolation{process.UserNamespace, process.Subreaper}
	}
	return []process.Isolation{process.PIDNamespace, process.UserNamespace, process.Subreaper}
}

// inJob starts a helper of this test binary as a process of a job.
func inJob(t *testing.T, kind process.Isolation, out func(string), args ...string) *process.Tree {
	t.Helper()
	tree, err := process.Start(t.Context(), process.Command{
		ID: fmt.Sprintf("datadir-%d-%d", os.Getpid(), time.Now().UnixNano()), Args: args, Helper: true, Dir: "/",
		Isolation: kind, Grace: -1,
		Output: func(_ context.Context, c process.Chunk) error { out(string(c.Data)); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tree.Kill(nil)
		<-tree.Done()
	})
	return tree
}

// Rule: every request of a job's process on the socket is refused at once with the reason, and does
// not make the host (the process with the engine) give way. Other processes are served.
func TestJobsAreNotServed(t *testing.T) {
	for _, kind := range isolations() {
		dir := filepath.Join(t.TempDir(), "data")
		b, err := Open(t.Context(), dir, Options{Purpose: "the host", Log: quiet, InJob: process.InJob})
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		tree := inJob(t, kind, func(s string) { said.WriteString(s) }, "intrude", dir)
		if _, err := tree.Wait(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(said.String(), "\n")
		if !strings.HasPrefix(lines[0], "open: forbidden ") || !strings.Contains(lines[0], "belay keys create") ||
			len(lines) < 3 || lines[1] != "yield: "+socket.ErrRefused.Error() {
			t.Errorf("%s: the job prints\n%s", kind, said.String())
		}
		if keys, err := b.Keys(t.Context()); err != nil || len(keys) > 0 || !b.Hosting() {
			t.Errorf("%s: there are keys %v, %v; hosting: %v", kind, keys, err, b.Hosting())
		}
		other, err := Open(t.Context(), dir, Options{Purpose: "another", Log: quiet, InJob: process.InJob})
		if err != nil {
			t.Fatal(err)
		}
		sees(t, other, submit(t, b))
		if err := errors.Join(other.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
}

// Rule: other processes do not accept a process of a job as the host of a directory (the process
// with the engine).
func TestAJobIsNotAcceptedAsHost(t *testing.T) {
	for _, kind := range isolations() {
		dir := filepath.Join(t.TempDir(), "data")
		serves := make(chan string, 10)
		inJob(t, kind, func(s string) { serves <- s }, "usurp", dir)
		select {
		case s := <-serves:
			if s != "serves true\n" {
				t.Fatalf("%s: %s", kind, s)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the job does not serve")
		}
		_, err := Open(t.Context(), dir, Options{Purpose: "another", Log: quiet, InJob: process.InJob})
		if belay.CodeOf(err) != belay.CodeForbidden || !strings.Contains(err.Error(), "may be a job's") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Rule: a directory that other users may change is refused, also for root. In a directory of
// another user no engine is started, and root uses the engine of the directory's owner.
func TestTheOwnerAndModeOfTheDirectoryAreChecked(t *testing.T) {
	root := t.TempDir()
	fresh := func(mode os.FileMode) string {
		t.Helper()
		dir, err := os.MkdirTemp(root, "data-")
		if err == nil {
			err = os.Chmod(dir, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	tried := func(dir string, patience time.Duration) error {
		b, err := Open(t.Context(), dir, Options{Log: quiet, Patience: patience})
		if err == nil {
			err = b.Close()
		}
		h, err2 := OpenHost(t.Context(), dir, Options{Log: quiet, Patience: patience})
		if err2 == nil {
			err2 = h.Close()
		}
		if (err == nil) != (err2 == nil) || belay.CodeOf(err) != belay.CodeOf(err2) {
			t.Errorf("%s: opened with %v, hosted with %v", dir, err, err2)
		}
		return err
	}
	for mode, good := range map[os.FileMode]bool{0o700: true, 0o755: true, 0o750: true, 0o777: false, 0o770: false,
		0o702: false} {
		dir := fresh(mode)
		err := tried(dir, time.Minute)
		if (err == nil) != good || err != nil && (belay.CodeOf(err) != belay.CodeForbidden ||
			!strings.Contains(err.Error(), "chmod 700 "+dir)) {
			t.Errorf("mode %#o: %v", mode, err)
		}
		if left, _ := os.ReadDir(dir); !good && len(left) > 0 {
			t.Errorf("mode %#o: it was used: %v", mode, left)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	theirs := fresh(0o700)
	if err := os.Chown(theirs, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := tried(theirs, time.Second); !errors.Is(err, socket.ErrForeign) ||
		!strings.Contains(err.Error(), "chown") {
		t.Errorf("of another user: %v", err)
	}
	if left, _ := os.ReadDir(theirs); len(left) > 0 {
		t.Errorf("of another user: it was used: %v", left)
	}
	b := open(t, fresh(0o700), "its owner")
	if err := os.Chown(b.dir, nobody, nobody); err != nil { // now b acts as the engine of the directory's owner
		t.Fatal(err)
	}
	joined, err := Open(t.Context(), b.dir, Options{Log: quiet})
	if err != nil {
		t.Fatalf("root does not reach its owner's engine: %v", err)
	}
	sees(t, joined, submit(t, b))
	if err := joined.Close(); err != nil {
		t.Error(err)
	}
}

// Rule: a client does not connect to a socket that other users may use.
func TestASocketThatOthersMayUseIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	open(t, dir, "the host")
	if err := os.Chmod(filepath.Join(dir, socket.Name), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Dial(t.Context(), dir, Options{Log: quiet})
	if belay.CodeOf(err) == "" || !strings.Contains(fmt.Sprint(err), "chmod 600") {
		t.Errorf("the client connected: %v", err)
	}
}
