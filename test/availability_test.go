package test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
)

const (
	taskTTL  = 2 * time.Second
	taskBeat = 500 * time.Millisecond
)

// task is the input of the workflow "task", whose run makes the file Begun and then waits until
// there is a file Free. The result is the name of the worker.
type task struct {
	Begun string `json:"begun"`
	Free  string `json:"free"`
}

// taskProcess is a worker with one slot, whose only workflow is "task". It reports another machine as
// its host, so that the engine can notice its death only by its missing heartbeats.
func taskProcess() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := client.Dial(ctx, os.Getenv(urlEnv), client.Lazy(), client.Logger(quiet))
	if err != nil {
		return err
	}
	o := worker.Options{
		Name: os.Getenv(nameEnv), Concurrency: 1, TTL: taskTTL, Heartbeat: taskBeat, Grace: patience, Log: quiet,
		Process: belay.Process{Host: "elsewhere.test", PID: os.Getpid()}, Broker: os.Getenv(brokerEnv),
	}
	if os.Getenv(patientEnv) != "" {
		o.TTL = patience
	}
	w := worker.New(b, o)
	worker.Register(w, "task", func(ctx context.Context, in task) (string, error) {
		if err := os.WriteFile(in.Begun, nil, 0o600); err != nil {
			return "", err
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !exists(in.Free) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return os.Getenv(nameEnv), nil
	})
	return errors.Join(w.Run(ctx), b.Close())
}

// tasks is a server to which a test submits executions of the workflow "task".
type tasks struct {
	*place
	api
	t     *testing.T
	terms string // fields of the policy of each task
	vhost string // the virtual host through which executions reach the workers; "" if the workers claim them
}

func newTasks(t *testing.T, args ...string) tasks {
	t.Helper()
	p := newPlace(t)
	_, a := p.serve(args...)
	return tasks{place: p, api: a, t: t}
}

// hire starts a worker and waits until its session is open and executions reach it.
func (s tasks) hire(name string, env ...string) *started {
	s.t.Helper()
	x := s.start(s.role("tasks", append(env, urlEnv+"="+s.url, nameEnv+"="+name)...))
	x.until("the worker is connected", func() bool { return s.state(name) == "open" })
	if s.vhost != "" {
		s.reaches(name)
	}
	return x
}

// state returns the state of a worker's session.
func (s tasks) state(name string) string {
	s.t.Helper()
	if w := s.session(name); !w.ID.IsZero() {
		return w.State.String()
	}
	return ""
}

// session returns the session of a worker, or nothing if there is none.
func (s tasks) session(name string) belay.Worker {
	s.t.Helper()
	r := s.reader()
	defer r.Close()
	all, err := r.Workers(s.t.Context())
	must(s.t, err)
	for _, w := range all {
		if w.Name == name {
			return w
		}
	}
	return belay.Worker{}
}

// submit submits a task. policy has the fields of its policy.
func (s tasks) submit(name, policy string) belay.ExecutionID {
	s.t.Helper()
	fields := ""
	for _, more := range []string{policy, s.terms} {
		if more != "" {
			fields += "," + more
		}
	}
	body := fmt.Sprintf(`{"workflow":"task","input":{"begun":%q,"free":%q}%s}`, s.path(name+".begun"),
		s.path(name+".free"), fields)
	return parse(s.t, s.want(http.StatusCreated, "POST", "/v1/executions", body).string("id"))
}

// begins waits until a worker runs a task.
func (s tasks) begins(name string) {
	s.t.Helper()
	until(s.t, name+" runs", func() bool { return exists(s.path(name + ".begun")) })
}

// free makes the file Free of a task, so that the task succeeds.
func (s tasks) free(name string) {
	s.t.Helper()
	must(s.t, os.WriteFile(s.path(name+".free"), nil, 0o600))
}

// ended waits for the end of an execution.
func (s tasks) ended(id belay.ExecutionID) answer {
	s.t.Helper()
	return s.want(http.StatusOK, "GET", "/v1/executions/"+id.String(), "", "Prefer", "wait=30")
}

// failed checks that an execution fails with this error, and that the part of Belay named by ended
// it.
func (s tasks) failed(id belay.ExecutionID, text, by string) {
	s.t.Helper()
	x := s.ended(id)
	if x.string("state") != "failed" || !strings.HasPrefix(x.string("error", "message"), text) ||
		x.string("error", "failed_by") != by {
		s.t.Errorf("want a failure %q by %s\n%s", text, by, x.text)
	}
}

// finishedBy checks that a worker finishes an execution, and that no attempt was charged before.
func (s tasks) finishedBy(id belay.ExecutionID, worker string) {
	s.t.Helper()
	x := s.ended(id)
	if attempt, _ := x.at("attempt").(float64); x.string("state") != "succeeded" || x.string("output") != worker ||
		attempt != 1 {
		s.t.Errorf("want the output %q of the first attempt\n%s", worker, x.text)
	}
}

