package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// disk is a separate ext4 file system in an image that is mounted through a loop device.
type disk struct {
	t     *testing.T
	image string
	loop  string
	dir   string // the mount point
}

func newDisk(t *testing.T, dir, name string, size int64) *disk {
	t.Helper()
	d := &disk{t: t, image: filepath.Join(dir, name+".img"), dir: filepath.Join(dir, name)}
	if err := errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, size)); err != nil {
		t.Fatal(err)
	}
	d.command("mkfs.ext4", "-q", "-m", "0", d.image)
	d.mount()
	return d
}

func (d *disk) command(name string, args ...string) string {
	d.t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(d.t.Context()), name, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// mount mounts the image. The kernel replays the journal of the file system, as after a power cut.
func (d *disk) mount() {
	d.t.Helper()
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		d.t.Fatal(err)
	}
	d.loop = d.command("losetup", "--find", "--show", d.image)
	d.t.Cleanup(d.unmount)
	d.command("mount", "-t", "ext4", d.loop, d.dir)
}

// unmount unmounts the image. A second call does nothing.
func (d *disk) unmount() {
	if d.loop == "" {
		return
	}
	if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
		d.t.Errorf("unmount %s: %v", d.dir, err)
	}
	d.command("losetup", "--detach", d.loop)
	d.loop = ""
}

// writes returns the device's statistics, which change with every write. busy says that a write is
// in progress.
func (d *disk) writes() (done string, busy bool) {
	text, err := os.ReadFile("/sys/block/" + filepath.Base(d.loop) + "/stat")
	f := strings.Fields(string(text))
	if err != nil || len(f) < 9 {
		d.t.Fatalf("the state of %s: %q %v", d.loop, text, err)
	}
	return strings.Join(f[4:7], " "), f[8] != "0"
}

// cut makes a copy of the disk as a power cut would leave it: with the data that the device has
// received, and without the data that is only in the kernel's memory. cut repeats the copy until
// nothing was written to the device during the copy, so that the copy shows one moment.
func (d *disk) cut(name string) *disk {
	d.t.Helper()
	c := &disk{
		t: d.t, image: filepath.Join(filepath.Dir(d.image), name+".img"), dir: filepath.Join(filepath.Dir(d.image),
			name),
	}
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); _ = pause(d.t.Context(),
		time.Millisecond) {
		before, busy := d.writes()
		if busy {
			continue
		}
		d.command("cp", "--sparse=always", d.image, c.image)
		if after, busy := d.writes(); after == before && !busy {
			return c
		}
	}
	d.t.Fatal("the disk is never at rest")
	return nil
}

// writer submits executions and sends them signals, one call after the other, and records the
// acknowledged writes.
type writer struct {
	*history
	server *server
}

func (w *writer) write(ctx context.Context, r *rand.Rand) {
	b := &recorder{w.server.hasty, "writer", w.history}
	for ctx.Err() == nil {
		s := belay.Submission{
			ID: newExecutionID(), Workflow: "none", Input: fmt.Appendf(nil, "%q", strings.Repeat("i", r.IntN(8<<10))),
		}
		if _, err := b.Submit(ctx, s); err == nil && chance(r, 2) {
			q := belay.SignalRequest{
				Execution: s.ID, Name: signalName, Payload: fmt.Appendf(nil, `"%s"`, s.ID), Op: newOp(),
			}
			_ = b.Signal(ctx, q)
		}
	}
}

// acknowledged returns the writes that were acknowledged before the given time.
func (h *history) acknowledged(by time.Time) (all []entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.told {
		if e.End == ok && e.To.Before(by) {
			all = append(all, e)
		}
	}
	return all
}

// lost looks on a server for all acknowledged writes in the list, and describes each write that is
// missing or has other content.
func lost(ctx context.Context, s *server, all []entry) (out []string) {
	for _, e := range all {
		switch x, err := s.client.Execution(ctx, e.Execution); {
		case err != nil:
			out = append(out, fmt.Sprintf("%s of %s: %v", e.Kind, e.Execution, err))
		case e.Kind == "submit" && !promise.Same(x.Input, e.Data):
			out = append(out, fmt.Sprintf("the input of %s is %.60q", e.Execution, x.Input))
		case e.Kind == "signal":
			there, err := s.client.Signals(ctx, belay.SignalQuery{Execution: e.Execution})
			if err != nil || len(there) != 1 || !bytes.Equal(there[0].Payload, e.Data) {
				out = append(out, fmt.Sprintf("the signals of %s are %v: %v", e.Execution, there, err))
			}
		}
	}
	return out
}

