package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// slack is how long the parent waits, after the time in which the supervisor should have acted,
// before the parent acts itself.
const slack = 4 * time.Second

// errToldToEnd is the cause in the error of Wait if the run was ended because the supervisor got a
// signal such as SIGTERM.
var errToldToEnd = errors.New("a signal told the supervisor to end")

// Tree is a running command with all processes that the command has started. Its methods may be
// called from any goroutine, any number of times.
type Tree struct {
	command   Command
	isolation Isolation
	cgroup    cgroup // the cgroup of the run; empty without a cgroup
	described string
	walls     Walls
	proxy     *proxy

	supervisor *exec.Cmd
	ended      chan struct{} // closed when the supervisor process has ended
	wire       *wire
	pipes      map[Stream]pipe
	stdin      *os.File

	calls chan call
	done  chan struct{}

	// Only the goroutine of watch uses the following fields, until done is closed.
	result   Result
	err      error
	asked    verb  // the strongest request so far to end the tree
	cause    error // the reason for the end
	timedOut bool  // whether the timeout was the reason
	broken   error // the error that Output returned
	exited   bool  // the command has ended
	left     bool  // all other processes of the run have ended
	clock    stopwatch
	pending  []call // calls of Freeze and Thaw that wait for a reply, in order
	patience *time.Timer
}

// call is a method's request to the goroutine of watch.
type call struct {
	do    verb
	cause error
	reply chan error
}

// begin starts the goroutine that watches the started command.
func (t *Tree) begin(ctx context.Context) {
	t.calls = make(chan call)
	t.done = make(chan struct{})
	t.clock = newStopwatch(t.command.Timeout)
	t.patience = time.NewTimer(0)
	t.patience.Stop()
	go t.feed()
	go t.watch(ctx)
}

// Describe describes the run in one line, for a log: its isolation, user and limits.
func (t *Tree) Describe() string { return t.described }

// Walls lists the walls between the run and the rest of the machine: the restrictions of its
// sandbox.
func (t *Tree) Walls() Walls { return t.walls }

// Supervisor returns the number of the supervisor process. The supervisor ends after all other
// processes of the run, also if this process is killed.
func (t *Tree) Supervisor() int { return t.supervisor.Process.Pid }

// Has reports whether a process belongs to the run: whether it descends from the supervisor, which adopts the orphans
// of the run.
func (t *Tree) Has(pid int) bool {
	const deepest = 1000
	for range deepest {
		if pid == t.Supervisor() {
			return true
		}
		s, err := host.Lookup(pid)
		if err != nil || s.Parent <= 0 {
			return false
		}
		pid = s.Parent
	}
	return false
}

// Done returns a channel that is closed when Wait would return.
func (t *Tree) Done() <-chan struct{} { return t.done }

// Wait returns when the command and all its descendants have ended and their output was delivered.
// The error is nil if the command ended by itself, whatever its exit code. Otherwise the error says
// why the command did not end by itself, and wraps the cause: the cause of the context,
// [ErrTimedOut], the cause given to Kill, or the error of Output. It also wraps [ErrLost] or
// [ErrSurvived] where these apply. The Result has all known facts, even if there is an error.
func (t *Tree) Wait() (Result, error) {
	<-t.done
	return t.result, t.err
}

// Kill kills the whole tree at once, without a grace period, and does not wait for its end. The
// error of Wait wraps the cause; if cause is nil, it wraps ErrKilled.
func (t *Tree) Kill(cause error) {
	if cause == nil {
		cause = ErrKilled
	}
	_ = t.ask(context.Background(), call{do: kill, cause: cause})
}

// Freeze stops every process of the tree and returns when no process of the tree runs. It returns
// [os.ErrProcessDone] if the tree has ended. If Freeze fails, the tree continues to run. If ctx
// ends first, the tree may be frozen or running.
func (t *Tree) Freeze(ctx context.Context) error {
	return t.ask(ctx, call{do: freeze})
}

// Thaw lets a frozen tree continue.
func (t *Tree) Thaw(ctx context.Context) error {
	return t.ask(ctx, call{do: thaw})
}