// neverStarted checks that no worker has claimed an execution.
func (s tasks) neverStarted(id belay.ExecutionID) {
	s.t.Helper()
	if all := s.history(id); count(all, "started") > 0 {
		s.t.Errorf("a worker has claimed it\n%s", show(all))
	}
}

// The errors of executions that no worker could run.
const (
	notPickedUp = "Execution timeout: worker did not pick up task within timeout"
	noWorkers   = "no workers available"
)

// Rule: the test has each scenario of the requirement "Worker Availability Handling", with workers
// that pull their work. Under the policies that the requirement asks for, the execution fails with
// the error and the failed_by of the requirement. Under the default policy the execution waits or
// runs again, and another worker finishes it.
func TestWorkerAvailability(t *testing.T) {
	t.Parallel()
	for _, c := range append(scenarios, scenario{
		"message expires in queue", []string{"--defaults-start-timeout", "500ms"}, expiresAndFails, expiresAndRecovers,
	}) {
		t.Run(c.name+"/fail", func(t *testing.T) {
			t.Parallel()
			c.fail(newTasks(t, c.toFail...))
		})
		t.Run(c.name+"/recover", func(t *testing.T) {
			t.Parallel()
			c.recover(newTasks(t))
		})
	}
}

// scenario is a scenario of the requirement.
type scenario struct {
	name          string
	toFail        []string // arguments of the server
	fail, recover func(tasks)
}

// scenarios are those that are the same for workers that pull their work and for workers that get messages.
var scenarios = []scenario{
	{"worker stops mid-execution", nil, stopsAndFails, stopsAndRecovers},
	{"worker never picks up the task", nil, neverPicksUpAndFails, neverPicksUpAndRecovers},
	{"all workers down", []string{"--defaults-on-no-worker", "fail"}, allDownAndFails, allDownAndRecovers},
	{"worker stops gracefully", nil, stopsGracefullyAndFails, stopsGracefullyAndRecovers},
}

// stopsAndFails kills one worker, whose execution has the policy on_lost: fail, and stops another,
// whose execution has a run timeout that is over before the worker's session expires.
func stopsAndFails(s tasks) {
	one := s.hire("one")
	lost := s.submit("lost", `"on_lost":"fail"`)
	s.begins("lost")
	two := s.hire("two")
	hung := s.submit("hung", `"run_timeout":"1s","cancel_grace":"100ms","max_attempts":1`)
	s.begins("hung")
	two.signal(syscall.SIGSTOP)
	one.signal(syscall.SIGKILL)
	s.failed(hung, "run timeout: the run lasted longer than 1s", "execution_timeout_monitor")
	s.failed(lost, "worker one was lost: no heartbeat within its TTL of 2s", "reaper")
	if state := s.state("one"); state != "lost" {
		s.t.Errorf("the worker that stopped is %s", state)
	}
}

func stopsAndRecovers(s tasks) {
	one := s.hire("one")
	killed := s.submit("killed", "")
	s.begins("killed")
	two := s.hire("two")
	hung := s.submit("hung", "")
	s.begins("hung")
	two.signal(syscall.SIGSTOP)
	one.signal(syscall.SIGKILL)
	until(s.t, "both workers are lost", func() bool { return s.state("one") == "lost" && s.state("two") == "lost" })
	s.free("killed")
	s.free("hung")
	s.hire("three")
	for _, id := range []belay.ExecutionID{killed, hung} {
		s.finishedBy(id, "three")
		if all := s.history(id); count(all, "lost") != 1 {
			s.t.Errorf("it was not lost once\n%s", show(all))
		}
	}
	two.signal(syscall.SIGCONT)
}

// neverPicksUpAndFails: the only worker is connected and has no free slot.
func neverPicksUpAndFails(s tasks) {
	one := s.hire("one")
	first := s.submit("first", `"start_timeout":"500ms"`)
	s.begins("first")
	second := s.submit("second", `"start_timeout":"500ms"`)
	s.failed(second, notPickedUp, "execution_timeout_monitor")
	s.neverStarted(second)
	s.free("first") // a run that has begun is not subject to the start timeout
	s.finishedBy(first, "one")
	one.signal(syscall.SIGTERM)
	one.wait(patience).want(0)
}

func neverPicksUpAndRecovers(s tasks) {
	s.hire("one")
	first := s.submit("first", "")
	s.begins("first")
	second := s.submit("second", "")
	s.free("second")
	s.failed(s.submit("short", `"start_timeout":"500ms"`), notPickedUp, "execution_timeout_monitor")
	s.neverStarted(second) // no worker claims "second", although it has waited for longer than "short"
	s.hire("two")
	s.finishedBy(second, "two")
	s.free("first")
	s.finishedBy(first, "one")
}

