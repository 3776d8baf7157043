package test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// targetEnv is the environment variable with the address of the target, for callerProcess.
const targetEnv = "BLACKBOX_TARGET"

// payments is the name of the target that callerProcess calls.
const payments = "payments:charge"

// reason is the reason that an operator gives for forcing the circuit breaker.
const reason = "incident 17"

// slots is the number of executions that callerProcess runs at the same time.
const slots = 5

// callerProcess is a worker whose workflows call a target over HTTP. The run of "charge" fails if the
// call fails; the submission of the execution names the target. The run of "charge in a step" names
// the target in the step that calls it.
func callerProcess() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := client.Dial(ctx, os.Getenv(urlEnv), client.Lazy(), client.Logger(quiet))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{Concurrency: slots, Log: quiet})
	worker.Register(w, "charge", func(ctx context.Context, _ any) (string, error) { return callTarget(ctx) })
	worker.Register(w, "charge in a step", func(ctx context.Context, _ any) (string, error) {
		return workflow.Step(ctx, "charge", callTarget, workflow.Target(payments), workflow.Retry(3, time.Second))
	})
	return errors.Join(w.Run(ctx), b.Close())
}

// callTarget calls the target once.
func callTarget(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv(targetEnv), http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the target answers %s", response.Status)
	}
	return "charged", nil
}

// deadTarget is a target that is down, a server, and a worker that calls the target.
type deadTarget struct {
	*place
	api
	t            *testing.T
	listen       string
	server       *started
	names        string // the fields of a submission that name the target
	down         atomic.Bool
	failed, done atomic.Int64 // the numbers of calls that failed and of calls that succeeded
}

// waysToName are the ways in which an execution names its target, each with fields of a submission.
var waysToName = map[string]string{
	"named at submission": `"workflow":"charge","target":"` + payments + `"`,
	"named in a step":     `"workflow":"charge in a step"`,
	"named in both":       `"workflow":"charge in a step","target":"` + payments + `"`,
}

// newDeadTarget starts the target, the server and the worker.
func newDeadTarget(t *testing.T, names string) *deadTarget {
	t.Helper()
	t.Parallel()
	d := &deadTarget{place: newPlace(t), t: t, listen: freeAddress(t), names: names}
	d.down.Store(true)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if d.down.Load() {
			d.failed.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		d.done.Add(1)
	}))
	t.Cleanup(target.Close)
	d.server, d.api = d.serve("--listen", d.listen)
	d.start(d.role("caller", urlEnv+"="+d.url, targetEnv+"="+target.URL))
	return d
}

// submit submits n executions with a number of attempts.
func (d *deadTarget) submit(n, attempts int) (ids []belay.ExecutionID) {
	d.t.Helper()
	body := fmt.Sprintf(`{%s,"max_attempts":%d}`, d.names, attempts)
	for range n {
		ids = append(ids, parse(d.t, d.want(http.StatusCreated, "POST", "/v1/executions", body).string("id")))
	}
	return ids
}

// ended waits for the end of an execution.
func (d *deadTarget) ended(id belay.ExecutionID) answer {
	d.t.Helper()
	return d.want(http.StatusOK, "GET", "/v1/executions/"+id.String(), "", "Prefer", "wait=50")
}

// gate returns the target's gate, as belay prints it.
func (d *deadTarget) gate() (g belay.GateDetail) {
	d.t.Helper()
	decode(d.t, d.belay("gates", "get", "target:"+payments, "-o", "json").want(0).out, &g)
	return g
}

// allWait waits until n executions wait for the target.
func (d *deadTarget) allWait(n int) {
	d.t.Helper()
	until(d.t, "all executions wait for the target", func() bool { return d.gate().Waiting == n })
}

// killServer kills the server, starts it again on the same data directory and address, and checks
// that the restart has not changed the circuit breaker.
func (d *deadTarget) killServer() {
	d.t.Helper()
	was := d.gate().Breaker
	d.server.signal(syscall.SIGKILL)
	d.server.wait(patience)
	d.server, _ = d.serve("--listen", d.listen)
	if diff := cmp.Diff(was, d.gate().Breaker); diff != "" || was == nil {
		d.t.Errorf("the circuit breaker before and after kill -9 of the server (-before +after):\n%s", diff)
	}
}

// breakers runs the command belay breakers, with which an operator changes the circuit breaker.
func (d *deadTarget) breakers(change string) {
	d.t.Helper()
	d.belay("breakers", change, payments, "--reason", reason).want(0)
}