func (t *Tree) ask(ctx context.Context, c call) error {
	c.reply = make(chan error, 1)
	select {
	case t.calls <- c:
	case <-t.done:
		return os.ErrProcessDone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-c.reply:
		return err
	case <-t.done:
		return os.ErrProcessDone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch is the goroutine that controls the tree from its start to its end.
func (t *Tree) watch(ctx context.Context) {
	defer close(t.done)
	reports := make(chan report)
	go t.listen(reports)
	receiving, stopReceiving := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReceiving()
	broken := make(chan error, 1)
	delivered := make(chan bool, 1)
	go func() {
		delivered <- t.pump(receiving, func(err error) { broken <- fmt.Errorf("deliver output: %w", err) })
	}()

	cancelled := ctx.Done()
	for reports != nil {
		select {
		case r, open := <-reports:
			if !open {
				reports = nil
				continue
			}
			t.take(r)
		case <-cancelled:
			cancelled = nil
			t.end(stop, context.Cause(ctx))
		case t.broken = <-broken:
			t.end(stop, t.broken)
		case <-t.clock.over():
			t.timedOut = t.asked == 0
			t.end(stop, ErrTimedOut)
		case c := <-t.calls:
			t.serve(c)
		case <-t.patience.C:
			_ = t.wire.conn.Close() // this also closes the channel reports
		}
	}
	t.clock.pause()
	t.patience.Stop()
	_ = t.wire.conn.Close()
	survived := t.awaitSupervisor()
	t.proxy.close(t.command.drain())
	t.finish(delivered, stopReceiving)
	if t.broken == nil {
		select {
		case t.broken = <-broken:
		default:
		}
	}
	t.conclude(survived)
}

// listen passes on the supervisor's reports, and closes the channel when the socket is closed.
func (t *Tree) listen(reports chan<- report) {
	defer close(reports)
	for {
		var r report
		if err := t.wire.dec.Decode(&r); err != nil {
			return
		}
		reports <- r
	}
}

// take handles one report of the supervisor.
func (t *Tree) take(r report) {
	switch r.Event {
	case froze, thawed:
		if len(t.pending) == 0 {
			return
		}
		c := t.pending[0]
		t.pending = t.pending[1:]
		if r.Text != "" {
			c.reply <- errors.New(r.Text)
			return
		}
		if r.Event == froze {
			t.clock.pause()
		} else if t.asked == 0 && !t.exited {
			t.clock.resume()
		}
		c.reply <- nil
	case exited:
		t.noteEnd(r)
	case gone:
		t.left = true
		t.result.Stragglers = r.Stragglers
		t.result.Usage = r.Usage
		t.result.Exceeded = r.Exceeded
	}
}

// noteEnd handles the report that the command has ended.
func (t *Tree) noteEnd(r report) {
	status := syscall.WaitStatus(r.Status)
	t.exited = true
	t.result.Code = status.ExitStatus()
	if status.Signaled() {
		t.result.Signal = status.Signal()
		t.result.Code = 128 + int(status.Signal())
	}
	t.result.Duration = r.Elapsed
	if !r.Stopped {
		t.cause, t.timedOut = nil, false // the command ended before the request to end it arrived
	} else if t.cause == nil {
		t.cause = errToldToEnd
	}
	t.clock.pause()
	if t.asked == 0 {
		t.patience.Reset(t.command.grace() + slack)
	}
}

// serve executes one method call.
func (t *Tree) serve(c call) {
	if c.do == kill {
		t.end(kill, c.cause)
		c.reply <- nil
		return
	}
	// If the supervisor has ended, its last reports can still be unread. ask returns when the tree
	// is done.
	if err := t.wire.send(request{Do: c.do}, time.Second); err != nil && !errors.Is(err, syscall.EPIPE) {
		c.reply <- fmt.Errorf("ask the supervisor: %w", err)
		return
	}
	t.pending = append(t.pending, c)
}

// end requests that the supervisor ends the tree, and sets a deadline for the end. It sends a
// request only if the request is stronger than the last one: kill is stronger than stop.
func (t *Tree) end(do verb, cause error) {
	if do <= t.asked {
		return
	}
	t.asked = do
	if t.cause == nil && !t.exited {
		t.cause = cause
	}
	t.clock.pause()
	bound := slack
	if do == stop {
		bound += t.command.grace()
	}
	t.patience.Reset(bound)
	if err := t.wire.send(request{Do: do}, time.Second); err != nil {
		// The supervisor also ends the tree when the socket is closed. Its last reports stay readable.
		_ = t.wire.conn.CloseWrite()
	}
}

// awaitSupervisor waits for the supervisor to end. If the supervisor does not end in time or has
// left processes behind, awaitSupervisor kills the tree from this process.
func (t *Tree) awaitSupervisor() (survived error) {
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	select {
	case <-t.ended:
		if t.left {
			return nil
		}
	case <-patience.C:
	}
	return t.killFromOutside()
}

// finish waits until Output has received all output, for at most the drain time.
func (t *Tree) finish(delivered <-chan bool, stop context.CancelFunc) {
	patience := time.NewTimer(t.command.drain())
	defer patience.Stop()
	select {
	case whole := <-delivered:
		t.result.OutputCut = !whole
		return
	case <-patience.C:
	}
	t.result.OutputCut = true
	stop()
	t.stopReading()
}

// conclude sets the result and the error of Wait.
func (t *Tree) conclude(survived error) {
	if t.stdin != nil {
		_ = t.stdin.Close()
	}
	var problems []error
	if t.cause != nil {
		t.result.TimedOut = t.timedOut
		t.result.Cancelled = !t.timedOut
		problems = append(problems, t.cause)
	}
	if t.broken != nil && !errors.Is(t.cause, t.broken) {
		problems = append(problems, t.broken)
	}
	if !t.exited {
		problems = append(problems, fmt.Errorf("%w: %s", ErrLost, t.supervisorState()))
	}
	if survived != nil {
		problems = append(problems, survived)
	}
	if len(problems) > 0 {
		t.err = fmt.Errorf("run %s: %w", t.command.ID, errors.Join(problems...))
	}
}

// supervisorState describes how the supervisor ended.
func (t *Tree) supervisorState() string {
	select {
	case <-t.ended:
		return t.supervisor.ProcessState.String()
	default:
		return "it is still there"
	}
}