func canLoop() bool {
	return os.Geteuid() == 0 && exec.Command("losetup", "--find").Run() == nil
}

// needsLoop skips a test that needs loop devices.
func needsLoop(t *testing.T) {
	t.Helper()
	if !canLoop() {
		t.Skip("a disk of its own needs root and loop devices")
	}
}

// powerCut is a copy of the disk, and the writes that the server had acknowledged before the copy
// was made.
type powerCut struct {
	disk  *disk
	acked []entry
}

// powerCuts lets writers write to a server on a disk, and cuts the power at random moments. After
// each cut it checks all writes that were acknowledged since the previous cut, and one in twenty of
// the earlier writes. It returns the number of acknowledged writes that it checked, and the writes
// that were lost.
func powerCuts(t *testing.T, cuts int, before ...string) (looked int, missed []string) {
	t.Helper()
	place := t.TempDir()
	d := newDisk(t, place, "disk", 192<<20)
	w := emptyWorld(t, onSQLite, *seedFlag)
	s := w.newServer(0)
	s.data, s.before = filepath.Join(d.dir, "data"), before
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for i := range 8 {
		writing.Go(func() { (&writer{w.history, s}).write(ctx, dice(w.seed, fmt.Sprint("writer", i))) })
	}
	r := dice(w.seed, "cuts")
	var all []powerCut
	var last time.Time
	for i := range cuts {
		// the pause is so short that the test makes thirty cuts before the disk is full
		_ = pause(ctx, between(r, 100*time.Millisecond, 500*time.Millisecond))
		acked, now := w.acknowledged(time.Now()), time.Now()
		acked = slices.DeleteFunc(acked, func(e entry) bool { return e.To.Before(last) && r.IntN(20) > 0 })
		last = now
		if before == nil { // stop the server, since the disk is never idle under load
			s.proc.signal(syscall.SIGSTOP)
		}
		all = append(all, powerCut{d.cut(fmt.Sprint("cut", i)), acked})
		s.proc.signal(syscall.SIGCONT)
	}
	stop()
	writing.Wait()
	s.proc.end(0)
	for _, m := range all {
		m.disk.mount()
		after := w.newServer(0)
		after.data = filepath.Join(m.disk.dir, "data")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := after.start(ctx); err != nil {
			said, _ := os.ReadFile(w.path(after.name + ".log"))
			t.Fatalf("a server does not start on the disk after a power cut: %v\n%s", err, said)
		}
		cancel()
		looked += len(m.acked)
		missed = append(missed, lost(t.Context(), after, m.acked)...)
		after.proc.end(0)
		m.disk.unmount()
	}
	return looked, missed
}

// Rule: after a power cut, the store has every acknowledged write, byte for byte (guarantee G3).
func TestAPowerCutLosesNothing(t *testing.T) {
	needsLoop(t)
	cuts := 2
	if *forFlag > time.Minute {
		cuts = 30
	}
	looked, missed := powerCuts(t, cuts)
	fmt.Fprintf(os.Stdout, "%d power cuts, %d acknowledged writes looked for, %d lost\n", cuts, looked, len(missed))
	for _, m := range missed[:min(len(missed), 10)] {
		t.Errorf("G3: lost with the power: %s", m)
	}
	if looked == 0 {
		t.Error("nothing was acknowledged before a cut")
	}
}

// Rule: a store that does not wait for its disk loses acknowledged writes, and powerCuts finds the
// loss. In this test every fsync of the server returns success without being carried out.
func TestAPowerCutFindsAStoreThatDoesNotSync(t *testing.T) {
	needsLoop(t)
	needsLong(t)
	for _, name := range []string{"strace", "setpriv"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s here", name)
		}
	}
	const calls = "fsync,fdatasync,sync_file_range"
	looked, missed := powerCuts(t, 1, "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace="+calls, "-e",
		"inject="+calls+":retval=0",
		"setpriv", "--pdeathsig", "KILL") // the kernel ends the server when strace ends
	if len(missed) == 0 {
		t.Errorf("nothing was lost of %d acknowledged writes", looked)
	}
}