// succeeded waits until the executions have succeeded, and returns the sum of their attempts before
// the last.
func (d *deadTarget) succeeded(ids []belay.ExecutionID) (charged int) {
	d.t.Helper()
	for _, id := range ids {
		x := d.ended(id)
		if x.string("state") != "succeeded" || x.string("output") != "charged" {
			d.t.Errorf("%s", x.text)
		}
		attempt, _ := x.at("attempt").(float64)
		charged += int(attempt) - 1
	}
	return charged
}

// Rule: while a target is down for 65 s, at most ten calls of 50 executions on five slots reach it,
// with the default settings of the circuit breaker. An execution that waits for the target is
// charged no attempt. A run that calls the target and fails is charged an attempt, unless a step
// names the target. The breaker is the same after kill -9 of the server. All executions finish
// after the target is back. Without -long, an operator closes the breaker, so that the test does
// not wait for the probes.
func TestADeadTargetIsSpared(t *testing.T) {
	t.Parallel()
	for name, gates := range waysToName {
		t.Run(name, func(t *testing.T) {
			d := newDeadTarget(t, gates)
			inStep, began := name != "named at submission", time.Now()
			attempts := 3
			if inStep {
				attempts = 1
			}
			ids := d.submit(50, attempts)
			d.allWait(50)
			if b := d.gate().Breaker; b == nil || b.State != "open" || b.Forced || b.OpenedAt.IsZero() ||
				b.FailureCount != 5 {
				t.Errorf("the circuit breaker is %+v", b)
			}
			d.killServer()
			if *long {
				d.server.after(time.Until(began.Add(65 * time.Second)))
			}
			d.down.Store(false)
			if !*long {
				d.breakers("close")
			}
			charged, calls := d.succeeded(ids), d.failed.Load()
			t.Logf("%d calls reached the target while it was down; all executions finished after %s", calls,
				time.Since(began).Round(time.Millisecond))
			if calls < 5 || calls > 10 {
				t.Errorf("%d calls reached the target while it was down", calls)
			}
			if inStep && charged != 0 || !inStep && charged != int(calls) {
				t.Errorf("%d attempts were charged, after %d calls that failed", charged, calls)
			}
			if n := d.done.Load(); n != 50 {
				t.Errorf("%d calls reached the target after it was back", n)
			}
			if b := d.gate().Breaker; b == nil || b.State != "closed" || b.Forced == *long {
				t.Errorf("the circuit breaker is %+v", b)
			}
		})
	}
}

// Rule: a state that an operator has forced has precedence over the results of calls, and outlives
// kill -9 of the server. A breaker that is forced closed stays closed while every call fails. A
// breaker that is forced open lets no call through, even if the target works, until the operator
// resets the breaker.
func TestAnOperatorForcesACircuitBreaker(t *testing.T) {
	t.Parallel()
	for name, gates := range waysToName {
		t.Run(name, func(t *testing.T) {
			d := newDeadTarget(t, gates)
			d.breakers("close")
			failing := 2 * slots
			if name != "named at submission" {
				failing = slots // each step tries the call three times
			}
			for _, id := range d.submit(failing, 1) {
				if x := d.ended(id); x.string("state") != "failed" {
					t.Errorf("%s", x.text)
				}
			}
			if n := d.failed.Load(); n < 2*slots {
				t.Errorf("%d calls reached a target whose breaker is forced closed", n)
			}
			d.killServer()
			d.forced("closed")
			d.breakers("open")
			d.down.Store(false)
			ids := d.submit(2*slots, 1)
			d.allWait(len(ids))
			d.killServer()
			d.forced("open")
			if n := d.done.Load(); n > 0 || d.gate().Waiting != len(ids) {
				t.Errorf("%d calls reached a target whose breaker is forced open", n)
			}
			d.breakers("auto")
			if charged := d.succeeded(ids); charged != 0 {
				t.Errorf("%d attempts were charged", charged)
			}
			if b := d.gate().Breaker; b == nil || b.State != "closed" || b.Forced {
				t.Errorf("the circuit breaker is %+v", b)
			}
		})
	}
}

// forced checks that an operator has forced this state of the circuit breaker.
func (d *deadTarget) forced(state string) {
	d.t.Helper()
	if b := d.gate().Breaker; b == nil || b.State != state || !b.Forced || b.Reason != reason || b.By == "" {
		d.t.Errorf("the circuit breaker is %+v", b)
	}
}
