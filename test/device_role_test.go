package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
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

// The workflows of the device: one uses it, and the other one changes its mode.
const (
	askWorkflow  = "ask"
	loadWorkflow = "load-mode"
)

// The phases of a change of the device's mode, in their order. The worker reports each of them to the device
// and waits for the answer, so that a test can kill processes exactly there; only in phaseRequested no worker
// has begun. Each of the two steps has an effect at the device, between its begin and its end.
const (
	phaseRequested   = "requested"
	phaseClaimed     = "claimed"
	phaseUnloading   = "unloading"
	phaseUnloaded    = "unloaded"
	phaseUnloadSaved = "unload-saved"
	phaseLoading     = "loading"
	phaseLoaded      = "loaded"
	phaseLoadSaved   = "load-saved"
)

// loaderName is the name of the worker that changes the mode of the device; all others use the device.
const loaderName = "loader"

// deviceProcess is a worker that uses a device or changes its mode.
func deviceProcess() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := client.Dial(ctx, os.Getenv(urlEnv), client.Lazy(), client.Logger(quiet))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{
		Name: os.Getenv(nameEnv), Concurrency: 4, TTL: 10 * time.Second, Heartbeat: 2 * time.Second, Grace: -1,
		Log: quiet,
	})
	if os.Getenv(nameEnv) == loaderName {
		worker.Register(w, loadWorkflow, loadDevice)
	} else {
		worker.Register(w, askWorkflow, askDevice)
	}
	return errors.Join(w.Run(ctx), b.Close())
}

// loadDevice changes the mode of the device in two steps. It sends the number of the change and the token of
// the run along, so that the device can refuse a former owner.
func loadDevice(ctx context.Context, in belay.SwapInput) (string, error) {
	d, err := dialDevice(ctx)
	if err != nil {
		return "", err
	}
	defer d.Close()
	if err := d.report(phaseClaimed, in.Number, int64(workflow.Token(ctx)), in.To); err != nil {
		return "", err
	}
	for _, step := range [][3]string{
		{"unload", phaseUnloading, phaseUnloaded}, {"load", phaseLoading, phaseLoaded},
	} {
		if _, err := workflow.Step(ctx, step[0], func(context.Context) (string, error) {
			return step[0], errors.Join(d.report(step[1]), d.report(step[2]))
		}); err != nil {
			return "", err
		}
		if err := d.report(step[0] + "-saved"); err != nil {
			return "", err
		}
	}
	return in.To, nil
}

