package datadir

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/socket"
)

var quiet = slog.New(slog.DiscardHandler)

// open opens the directory under the name purpose, as one of several processes would.
func open(t *testing.T, dir, purpose string) *Backend {
	t.Helper()
	b, err := Open(t.Context(), dir, Options{Purpose: purpose, Patience: time.Minute, Log: quiet})
	if err != nil {
		t.Fatalf("%s: %v", purpose, err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("%s: close: %v", purpose, err)
		}
	})
	return b
}

// submit submits one execution.
func submit(t *testing.T, b belay.Backend) belay.ExecutionID {
	t.Helper()
	out, err := b.Submit(t.Context(), belay.Submission{Workflow: "w"})
	if err != nil || out[0].Err != nil {
		t.Fatalf("submit: %v, %+v", err, out)
	}
	return out[0].ID
}

// sees checks that b can read the executions and that they are pending.
func sees(t *testing.T, b belay.Backend, ids ...belay.ExecutionID) {
	t.Helper()
	for _, id := range ids {
		if x, err := b.Execution(t.Context(), id); err != nil || x.State != belay.Pending {
			t.Errorf("%s is %s, %v", id, x.State, err)
		}
	}
}

// until waits until the function happened returns true, and fails the test after 20 seconds.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func hosts(all ...*Backend) (n int) {
	for _, b := range all {
		if b.Hosting() {
			n++
		}
	}
	return n
}

// Rule: of several processes that open a data directory, only the first runs an engine, and all see
// the same executions.
func TestTheFirstProcessHostsAndTheOthersJoin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	all := []*Backend{open(t, dir, "a"), open(t, dir, "b"), open(t, dir, "c")}
	if !all[0].Hosting() || hosts(all...) != 1 {
		t.Errorf("%d of the processes host, the first: %t", hosts(all...), all[0].Hosting())
	}
	var ids []belay.ExecutionID
	for _, b := range all {
		ids = append(ids, submit(t, b))
	}
	for _, b := range all {
		sees(t, b, ids...)
	}
	info, err := os.Stat(filepath.Join(dir, socket.Name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
}

// Rule: when the host (the process with the engine) ends, another process becomes the host. Calls
// that wait continue to wait, and calls that begin while there is no host are answered later.
func TestAnotherProcessTakesOver(t *testing.T) {
	dir := t.TempDir()
	a, b, c := open(t, dir, "a"), open(t, dir, "b"), open(t, dir, "c")
	id := submit(t, a)
	type end struct {
		x   belay.Execution
		err error
	}
	waiting := make(chan end, 2)
	for _, w := range []*Backend{b, c} {
		go func() {
			x, err := w.Await(t.Context(), id, time.Minute)
			waiting <- end{x, err}
		}()
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	sees(t, b, id)
	sees(t, c, id)
	until(t, "one of the others hosts", func() bool { return hosts(b, c) == 1 })
	if _, err := b.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionCancel}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := <-waiting; got.err != nil || got.x.State != belay.Cancelled {
			t.Errorf("a call that waited got %s, %v", got.x.State, got.err)
		}
	}
	if _, err := a.Execution(t.Context(), id); belay.CodeOf(err) != belay.CodeUnavailable {
		t.Errorf("a call on the closed Backend got %v", err)
	}
}

