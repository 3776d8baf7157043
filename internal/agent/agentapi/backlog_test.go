package agentapi

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// memoryBackend is a Backend that keeps executions in memory, with its own clock.
type memoryBackend struct {
	belay.Client
	mu      sync.Mutex
	at      time.Time
	jobs    map[belay.ExecutionID]belay.State
	workers []belay.Worker
	made    byte
	scans   int
	takes   time.Duration // the duration of a scan
	err     error
}

func newMemoryBackend() *memoryBackend {
	return &memoryBackend{at: time.Unix(1e9, 0), jobs: make(map[belay.ExecutionID]belay.State)}
}

func (d *memoryBackend) now() time.Time { return d.at }

func (d *memoryBackend) add(state belay.State) belay.ExecutionID {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	id := belay.ExecutionID{15: d.made}
	d.jobs[id] = state
	return id
}

func (d *memoryBackend) Submit(context.Context, ...belay.Submission) ([]belay.Submitted, error) {
	if d.err != nil {
		return nil, d.err
	}
	return []belay.Submitted{{ID: d.add(belay.Pending)}}, nil
}

func (d *memoryBackend) Await(_ context.Context, id belay.ExecutionID, _ time.Duration) (belay.Execution, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state, ok := d.jobs[id]
	if !ok {
		return belay.Execution{}, &belay.Error{Code: belay.CodeNotFound}
	}
	return belay.Execution{ID: id, State: state}, d.err
}

func (d *memoryBackend) Executions(context.Context, belay.Filter) (p belay.Page, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scans++
	d.at = d.at.Add(d.takes)
	for id, state := range d.jobs {
		if !state.Terminal() {
			p.Executions = append(p.Executions, belay.Execution{ID: id, State: state})
		}
	}
	return p, d.err
}

func (d *memoryBackend) Workers(context.Context) ([]belay.Worker, error) { return d.workers, d.err }

// accept reserves a place for a job and stores the job, as the service does.
func accept(ctx context.Context, l *backlog, depth int) error {
	stored, err := l.place(ctx, depth)
	if err != nil {
		return err
	}
	answers, err := l.b.Submit(ctx, belay.Submission{})
	if err != nil {
		stored(belay.ExecutionID{})
		return err
	}
	stored(answers[0].ID)
	return nil
}

// Rule: at most depth jobs run or wait, even if requests are concurrent. The end or the deletion of
// a job frees its place. The response to a refused request has the header Retry-After.
func TestTheQueueIsBounded(t *testing.T) {
	d := newMemoryBackend()
	l := &backlog{b: d, now: d.now, own: 2}
	active, gone := d.add(belay.Running), d.add(belay.Waiting)
	d.add(belay.Succeeded)
	var all sync.WaitGroup
	refused := make(chan error, 20)
	for range 20 {
		all.Go(func() {
			if err := accept(t.Context(), l, 5); err != nil {
				refused <- err
			}
		})
	}
	all.Wait()
	if len(refused) != 17 {
		t.Fatalf("%d of 20 were refused, with 2 of 5 places in use", len(refused))
	}
	var e *belay.Error
	if err := <-refused; !errors.As(err, &e) || e.Code != belay.CodeQueueFull || e.RetryAfter != retryAfter ||
		e.Message != "1 jobs run and 4 wait; the limit is 5" {
		t.Errorf("refused with %v", err)
	}
	d.jobs[active] = belay.Failed
	delete(d.jobs, gone)
	if c, err := l.count(t.Context()); err != nil || c != (counts{0, 3, 2}) || c.total() != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	for range 2 {
		if err := accept(t.Context(), l, 5); err != nil {
			t.Error(err)
		}
	}
	if err := accept(t.Context(), l, 5); belay.CodeOf(err) != belay.CodeQueueFull {
		t.Errorf("beyond: %v", err)
	}
}

// Rule: a reserved place counts towards the limit until the caller reports that it has stored the
// job. If the caller reports that it stored no job, the place is free again.
func TestReservedPlacesCount(t *testing.T) {
	d := newMemoryBackend()
	l := &backlog{b: d, now: d.now}
	first, err := l.place(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.place(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.place(t.Context(), 2); belay.CodeOf(err) != belay.CodeQueueFull {
		t.Errorf("a third place of two: %v", err)
	}
	first(belay.ExecutionID{})
	second(d.add(belay.Pending))
	if err := accept(t.Context(), l, 2); err != nil {
		t.Error(err)
	}
	if _, err := l.place(t.Context(), 2); belay.CodeOf(err) != belay.CodeQueueFull || l.taken != 0 {
		t.Errorf("with both places used: %v, %d taken", err, l.taken)
	}
}

// Rule: the backlog counts a job that another server has stored after the duration rescan at the
// latest, even if the clock is set back. It does not read the table of jobs more often than that.
func TestJobsOfOtherServersCount(t *testing.T) {
	d := newMemoryBackend()
	l := &backlog{b: d, now: d.now}
	for _, step := range []struct {
		after time.Duration
		queue int
	}{{0, 1}, {rescan - 1, 1}, {1, 3}, {-time.Hour, 4}} {
		d.at = d.at.Add(step.after)
		d.add(belay.Pending)
		if c, err := l.count(t.Context()); err != nil || c.queued != step.queue {
			t.Errorf("after %s: %+v, %v", step.after, c, err)
		}
	}
	if d.scans != 3 {
		t.Errorf("the table was read %d times", d.scans)
	}
	d.takes = time.Second // a read of a large table takes this long
	for _, after := range []time.Duration{rescan, rescan, rescan - time.Second, time.Second} {
		d.at = d.at.Add(after)
		if _, err := l.count(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if d.scans != 5 {
		t.Errorf("the large table was read %d times", d.scans-3)
	}
	d.err, d.at = errors.New("gone"), d.at.Add(time.Hour)
	if err := accept(t.Context(), l, 100); err == nil {
		t.Error("accepted without a store")
	}
}

// Rule: the number of slots is the sum of the capacities of all workers that run agents. If that
// sum is less than this server's own capacity, the number is that capacity.
func TestSlotsOfAllWorkersCount(t *testing.T) {
	worker := func(state belay.WorkerState, capacity int, workflow string, queues ...string) belay.Worker {
		return belay.Worker{State: state, WorkerSpec: belay.WorkerSpec{
			Capacity: capacity, Queues: queues, Workflows: []belay.Registration{{Workflow: workflow}},
		}}
	}
	outside := worker(belay.WorkerOpen, 64, agent.Prompted)
	outside.External = true
	d := newMemoryBackend()
	d.workers = []belay.Worker{
		worker(belay.WorkerOpen, 1, agent.Prompted, "default"), worker(belay.WorkerOpen, 2, agent.Prompted),
		worker(belay.WorkerDraining, 4, agent.Prompted),
		worker(belay.WorkerLost, 8, agent.Prompted), worker(belay.WorkerOpen, 16, "command"),
		worker(belay.WorkerOpen, 32, agent.Prompted, "other"), outside,
	}
	l := &backlog{b: d, now: d.now, own: 2}
	if c, err := l.count(t.Context()); err != nil || c.slots != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	d.workers, d.at = nil, d.at.Add(recount)
	if c, err := l.count(t.Context()); err != nil || c.slots != 2 {
		t.Errorf("before its own worker is there: %+v, %v", c, err)
	}
}