// askDevice uses the device in a mode for a moment.
func askDevice(ctx context.Context, mode string) (string, error) {
	return workflow.Step(ctx, "ask", func(ctx context.Context) (string, error) {
		d, err := dialDevice(ctx)
		if err != nil {
			return "", err
		}
		defer d.Close()
		if err := d.report("asking", mode); err != nil {
			return "", err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
		return mode, d.report("asked")
	})
}

// deviceClient is a worker's connection to the device.
type deviceClient struct {
	net.Conn
	replies *bufio.Reader
}

func dialDevice(ctx context.Context) (*deviceClient, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", os.Getenv(socketEnv))
	if err != nil {
		return nil, err
	}
	return &deviceClient{c, bufio.NewReader(c)}, nil
}

// report sends a line and waits for the answer.
func (d *deviceClient) report(words ...any) error {
	if _, err := fmt.Fprintln(d, words...); err != nil {
		return err
	}
	reply, err := d.replies.ReadString('\n')
	if err == nil && reply != "ok\n" {
		err = belay.Permanent(errors.New("the device says " + reply))
	}
	return err
}

// device is a resource outside of Belay that has one mode at a time. It serves workers over a socket, and
// notes each request that Belay must have prevented. A connection counts until it or its process ends.
type device struct {
	l    net.Listener
	done sync.WaitGroup

	mu     sync.Mutex
	mode   string
	number int64 // of the newest change
	token  int64
	loader *deviceUse // the connection that changes the mode
	users  map[*deviceUse]bool
	loads  int
	broken []string
	trap   *trap
}

// deviceUse is a connection to the device.
type deviceUse struct {
	runInside
	doing  string
	number int64
	mode   string // of a change
}

// trap stops the next worker that reports a phase.
type trap struct {
	phase   string
	reached chan struct{} // closed when a worker has reported the phase
	release chan struct{} // the worker waits until it is closed
}

func newDevice(t *testing.T, path string) *device {
	t.Helper()
	d := &device{users: make(map[*deviceUse]bool)}
	var err error
	if d.l, err = net.Listen("unix", path); err != nil {
		t.Fatal(err)
	}
	d.done.Go(func() {
		for {
			c, err := d.l.Accept()
			if err != nil {
				return
			}
			d.done.Go(func() {
				defer c.Close()
				d.serve(c)
			})
		}
	})
	t.Cleanup(func() {
		d.arm("").free()
		_ = d.l.Close()
	})
	return d
}

// arm sets a trap for the next worker that reports a phase.
func (d *device) arm(phase string) *trap {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trap = &trap{phase, make(chan struct{}), make(chan struct{})}
	return d.trap
}

func (tr *trap) free() { close(tr.release) }

func (d *device) serve(c net.Conn) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return
	}
	u := &deviceUse{runInside: runInside{conn: raw}}
	defer d.leave(u)
	for lines := bufio.NewScanner(c); lines.Scan(); {
		words := strings.Fields(lines.Text())
		reply := d.act(u, words)
		if tr := d.sprung(words[0]); tr != nil {
			close(tr.reached)
			<-tr.release
		}
		fmt.Fprintln(c, reply)
	}
}

// sprung returns the trap if it is set for the phase, and removes it.
func (d *device) sprung(phase string) *trap {
	d.mu.Lock()
	defer d.mu.Unlock()
	tr := d.trap
	if tr == nil || tr.phase != phase {
		return nil
	}
	d.trap = nil
	return tr
}

func (d *device) leave(u *deviceUse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.users, u)
	if d.loader == u {
		d.loader = nil
	}
}

// act carries out one request and returns the answer.
func (d *device) act(u *deviceUse, words []string) (reply string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u.doing = strings.Join(words, " ")
	switch words[0] {
	case phaseClaimed:
		if _, err := fmt.Sscan(strings.Join(words[1:], " "), &u.number, &u.token, &u.mode); err != nil {
			return err.Error()
		}
		if u.number < d.number || u.number == d.number && u.token < d.token {
			return "a newer owner changes the mode"
		}
		d.number, d.token = u.number, u.token
		d.alone(u)
		d.loader = u
	case phaseUnloaded, phaseLoaded:
		if u.number != d.number || u.token != d.token {
			return "a newer owner changes the mode"
		}
		if d.mode = ""; words[0] == phaseLoaded {
			d.mode = u.mode
			d.loads++
		}
	case "asking":
		if d.loader != nil && !d.loader.gone() || d.mode != words[1] {
			d.broken = append(d.broken, fmt.Sprintf("%q, and the mode is %q; changed by %+v", u.doing, d.mode,
				d.loader))
		}
		d.users[u] = true
	}
	return "ok"
}

// alone notes a violation if another connection uses the device or changes its mode.
func (d *device) alone(u *deviceUse) {
	if d.loader != nil && !d.loader.gone() {
		d.broken = append(d.broken, fmt.Sprintf("%q, and another owner changes the mode: %q", u.doing, d.loader.doing))
	}
	for x := range d.users {
		if !x.gone() {
			d.broken = append(d.broken, fmt.Sprintf("%q, and the device is in use: %q", u.doing, x.doing))
		}
	}
}

// state returns the mode, the number of loads and the violations.
func (d *device) state() (mode string, loads int, broken []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode, d.loads, d.broken
}
