package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// listenerProcess is a program that contains the engine and a worker, and lets other processes on
// this machine use the engine.
func listenerProcess() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := embedded.Open(ctx, "sqlite:"+os.Getenv("BELAY_DATA"), embedded.Listen(), embedded.Purpose("a shop"))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{Linger: -1})
	worker.Register(w, "refund", func(ctx context.Context, order string) (string, error) {
		err := workflow.Do(ctx, "ask", func(context.Context) error {
			fmt.Fprintln(os.Stderr, "asked for", order)
			return nil
		})
		if err != nil {
			return "", err
		}
		by, err := workflow.WaitSignal[string](ctx, "approved", workflow.Timeout(time.Hour))
		return order + " approved by " + by, err
	})
	fmt.Fprintln(os.Stderr, "ready")
	return errors.Join(w.Run(ctx), b.Close())
}

// Rule: while a program with an engine listens, belay can list, submit, signal and wait in the
// program's data directory. A second engine does not start there, and its error names the program's
// process. After a kill, a new process of the program continues the execution. A program that stops
// gracefully removes its socket.
func TestBelayBesideAProgram(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if err := os.Mkdir(p.data, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.data, "belay.sock")
	program := p.start(p.role("listener"))
	program.says("ready")
	program.until("the program has made its socket", func() bool { return exists(path) })
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	submit := []string{"submit", "refund", "--input", `"order 17"`, "--key", "17"}
	id := p.belay(submit...).want(0).out
	program.says("asked for order 17")
	p.belay("ls").want(0).showing("refund")

	holder := fmt.Sprintf("process %d (a shop) has this data directory", program.cmd.Process.Pid)
	p.start(p.role("listener")).wait(patience).want(1).saying(holder)
	p.belay("serve", "--listen", "127.0.0.1:0").want(belay.CodeConflict.Exit()).saying(holder)
	if !exists(path) {
		t.Fatal("the refused commands have removed the socket")
	}

	program.signal(syscall.SIGKILL)
	program.wait(patience)
	p.belay("ls").want(0).showing("refund")
	program = p.start(p.role("listener"))
	program.says("ready")
	p.belay("signal", id[:len(id)-1], "approved", "--payload", `"ann"`).want(0)
	p.belay(append(submit, "--wait")...).want(0).showing("order 17 approved by ann")

	program.signal(syscall.SIGTERM)
	program.wait(patience).want(0)
	if exists(path) {
		t.Error("the socket is still there")
	}
}

// Rule: a belay run that has the engine hands the data directory over to a program that listens,
// and continues as that program's client.
func TestABelayRunYieldsToAProgram(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if err := os.Mkdir(p.data, 0o700); err != nil {
		t.Fatal(err)
	}
	run := p.start(p.command("run", "--repo", "none", "--", "sh", "-c", "echo begun; until [ -e "+p.path("go")+
		" ]; do sleep 0.05; done; echo done"))
	run.shows("begun")
	program := p.start(p.role("listener"))
	program.says("ready")
	p.start(p.role("listener")).wait(patience).want(1).saying(fmt.Sprintf("process %d (a shop)",
		program.cmd.Process.Pid))
	if err := os.WriteFile(p.path("go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run.wait(patience).want(0).showing("done")
}

// Rule: a program does not listen in a directory that other users may change, and its error says
// so.
func TestNoSocketWhereOthersMayWrite(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	// Chmod sets the mode whatever the umask is.
	if err := errors.Join(os.Mkdir(p.data, 0o700), os.Chmod(p.data, 0o770)); err != nil {
		t.Fatal(err)
	}
	p.start(p.role("listener")).wait(patience).want(1).saying("chmod 700")
	if exists(filepath.Join(p.data, "belay.sock")) || exists(filepath.Join(p.data, "belay.db")) {
		t.Error("the program left a file in the directory")
	}
}
