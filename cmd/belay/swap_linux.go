package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// guardName is argument 0 of a guard: the process of this program that starts the command of a swap,
// and is the ancestor of all processes that the command starts. The guard has the lock of the swap
// open. If belay swap is killed, the guard kills these processes, and ends after them; so no workflow
// registers while one of them may still change the resource.
const guardName = "belay-swap"

// The descriptors of a guard.
const (
	guardLock   = 3 // the lock of the swap
	guardParent = 4 // a pipe whose other end only belay swap has open
)

// endEvery is the interval at which processes that must end get SIGKILL again, until all have ended.
const endEvery = 20 * time.Millisecond

// runGuarded runs the command of a swap in a guard.
func runGuarded(cmd *exec.Cmd, lock *os.File, grace time.Duration) error {
	ours, err := adopt()
	if err != nil {
		return err
	}
	theirs, parent, err := os.Pipe()
	if err != nil {
		return err
	}
	defer parent.Close()
	cmd.Args = append([]string{guardName, grace.String(), cmd.Path}, cmd.Args...)
	cmd.Path, cmd.ExtraFiles = "/proc/self/exe", []*os.File{lock, theirs}
	err = errors.Join(cmd.Start(), theirs.Close())
	if err != nil {
		return err
	}
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		ours.end(0, nil) // the guard itself was killed
	}
	return err
}

// guard is the main function of a guard. In other processes it returns at once.
func guard() {
	if len(os.Args) < 4 || os.Args[0] != guardName {
		return
	}
	grace, err := time.ParseDuration(os.Args[1])
	if err == nil {
		err = runCommand(grace, os.Args[2], os.Args[3:])
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "belay:", err)
	}
	os.Exit(exitOfCommand(err))
}

// runCommand runs the command of a swap until it ends, a signal asks for the end, or belay swap ends.
func runCommand(grace time.Duration, path string, argv []string) error {
	ours, err := adopt()
	if err != nil {
		return err
	}
	unix.CloseOnExec(guardLock)
	unix.CloseOnExec(guardParent)
	orphaned := make(chan struct{})
	go func() {
		defer close(orphaned)
		_, _ = io.Copy(io.Discard, os.NewFile(guardParent, "parent"))
	}()
	asked := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // the command inherits that
			signal.Notify(asked, s)
		}
	}
	// The kernel sends the death signal when the thread that has started the command ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := &exec.Cmd{
		Path: path, Args: argv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-asked:
		ours.end(grace, orphaned)
	case <-orphaned:
		ours.end(0, nil)
	}
	return <-ended
}

// family are the descendants of this process, except for the children that it had before it began to
// adopt orphans, and their descendants.
type family struct{ before []host.Status }

// adopt makes this process the parent of all its descendants whose parents have ended.
func adopt() (family, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return family{}, fmt.Errorf("become the parent of orphans: %w", err)
	}
	table, err := host.Processes()
	return family{before: children(table)}, err
}

func children(table []host.Status) (all []host.Status) {
	for _, p := range table {
		if p.Parent == os.Getpid() {
			all = append(all, p)
		}
	}
	return all
}

// living returns the processes of the family that have not ended.
func (f family) living() ([]host.Status, error) {
	table, err := host.Processes()
	if err != nil {
		return nil, err
	}
	var roots []int
	var all []host.Status
	for _, p := range children(table) {
		if !slices.ContainsFunc(f.before, func(b host.Status) bool { return b.PID == p.PID && b.Start == p.Start }) {
			roots, all = append(roots, p.PID), append(all, p)
		}
	}
	all = append(all, host.Descendants(table, roots...)...)
	return slices.DeleteFunc(all, host.Status.Ended), nil
}

// end ends the family: with SIGTERM, and with SIGKILL when the grace period is over or hurry is
// closed. It returns when all have ended.
func (f family) end(grace time.Duration, hurry <-chan struct{}) {
	over := time.NewTimer(grace)
	defer over.Stop()
	again := time.NewTicker(endEvery)
	defer again.Stop()
	for first, killing := true, grace <= 0; ; first = false {
		all, err := f.living()
		if err == nil && len(all) == 0 {
			return
		}
		for _, p := range all {
			switch {
			case killing:
				_ = p.Signal(syscall.SIGKILL)
			case first:
				_ = p.Signal(syscall.SIGTERM)
				_ = p.Signal(syscall.SIGCONT) // a stopped process handles SIGTERM only after it continues
			}
		}
		select {
		case <-over.C:
			killing = true
		case <-hurry:
			killing, hurry = true, nil
		case <-again.C:
		}
	}
}
