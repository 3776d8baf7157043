package chaos

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/belaydev/belay"
)

// crowd is all clients. Each root execution has a client of its own.
type crowd struct {
	*world
	mu     sync.Mutex
	rng    *mrand.Rand
	n      atomic.Int64
	lives  sync.WaitGroup
	newest chan belay.ExecutionID // the newest root execution, for watchers and for the client that pauses executions
}

func (w *world) newCrowd() *crowd {
	return &crowd{world: w, rng: dice(w.seed, "crowd"), newest: make(chan belay.ExecutionID, 1)}
}

// dice returns a source of random numbers for one client.
func (c *crowd) dice() *mrand.Rand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return mrand.New(mrand.NewPCG(c.rng.Uint64(), 0))
}

// patient and hasty return the client of a random server, which records the results of its calls. A
// patient client retries, and a hasty client does not.
func (w *world) patient(r *mrand.Rand, who string) *recorder {
	return &recorder{w.servers[r.IntN(len(w.servers))].client, who, w.history}
}

func (w *world) hasty(r *mrand.Rand, who string) *recorder {
	return &recorder{w.servers[r.IntN(len(w.servers))].hasty, who, w.history}
}

func newExecutionID() belay.ExecutionID { return belay.ExecutionID(uuid.Must(uuid.NewV7())) }

func newOp() (op belay.OpID) {
	_, _ = rand.Read(op[:]) // Read never fails
	return op
}

// submission makes a random submission of a root execution.
func (c *crowd) submission(r *mrand.Rand) (belay.Submission, []op) {
	script := writeScript(r, 1)
	price(r, script)
	input, err := json.Marshal(script)
	if err != nil {
		panic(err) // Marshal of these values cannot fail
	}
	s := belay.Submission{ID: newExecutionID(), Workflow: "play", Input: input, Policy: terms}
	if chance(r, 3) {
		s.IdempotencyKey = fmt.Sprint("key ", c.n.Add(1))
	}
	return s, script
}

// live submits a root execution and sends it random requests.
func (c *crowd) live(ctx context.Context) {
	r := c.dice()
	s, script := c.submission(r)
	if s.ID = c.submit(ctx, r, s); s.ID.IsZero() {
		return
	}
	select {
	case c.newest <- s.ID:
	default:
	}
	for i := range signals(script) {
		after, op := between(r, 0, 1500*time.Millisecond), newOp()
		payload := fmt.Appendf(nil, `"sig %d of %s"`, i, s.ID)
		c.lives.Go(func() {
			c.signal(ctx, after, belay.SignalRequest{Execution: s.ID, Name: signalName, Payload: payload, Op: op})
		})
	}
	if chance(r, 12) { // often enough that some cancels race with the end of a run
		after := between(r, 0, time.Second)
		c.lives.Go(func() { c.act(ctx, after, "canceller", s.ID, belay.ActionCancel) })
	}
	if chance(r, 40) {
		after := between(r, 0, 500*time.Millisecond)
		c.lives.Go(func() {
			c.act(ctx, after, "pauser", s.ID, belay.ActionPause)
			c.act(ctx, after, "pauser", s.ID, belay.ActionResume)
		})
	}
}

// submit submits a root execution. It usually repeats the submission until a server acknowledges
// it, but sometimes gives up after the first failure. If the root has a key, another client may
// submit a root with the same key at the same time, with the same body or another body. Then the
// answer may name the execution of the other client.
func (c *crowd) submit(ctx context.Context, r *mrand.Rand, s belay.Submission) (id belay.ExecutionID) {
	if s.IdempotencyKey != "" && chance(r, 2) {
		s2, other := s, c.patient(r, "submitter again")
		s2.ID = newExecutionID()
		if chance(r, 3) {
			s2.Input, other.who = json.RawMessage(`[{"do":"step","ms":7}]`), "submitter of another body"
		}
		if after := between(r, 0, 50*time.Millisecond); s2.IdempotencyKey != "" {
			c.lives.Go(func() {
				if pause(ctx, after) == nil {
					_, _ = other.Submit(ctx, s2) // the recorder records the result
				}
			})
		}
	}
	leave := chance(r, 4)
	for after := patience(); ctx.Err() == nil; {
		got, err := c.hasty(r, "submitter").Submit(ctx, s)
		switch {
		case err == nil && got[0].Err == nil:
			return got[0].ID
		case err == nil && !later(got[0].Err), leave:
			return id
		}
		_ = pause(ctx, after())
	}
	return id
}

// later reports whether an error asks to retry later.
func later(err error) bool {
	return belay.CodeOf(err) == belay.CodeUnavailable || belay.CodeOf(err) == belay.CodeRateLimited
}

// patience returns a function that returns how long to wait before the next try. Each call returns
// a longer time than the call before, up to two seconds.
func patience() func() time.Duration {
	d := 50 * time.Millisecond
	return func() time.Duration { d = min(2*d, 2*time.Second); return d }
}

// signal sends a signal to an execution, and repeats the call until the result is known.
func (c *crowd) signal(ctx context.Context, after time.Duration, q belay.SignalRequest) {
	r, longer := c.dice(), patience()
	for pause(ctx, after) == nil {
		err := c.hasty(r, "signaller").Signal(ctx, q)
		if err == nil || !later(err) {
			return
		}
		after = longer()
	}
}

// act carries out an action. It tries one server after the other until a server answers.
func (c *crowd) act(ctx context.Context, after time.Duration, who string, id belay.ExecutionID, a belay.Action) {
	r, longer := c.dice(), patience()
	op := newOp()
	q := belay.Control{Execution: id, Action: a, Actor: who, Op: op, Reason: fmt.Sprintf("%s by %s: %s", a, who, op)}
	for pause(ctx, after) == nil {
		_, err := c.patient(r, who).Control(ctx, q)
		if err == nil || !later(err) {
			return
		}
		after = longer()
	}
}

// retryFailed retries some of the failed executions.
func (c *crowd) retryFailed(ctx context.Context) {
	r := c.dice()
	for pause(ctx, time.Second) == nil {
		page, err := c.patient(r, "operator").Executions(ctx, belay.Filter{
			States: []belay.State{belay.Failed, belay.Cancelled}, Limit: 20,
		})
		if err != nil || len(page.Executions) == 0 {
			continue
		}
		x := page.Executions[r.IntN(len(page.Executions))]
		c.act(ctx, 0, "operator", x.ID, belay.ActionRetry)
	}
}
