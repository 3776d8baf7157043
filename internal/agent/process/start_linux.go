package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startMost bounds how long a supervisor may take to start its command.
const startMost = 30 * time.Second

// Start starts c and returns once the command runs. The context rules over the
// whole run: when it ends, the tree is cancelled, with the context's cause.
//
// A command that cannot be run is a [*StartError]; a Command that makes no sense,
// or an isolation that was forced and is not to be had, is an error of its own
// kind. In every case of an error nothing is left running.
func Start(ctx context.Context, c Command) (*Tree, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if !ready.Load() {
		return nil, errors.New("this program cannot supervise commands: its main does not begin with process.Main")
	}
	env, err := c.environment(os.Environ())
	if err != nil {
		return nil, err
	}
	for _, kind := range c.candidates() {
		var t *Tree
		t, err = launch(ctx, c, env, kind)
		if err == nil {
			return t, nil
		}
		if no := (*unavailable)(nil); !errors.As(err, &no) {
			break
		}
	}
	return nil, fmt.Errorf("run %s: %w", c.ID, err)
}

// candidates lists the kinds of isolation to try, the strongest first.
func (c *Command) candidates() []Isolation {
	switch {
	case c.Isolation != Auto:
		return []Isolation{c.Isolation}
	case os.Geteuid() == 0:
		return []Isolation{PIDNamespace, Subreaper}
	default:
		return []Isolation{UserNamespace, Subreaper}
	}
}

// launch starts a supervisor of one kind and has it start the command.
func launch(ctx context.Context, c Command, env []string, kind Isolation) (*Tree, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	t := &Tree{command: c, isolation: kind}
	if err := t.spawn(); err != nil {
		return nil, err
	}
	first, err := t.commission(ctx, order{
		ID: c.ID, Args: c.Args, Dir: c.Dir, Env: env,
		Grace: c.grace(), Isolation: kind, Freezer: c.freezer, User: c.User,
		Limits: c.Limits, Bounds: c.bounds, Writable: c.Writable, Tmp: c.Tmp, Helper: c.Helper, Files: directoriesOf(c.Files),
	})
	if err == nil {
		switch first.Event {
		case started:
			t.result = Result{Code: -1, Isolation: kind, Freezer: first.Freezer, Enforced: first.Enforced, Sealed: first.Sealed}
			t.cgroup = cgroup{hierarchy: hierarchy{version: first.Version}, dir: first.Cgroup}
			t.described = t.result.describe(&c)
			t.begin(ctx)
			return t, nil
		case unable:
			err = &unavailable{isolation: kind, reason: first.Text}
		case unstarted:
			err = &StartError{Command: c.Args[0], Code: first.Code, Reason: first.Text}
		default:
			err = fmt.Errorf("%w: it began with report %d", ErrLost, first.Event)
		}
	}
	t.abandon()
	return nil, err
}

// spawn starts the supervisor with its end of the socket and of the pipes.
func (t *Tree) spawn() (err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
		if err != nil {
			t.closeFiles()
		}
	}()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make the supervisor's socket: %w", err)
	}
	socket := os.NewFile(uintptr(pair[1]), "supervisor")
	theirs = append(theirs, socket)
	ours := os.NewFile(uintptr(pair[0]), "parent")
	conn, err := net.FileConn(ours)
	_ = ours.Close() // conn has its own
	if err != nil {
		return fmt.Errorf("make the supervisor's socket: %w", err)
	}
	t.wire = newWire(conn)

	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{supervisorName, t.command.ID},
		Env:         []string{Marker + "=" + t.command.ID, filesVariable + "=" + strconv.Itoa(len(t.command.Files))},
		Dir:         "/",
		ExtraFiles:  append([]*os.File{socket}, t.command.Files...),
		SysProcAttr: attributes(t.isolation, t.command.User != nil),
	}
	stdin, err := t.openPipes()
	if err != nil {
		return err
	}
	theirs = append(theirs, stdin, t.pipes[Stdout].write, t.pipes[Stderr].write)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, t.pipes[Stdout].write, t.pipes[Stderr].write
	if err := cmd.Start(); err != nil {
		if t.isolation != Subreaper {
			return &unavailable{isolation: t.isolation, reason: err.Error()}
		}
		return fmt.Errorf("start the supervisor: %w", err)
	}
	t.supervisor = cmd
	t.ended = make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state stays in cmd
		close(t.ended)
	}()
	return nil
}

// attributes makes the supervisor's namespaces, in a session of its own so that no
// terminal's signal reaches it.
func attributes(kind Isolation, user bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	switch kind {
	case PIDNamespace:
		attr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
		if user {
			attr.Cloneflags |= syscall.CLONE_NEWIPC // what one run leaves there, the user's next would find
		}
	case UserNamespace:
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		// Mounting /proc needs it; the supervisor drops it before it starts the command.
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	return attr
}

// commission gives the order and waits for the first report.
func (t *Tree) commission(ctx context.Context, o order) (report, error) {
	type answer struct {
		report
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		if a.err = t.wire.send(o, startMost); a.err == nil {
			a.err = t.wire.dec.Decode(&a.report)
		}
		answers <- a
	}()
	patience := time.NewTimer(startMost)
	defer patience.Stop()
	select {
	case a := <-answers:
		if a.err != nil {
			return report{}, fmt.Errorf("%w before it started the command: %w", ErrLost, a.err)
		}
		return a.report, nil
	case <-ctx.Done():
		return report{}, context.Cause(ctx)
	case <-patience.C:
		return report{}, fmt.Errorf("%w: it did not start the command within %s", ErrLost, startMost)
	}
}

// abandon ends a supervisor whose command is not wanted.
func (t *Tree) abandon() {
	t.wire.conn.Close() // it kills whatever it has started
	patience := time.NewTimer(slack)
	defer patience.Stop()
	select {
	case <-t.ended:
	case <-patience.C:
		_ = t.killFromOutside()
	}
	t.closeFiles()
}
