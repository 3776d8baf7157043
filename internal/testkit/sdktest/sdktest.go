package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// Open opens a new Backend for one case.
type Open func(t *testing.T) belay.Backend

// Part names the groups of cases whose result depends mostly on the store or the transport: concurrent
// calls, lost calls and replies, and reads. The results of the other groups depend mostly on the
// worker or on the rules of package machine.
var Part = []string{"Children", "Faults", "Races", "Owners", "Keys", "Audit", "Usage", "States", "Details", "Timeline"}

// Run runs the suite against the Backend: only the named groups, or all groups if none is named or
// BELAY_TEST_LONG is set in the environment.
func Run(t *testing.T, open Open, groups ...string) {
	if os.Getenv("BELAY_TEST_LONG") != "" {
		groups = nil
	}
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		{"Steps", steps}, {"Timeline", timeline}, {"Waits", waits}, {"Branches", branches},
		{"Children", children}, {"Control", control},
		{"Output", output}, {"Faults", faults}, {"Fence", fences}, {"Stop", stops}, {"Races", races},
		{"Owners", owners}, {"Keys", keys}, {"Audit", audit}, {"Usage", usage},
		{"Gates", gates}, {"Documents", documents},
		{"Resources", resources}, {"DeadLetters", letters}, {"Repairs", repairs}, {"Runs", runs},
		{"Details", details}, {"States", follows},
		{"Services", services}, {"Replays", replays}, {"Schedules", schedules}, {"Webhooks", webhooks},
		{"Notifications", notifications}, {"NotificationTargets", notificationTargets}, {"Declared", declared},
	} {
		if len(groups) > 0 && !slices.Contains(groups, group.name) {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						e := newEnv(t, open)
						c.test(e)
						// A hook may have begun calls that are not answered although the execution
						// has ended. Wait for the answers before the case's context ends.
						e.settle()
					})
				})
			}
		})
	}
}

type testCase struct {
	name string
	test func(e *env)
}

// env is the environment of a case: the test, the Backend and helpers.
type env struct {
	*testing.T
	b     belay.Backend
	began time.Time
	ctx   context.Context
	ops   int // the number of operation ids made so far
}

func newEnv(t *testing.T, open Open) *env {
	e := &env{T: t, b: open(t), began: time.Now(), ctx: t.Context()}
	t.Cleanup(func() {
		if err := e.b.Close(); err != nil {
			t.Errorf("close the backend: %v", err)
		}
	})
	return e
}

// Boottime returns the clock of the fences: the virtual time of the bubble.
func (e *env) Boottime() time.Duration { return time.Since(e.began) }

// sleep lets virtual time pass and waits until all goroutines are idle.
func (e *env) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// settle waits until all goroutines are idle.
func (e *env) settle() { synctest.Wait() }

// crew is a running worker with its wire.
type crew struct {
	e    *env
	wire *wire
	stop context.CancelFunc
	done chan struct{}
	err  error // the error of the worker's Run, once done is closed

	crashed atomic.Bool
}

// hire starts a worker. The worker stops at the end of the case at the latest.
func (e *env) hire(register func(w *worker.Worker), change ...func(*worker.Options)) *crew {
	e.Helper()
	c := &crew{e: e, wire: &wire{Backend: e.b}, done: make(chan struct{})}
	o := worker.Options{Name: "test", Clock: e, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	w := worker.New(c.wire, o)
	register(w)
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() {
		defer close(c.done)
		c.err = w.Run(ctx)
	}()
	e.Cleanup(func() {
		if !c.crashed.Load() {
			c.wire.set(nil)
		}
		if err := c.end(); err != nil && !c.crashed.Load() {
			e.Errorf("worker: %v", err)
		}
	})
	return c
}

// end stops the worker and waits until it has ended.
func (c *crew) end() error {
	c.stop()
	<-c.done
	return c.err
}

// crash simulates a crash of the worker: none of its calls reaches the Backend from now on, and the
// contexts of its functions end.
func (c *crew) crash() {
	c.crashed.Store(true)
	c.wire.set(func(_ context.Context, c call) error {
		if c.op == "open" {
			return errDead
		}
		return errGone
	})
}

// register returns a function that registers one workflow, for a call of hire.
func register[In, Out any](name string, fn func(context.Context, In) (Out, error)) func(*worker.Worker) {
	return func(w *worker.Worker) { worker.Register(w, name, fn) }
}

// start submits an execution of workflow "w".
func (e *env) start(input any, opts ...belay.SubmitOption) belay.ExecutionID {
	e.Helper()
	h, err := workflow.Start[json.RawMessage](e.ctx, e.b, "w", input, opts...)
	if err != nil {
		e.Fatalf("start: %v", err)
	}
	return h.ID()
}

// patience is how long a case waits for a result before it fails, in virtual time.
const patience = 6 * time.Hour

// result waits for the end of an execution and returns its output or error.
func result[T any](e *env, id belay.ExecutionID) (T, error) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	v, err := workflow.Attach[T](e.b, id).Result(ctx)
	if ctx.Err() != nil {
		e.Fatalf("no result within %s: %+v\n%s", patience, e.get(id), e.history(id))
	}
	return v, err
}