// Rule: a host (the process with the engine) that is not a server gives way to a server and
// continues as its client. When the server ends, one of its clients becomes the host.
func TestAHostGivesWayToAServer(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, "a"), open(t, dir, "b")
	ids := []belay.ExecutionID{submit(t, a)}
	h, err := OpenHost(t.Context(), dir, Options{Purpose: "the server", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []belay.Backend{h, a, b} {
		ids = append(ids, submit(t, x))
		sees(t, x, ids...)
	}
	if n := hosts(a, b); n != 0 {
		t.Errorf("%d host beside the server", n)
	}
	_, err = OpenHost(t.Context(), dir, Options{Log: quiet})
	if belay.CodeOf(err) != belay.CodeConflict || !strings.Contains(err.Error(), "the server") {
		t.Errorf("a second server got %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	sees(t, a, ids...)
	sees(t, b, ids...)
	until(t, "one of the others hosts", func() bool { return hosts(a, b) == 1 })
}

// counter is a log that counts the messages of hosts that give way.
type counter struct {
	slog.Handler
	count *atomic.Int64
}

func (c counter) Enabled(context.Context, slog.Level) bool { return true }

func (c counter) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "the engine is left") {
		c.count.Add(1)
	}
	return nil
}

// Rule: the clients of a host (the process with the engine) that gives way read the name of the
// next host and leave the lock to that process. So only one host gives way, and no other client
// becomes the host in the meantime.
func TestClientsLeaveTheLockToTheNextHost(t *testing.T) {
	dir := t.TempDir()
	var gaveWay atomic.Int64
	o := Options{Patience: time.Minute, Log: slog.New(counter{slog.DiscardHandler, &gaveWay})}
	var all []*Backend
	for range 9 {
		b, err := Open(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for range 5 {
		gaveWay.Store(0)
		h, err := OpenHost(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			submit(t, b)
		}
		if n := gaveWay.Load(); n != 1 || hosts(all...) != 0 {
			t.Errorf("%d gave way, %d host beside the server", n, hosts(all...))
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		for _, b := range all { // ensures that each process is a client of h and will read h's good-bye
			submit(t, b)
		}
		until(t, "one of the others hosts", func() bool { return hosts(all...) == 1 })
	}
	for _, b := range all {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Rule: any number of processes may open and close the directory at the same time; no acknowledged
// submission is lost (guarantee G3).
func TestManyProcessesOpenAndCloseWithoutLoss(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	var ids []belay.ExecutionID
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for k := range 3 {
				b, err := Open(t.Context(), dir, Options{
					Purpose: fmt.Sprintf("%d, time %d", i, k), Patience: time.Minute, Log: quiet,
				})
				if err != nil {
					t.Error(err)
					return
				}
				out, err := b.Submit(t.Context(), belay.Submission{Workflow: "w"}, belay.Submission{Workflow: "v"})
				if err != nil || out[0].Err != nil || out[1].Err != nil {
					t.Error(err, out)
				} else {
					mu.Lock()
					ids = append(ids, out[0].ID, out[1].ID)
					mu.Unlock()
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	b := open(t, dir, "afterwards")
	page, err := b.Executions(t.Context(), belay.Filter{Limit: 1000})
	if err != nil || len(page.Executions) != len(ids) || len(ids) != 72 {
		t.Errorf("%d executions of %d, %v", len(page.Executions), len(ids), err)
	}
	sees(t, b, ids...)
	left, err := filepath.Glob(filepath.Join(dir, "*.new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("half-made sockets are left: %v, %v", left, err)
	}
}

// Rule: Dial never makes this process the host (the process with the engine), and reaches the
// present host.
func TestDialNeverHosts(t *testing.T) {
	dir := t.TempDir()
	if _, err := Dial(t.Context(), dir, Options{Log: quiet}); belay.CodeOf(err) != belay.CodeUnavailable {
		t.Errorf("without a host: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("Dial made %v, %v", files, err)
	}
	a := open(t, dir, "a")
	id := submit(t, a)
	c, err := Dial(t.Context(), dir, Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sees(t, c, id)
	b := open(t, dir, "b")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	sees(t, c, id)
	until(t, "the next process hosts", b.Hosting)
}

// Rule: a call that finds no engine ends when its context ends or the Backend is closed, and its
// error is CodeUnavailable.
func TestACallWithoutAnEngineEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(t.Context(), dir, Options{Patience: time.Minute, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	h, err := OpenHost(t.Context(), dir, Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	submit(t, a)
	lock := takeLock(t, dir, h)
	defer lock.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Execution(ctx, belay.ExecutionID{}); belay.CodeOf(err) != belay.CodeUnavailable || ctx.Err() == nil {
		t.Errorf("without an engine: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := a.Execution(t.Context(), belay.ExecutionID{})
		done <- err
	}()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; belay.CodeOf(err) != belay.CodeUnavailable {
		t.Errorf("closed: %v", err)
	}
}
