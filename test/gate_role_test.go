package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

const (
	gatedTTL  = 2 * time.Second
	gatedBeat = 400 * time.Millisecond
)

// gatedProcess is a worker that uses a server over HTTP. Each run of its only workflow reports its
// beginning and its end to the run counter of the test.
func gatedProcess() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := client.Dial(ctx, os.Getenv(urlEnv), client.Lazy(), client.Logger(quiet))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{
		Name: os.Getenv(nameEnv), Concurrency: 20, TTL: gatedTTL, Heartbeat: gatedBeat, Grace: -1, Log: quiet,
	})
	worker.Register(w, "gated", gatedRun)
	return errors.Join(w.Run(ctx), b.Close())
}

// gatedRun reports its beginning and its end to the run counter. The counter counts the run as in
// progress until it has acknowledged the end.
func gatedRun(ctx context.Context, millis int) (int, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", os.Getenv(socketEnv))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	replies := bufio.NewReader(c)
	say := func(text string) error {
		if _, err := fmt.Fprintln(c, text); err != nil {
			return err
		}
		reply, err := replies.ReadString('\n')
		if err == nil && reply != "ok\n" {
			err = errors.New("the run counter says " + reply)
		}
		return err
	}
	if err := say(fmt.Sprintf("%s %d", workflow.Execution(ctx), workflow.Token(ctx))); err != nil {
		return 0, err
	}
	select {
	case <-time.After(time.Duration(millis) * time.Millisecond):
	case <-ctx.Done():
	}
	return millis, say("end")
}

// runCounter counts the executions that have a run in progress, without the help of Belay. Each run
// connects to the socket of the counter, and counts as in progress until it reports its end or the
// connection ends. If a process is killed, the kernel ends its connections. An execution counts
// once. If another run of the execution has a higher token, a run does not count, because its lease
// has ended.
type runCounter struct {
	path string
	l    net.Listener
	done sync.WaitGroup

	mu      sync.Mutex
	inside  map[belay.ExecutionID]runInside
	newest  map[belay.ExecutionID]int64 // the highest token of each execution
	begun   int
	highest int // the largest number of executions with a run in progress
	most    int
	broken  []string
}

// runInside is a run in progress.
type runInside struct {
	token int64
	conn  syscall.RawConn
}

func newRunCounter(t *testing.T, path string, most int) *runCounter {
	t.Helper()
	c := &runCounter{
		path: path, most: most,
		inside: make(map[belay.ExecutionID]runInside), newest: make(map[belay.ExecutionID]int64),
	}
	var err error
	if c.l, err = net.Listen("unix", path); err != nil {
		t.Fatal(err)
	}
	c.done.Go(func() {
		for {
			conn, err := c.l.Accept()
			if err != nil {
				return
			}
			c.done.Go(func() {
				defer conn.Close()
				c.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = c.l.Close()
		c.done.Wait()
	})
	return c
}

// serve counts one run.
func (c *runCounter) serve(conn net.Conn) {
	lines := bufio.NewReader(conn)
	var text string
	var token int64
	if _, err := fmt.Fscanf(lines, "%s %d\n", &text, &token); err != nil {
		return // the worker was killed
	}
	id, err := belay.ParseExecutionID(text)
	raw, rerr := conn.(*net.UnixConn).SyscallConn()
	if err := errors.Join(err, rerr); err != nil {
		c.violation("%v", err)
		return
	}
	if !c.begin(id, runInside{token, raw}) {
		fmt.Fprintln(conn, "a later run of the execution has begun")
		return
	}
	defer fmt.Fprintln(conn, "ok")
	defer c.end(id, token)
	fmt.Fprintln(conn, "ok")
	_, _ = lines.ReadString('\n') // returns when the run reports its end, or when the connection ends
}

// begin notes that a run is in progress. It returns false if a later run of the execution has begun.
func (c *runCounter) begin(id belay.ExecutionID, r runInside) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.token < c.newest[id] {
		return false
	}
	c.newest[id], c.inside[id] = r.token, r
	c.begun++
	if len(c.inside) > c.most {
		maps.DeleteFunc(c.inside, func(_ belay.ExecutionID, r runInside) bool { return r.gone() })
	}
	c.highest = max(c.highest, len(c.inside))
	if len(c.inside) > c.most {
		var names []string
		for id, r := range c.inside {
			names = append(names, fmt.Sprintf("%s#%d", id, r.token))
		}
		slices.Sort(names)
		c.broken = append(c.broken, fmt.Sprintf("%d executions had a run in progress: %s", len(names),
			strings.Join(names, " ")))
	}
	return true
}

func (c *runCounter) end(id belay.ExecutionID, token int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside[id].token == token {
		delete(c.inside, id)
	}
}

func (c *runCounter) violation(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, fmt.Sprintf(format, args...))
}

// gone reports whether the process of the run has closed its end of the connection, which the
// counter may not have read yet.
func (r runInside) gone() (gone bool) {
	err := r.conn.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = err == nil && n == 0 || errors.Is(err, syscall.ECONNRESET)
	})
	return gone || err != nil
}

// counts returns how many runs have begun, how many executions have a run in progress, and the
// largest number of these executions at any time.
func (c *runCounter) counts() (begun, inside, highest int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun, len(c.inside), c.highest
}

// violations returns the descriptions of the moments at which more executions had a run in progress
// than the limit allows.
func (c *runCounter) violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.broken)
}
