package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// startMost is the time limit for the start of the command by its supervisor.
const startMost = 30 * time.Second

// Start starts the command c and returns once the command runs. The context applies to the whole
// run: when the context ends, the tree is cancelled, with the context's cause.
//
// If the command cannot be executed, the error is a [*StartError]. An invalid Command, or a
// required isolation that does not work on this machine, causes another error. After any error no
// process is left running.
func Start(ctx context.Context, c Command) (*Tree, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if !ready.Load() {
		return nil, errors.New("this program cannot supervise commands: its main does not begin with process.Main")
	}
	if _, err := c.environment(os.Environ(), nil); err != nil {
		return nil, err
	}
	var err error
	for _, kind := range c.candidates() {
		var t *Tree
		t, err = launch(ctx, c, kind)
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

// launch starts a supervisor with one kind of isolation. The supervisor starts the command.
func launch(ctx context.Context, c Command, kind Isolation) (*Tree, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	t := &Tree{command: c, isolation: kind}
	port, err := t.open()
	if err != nil {
		return nil, err
	}
	env, err := c.environment(os.Environ(), t.proxy.environment(c.ProxyToken, c.Direct))
	if err != nil {
		return nil, err // cannot happen, because Start has checked the variables before
	}
	if err := t.spawn(); err != nil {
		return nil, err
	}
	first, err := t.sendOrder(ctx, order{
		ID: c.ID, Args: c.Args, Dir: c.Dir, Env: env,
		Grace: c.grace(), Isolation: kind, Freezer: c.freezer, User: c.User,
		Owner:  host.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())},
		Limits: c.Limits, Bounds: c.bounds, Writable: c.Writable, Readable: c.Readable, Hidden: c.Hidden, Tmp: c.Tmp,
		Secrets: c.Secrets,
		Helper:  c.Helper, Files: directoriesOf(c.Files), Network: c.Network, Port: port, Insist: c.Insist,
		Without: c.without,
	})
	if err == nil && first.Event == started {
		err = t.proxy.serve(c.Proxy)
	}
	if err == nil {
		switch first.Event {
		case started:
			t.result = Result{
				Code: -1, Isolation: kind, Freezer: first.Freezer, Enforced: first.Walls.Limits,
				Sealed: first.Walls.Seal != "", Walls: first.Walls,
			}
			t.walls = first.Walls
			t.cgroup = cgroup{hierarchy: hierarchy{version: first.Version}, dir: first.Cgroup}
			t.described = t.result.describe(&c)
			t.begin(ctx)
			return t, nil
		case unable:
			err = &unavailable{isolation: kind, reason: first.Text}
		case unwalled:
			err = &WallError{Wall: first.Wall, Isolation: kind, Reason: first.Text}
		case unstarted:
			err = &StartError{Command: c.Args[0], Code: first.Code, Reason: first.Text}
		default:
			err = fmt.Errorf("%w: it began with report %d", ErrLost, first.Event)
		}
	}
	t.abandon()
	return nil, err
}

// spawn starts the supervisor process and passes the supervisor's ends of the socket and of the
// pipes to that process.
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
	if t.wire, err = openWire(os.NewFile(uintptr(pair[0]), "parent")); err != nil {
		return fmt.Errorf("make the supervisor's socket: %w", err)
	}

	cmd := &exec.Cmd{
		Path: ownPath,
		Args: []string{supervisorName, t.command.ID},
		Env: []string{
			Marker + "=" + t.command.ID, filesVariable + "=" + strconv.Itoa(len(t.command.Files)+len(t.proxy.files())),
		},
		Dir:         "/",
		ExtraFiles:  slices.Concat([]*os.File{socket}, t.command.Files, t.proxy.files()),
		SysProcAttr: attributes(t.isolation, t.command.Network),
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
		_ = cmd.Wait() // cmd.ProcessState says how the process ended
		close(t.ended)
	}()
	return nil
}

// attributes returns the namespaces in which the supervisor is started. The supervisor has its own
// session, so that it gets no signals from a terminal. In a new user namespace the supervisor
// writes the id maps itself, because the kernel refuses this to a parent that is not dumpable.
func attributes(kind Isolation, network Network) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if kind == Subreaper {
		return attr
	}
	attr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	if network != HostNetwork {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	if kind == UserNamespace {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		// The supervisor needs these capabilities for mounts, the loopback and root's cgroups; the
		// command gets none of them.
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_DAC_OVERRIDE}
	}
	return attr
}

// sendOrder sends the order and waits for the first report.
func (t *Tree) sendOrder(ctx context.Context, o order) (report, error) {
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

// abandon ends a supervisor whose command was not started or is not needed any more.
func (t *Tree) abandon() {
	_ = t.wire.conn.Close() // the supervisor then kills all processes that it has started
	patience := time.NewTimer(slack)
	defer patience.Stop()
	select {
	case <-t.ended:
	case <-patience.C:
		_ = t.killFromOutside()
	}
	t.closeFiles()
}