// allDownAndFails: an execution is submitted while no worker is connected; in the second part, the
// last worker dies while one execution runs and another waits for a slot.
func allDownAndFails(s tasks) {
	alone := s.submit("alone", "")
	s.failed(alone, noWorkers, "dispatcher")
	const slow = 30 * time.Second // the default of the setting timeout_check_interval
	if x := s.execution(alone); x.FinishedAt.Sub(x.CreatedAt) > slow/2 {
		s.t.Errorf("it failed after %s, not immediately", x.FinishedAt.Sub(x.CreatedAt))
	}
	one := s.hire("one")
	first := s.submit("first", "")
	s.begins("first")
	second := s.submit("second", "")
	s.neverStarted(second)
	one.signal(syscall.SIGKILL)
	s.failed(second, noWorkers, "dispatcher")
	s.failed(first, noWorkers, "dispatcher")
}

func allDownAndRecovers(s tasks) {
	one := s.hire("one")
	first := s.submit("first", "")
	s.begins("first")
	second := s.submit("second", "")
	one.signal(syscall.SIGKILL)
	until(s.t, "the worker is lost", func() bool { return s.state("one") == "lost" })
	until(s.t, "explain says that no worker is there", func() bool {
		return strings.Contains(s.belay("explain", second.String()).want(0).out, "no worker")
	})
	s.neverStarted(second)
	s.free("first")
	s.free("second")
	s.hire("two")
	s.finishedBy(first, "two")
	s.finishedBy(second, "two")
}

// stopsGracefullyAndFails: a worker that drains claims nothing more. So a new execution with the
// policy on_no_worker: fail fails, but the run that the worker already has finishes.
func stopsGracefullyAndFails(s tasks) {
	one := s.hire("one")
	first := s.submit("first", "")
	s.begins("first")
	waiting := s.submit("waiting", `"on_no_worker":"fail"`)
	s.neverStarted(waiting)
	one.signal(syscall.SIGTERM)
	s.failed(waiting, noWorkers, "dispatcher")
	if state := s.state("one"); state != "draining" {
		s.t.Errorf("the worker is %s", state)
	}
	s.failed(s.submit("late", `"on_no_worker":"fail"`), noWorkers, "dispatcher")
	s.free("first")
	s.finishedBy(first, "one")
	one.wait(patience).want(0)
	if state := s.state("one"); state != "drained" {
		s.t.Errorf("the worker is %s", state)
	}
}

func stopsGracefullyAndRecovers(s tasks) {
	one := s.hire("one")
	first := s.submit("first", "")
	s.begins("first")
	one.signal(syscall.SIGTERM)
	until(s.t, "the worker drains", func() bool { return s.state("one") == "draining" })
	second := s.submit("second", "")
	s.free("first")
	s.free("second")
	s.finishedBy(first, "one")
	one.wait(patience).want(0)
	s.neverStarted(second) // worker one had a free slot before it ended, and claimed nothing
	s.hire("two")
	s.finishedBy(second, "two")
}

// expiresAndFails: no worker claims an execution within the start timeout of the server. In systems
// that push work to their workers, the TTL of messages corresponds to this timeout. The execution
// leaves a dead letter, and a worker that starts later does not run the execution.
func expiresAndFails(s tasks) {
	id := s.submit("expired", "")
	s.free("expired")
	s.failed(id, notPickedUp, "execution_timeout_monitor")
	until(s.t, "the metrics count the dead letter", func() bool {
		return strings.Contains(s.want(http.StatusOK, "GET", "/metrics", "").text, `belay_dead_letters{reason="timeout"} 1`)
	})
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.data, "belay.db")+"?mode=ro")
	must(s.t, err)
	defer db.Close()
	var text string
	var by int
	must(s.t, db.QueryRow("SELECT message, failed_by FROM dead_letters WHERE execution = ? AND resolution IS NULL",
		id[:]).Scan(&text, &by))
	if !strings.HasPrefix(text, notPickedUp) || belay.FailedBy(by) != belay.FailedByMonitor {
		s.t.Errorf("the dead letter says %q, by %s", text, belay.FailedBy(by))
	}
	s.hire("one")
	later := s.submit("later", "")
	s.free("later")
	s.finishedBy(later, "one")
	s.neverStarted(id)
}

func expiresAndRecovers(s tasks) {
	id := s.submit("patient", "")
	s.free("patient")
	s.failed(s.submit("short", `"start_timeout":"500ms"`), notPickedUp, "execution_timeout_monitor")
	s.neverStarted(id) // no worker claims "patient", although it has waited for longer than "short"
	if state := s.execution(id).State; state != belay.Pending {
		s.t.Errorf("it is %s", state)
	}
	s.hire("one")
	s.finishedBy(id, "one")
}