// want checks that the execution succeeds with the given output.
func want[T comparable](e *env, id belay.ExecutionID, output T) {
	e.Helper()
	got, err := result[T](e, id)
	if err != nil || got != output {
		e.Fatalf("result %v, %v; want %v\n%s", got, err, output, e.history(id))
	}
}

// wantEnd checks that the execution ends in the given state, with the given text in its error.
func wantEnd(e *env, id belay.ExecutionID, state belay.State, text string) *workflow.EndedError {
	e.Helper()
	_, err := result[json.RawMessage](e, id)
	var ended *workflow.EndedError
	if !errors.As(err, &ended) || ended.State != state || !strings.Contains(err.Error(), text) {
		e.Fatalf("ended with %v; want %s with %q\n%s", err, state, text, e.history(id))
	}
	return ended
}

func (e *env) get(id belay.ExecutionID) belay.Execution {
	e.Helper()
	x, err := e.b.Execution(e.ctx, id)
	if err != nil {
		e.Fatalf("read %s: %v", id, err)
	}
	return x
}

// wantState checks the state of the execution when all goroutines are idle.
func (e *env) wantState(id belay.ExecutionID, state belay.State) belay.Execution {
	e.Helper()
	e.settle()
	x := e.get(id)
	if x.State != state {
		e.Fatalf("state %s, want %s\n%s", x.State, state, e.history(id))
	}
	return x
}

// kinds returns the events of an execution, each as its kind or kind:name.
func (e *env) kinds(id belay.ExecutionID) []string {
	e.Helper()
	events, err := e.b.Events(e.ctx, belay.EventQuery{Execution: id})
	if err != nil {
		e.Fatalf("events of %s: %v", id, err)
	}
	var out []string
	for i, ev := range events {
		if ev.Seq != int64(i+1) {
			e.Errorf("event %d has seq %d: history must be gapless", i+1, ev.Seq)
		}
		s := ev.Kind
		if ev.Name != "" && ev.Kind != "submitted" {
			s += ":" + ev.Name
		}
		out = append(out, s)
	}
	return out
}

func (e *env) history(id belay.ExecutionID) string {
	events, err := e.b.Events(e.ctx, belay.EventQuery{Execution: id, Data: true})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, ev := range events {
		fmt.Fprintf(&b, "  %d %s %s %s token %d %s %s", ev.Seq, ev.At.Sub(e.began), ev.Kind, ev.Name, ev.Token, ev.Data,
			ev.Text)
		if ev.Error != nil {
			fmt.Fprintf(&b, " error %q", ev.Error.Message)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// count returns the number of events of the kind in the history.
func (e *env) count(id belay.ExecutionID, kind string) int {
	e.Helper()
	n := 0
	for _, k := range e.kinds(id) {
		if k == kind {
			n++
		}
	}
	return n
}

func (e *env) wantKinds(id belay.ExecutionID, kinds ...string) {
	e.Helper()
	if got := e.kinds(id); !slices.Equal(got, kinds) {
		e.Fatalf("history\n%s\nwant %s", e.history(id), strings.Join(kinds, ", "))
	}
}

func (e *env) signal(id belay.ExecutionID, name string, payload any) {
	e.Helper()
	if err := workflow.Attach[any](e.b, id).Signal(e.ctx, name, payload); err != nil {
		e.Fatalf("signal %s: %v", name, err)
	}
}

func (e *env) act(id belay.ExecutionID, a belay.Action) {
	e.Helper()
	if _, err := e.b.Control(e.ctx, belay.Control{Execution: id, Action: a, Actor: "test"}); err != nil {
		e.Fatalf("%s: %v", a, err)
	}
}

// within checks that d is between least and most.
func (e *env) within(what string, d, least, most time.Duration) {
	e.Helper()
	if d < least || d > most {
		e.Errorf("%s: %s, want between %s and %s", what, d, least, most)
	}
}
