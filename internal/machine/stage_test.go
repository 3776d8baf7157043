package machine

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// stage is a keeper (a store in memory for tests) with helpers for tests. After every batch all
// checkers check the rows.
type stage struct {
	*keeper
	t     *testing.T
	ids   uint16
	claim map[belay.WorkerID]int64 // the number of each worker's last claim
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{keeper: newKeeper(), t: t, claim: make(map[belay.WorkerID]int64)}
}

// id returns a new id. Ids are in the order of their creation, like UUIDv7.
func (s *stage) id() [16]byte {
	s.ids++
	return [16]byte{0: 1, 6: 0x70, 8: 0x80, 14: byte(s.ids >> 8), 15: byte(s.ids)}
}

// batch applies the commands as one batch.
func (s *stage) batch(commands ...Command) (*Changes, []Reply) {
	s.t.Helper()
	before := s.clone()
	changes, replies, err := s.fold(commands...)
	if err == nil {
		var f faults
		checkLimits(&f, before, s.keeper)
		err = errors.Join(s.check(), errors.Join(f...))
	}
	if err != nil {
		s.t.Fatalf("after %T: %v", commands, err)
	}
	return changes, replies
}

// do applies one command, which must not be refused.
func (s *stage) do(c Command) Reply {
	s.t.Helper()
	_, replies := s.batch(c)
	if err := replies[0].Err; err != nil {
		s.t.Fatalf("%T: %v", c, err)
	}
	return replies[0]
}

// refused applies one command, which must be refused and change nothing.
func (s *stage) refused(c Command, code belay.Code, cause ...belay.Cause) *belay.Error {
	s.t.Helper()
	changes, replies := s.batch(c)
	var e *belay.Error
	if !errors.As(replies[0].Err, &e) || e.Code != code || len(cause) > 0 && e.Cause != cause[0] {
		s.t.Fatalf("%T: %v, want %s %s", c, replies[0].Err, code, cause)
	}
	if !changes.Empty() {
		s.t.Fatalf("%T: refused with %v, and changed %+v", c, e, changes)
	}
	if e.Error() == "" || e.Message == "" {
		s.t.Fatalf("%T: the refusal does not say what is wrong", c)
	}
	return e
}

// pass lets time pass while a server writes marks of life (times that show that a server runs).
func (s *stage) pass(d time.Duration) { s.now, s.mark = s.now.Add(d), s.now.Add(d) }

func (s *stage) stall(d time.Duration) { s.now = s.now.Add(d) }

// to lets time pass until t.
func (s *stage) to(t Time) { s.pass(t.Sub(s.now)) }

// worker opens a session that may claim executions of workflow "job" in queue "default".
func (s *stage) worker(name string, with ...func(*belay.WorkerSpec)) belay.WorkerID {
	s.t.Helper()
	spec := belay.WorkerSpec{
		ID: belay.WorkerID(s.id()), Name: name, Workflows: []belay.Registration{{Workflow: "job"}}, Capacity: 10,
	}
	for _, w := range with {
		w(&spec)
	}
	s.do(&Open{spec})
	return spec.ID
}

func ttl(d time.Duration) func(*belay.WorkerSpec) {
	return func(s *belay.WorkerSpec) { s.TTL = belay.Duration(d) }
}

// submission makes a submission of workflow "job".
func (s *stage) submission(with ...func(*belay.Submission)) *Submit {
	sub := belay.Submission{ID: belay.ExecutionID(s.id()), Workflow: "job", Input: json.RawMessage(`{"n":1}`)}
	for _, w := range with {
		w(&sub)
	}
	return &Submit{Submission: sub}
}

func (s *stage) submit(with ...func(*belay.Submission)) belay.ExecutionID {
	s.t.Helper()
	return s.do(s.submission(with...)).ID
}

// childOf turns a submission into the submission of a child of the run. The parameter key is the
// child key.
func (s *stage) childOf(l belay.Lease, key string) func(*belay.Submission) {
	return func(b *belay.Submission) {
		b.ID = belay.ChildID(l.Execution, s.row(l.Execution).Generation, key)
		b.Parent, b.ParentKey = &l, key
	}
}

func policy(p belay.Policy) func(*belay.Submission) {
	return func(s *belay.Submission) { s.Policy = p }
}

// row returns the present row of the execution.
func (s *stage) row(id belay.ExecutionID) *Execution {
	s.t.Helper()
	e := s.records[id].execution
	if e == nil {
		s.t.Fatalf("there is no execution %s", id)
	}
	return e
}

// claims returns the next Claim command of a worker.
func (s *stage) claims(w belay.WorkerID, slots int) *Claim {
	s.claim[w]++
	c := &Claim{ClaimRequest: belay.ClaimRequest{Worker: w, Number: s.claim[w], Slots: slots}}
	s.fillClaim(c)
	return c
}

// fillClaim sets the claim's lanes, which follow from its worker, its secrets, and whether the worker
// runs nothing. The lane of "job" is known even before the first submission.
func (k *keeper) fillClaim(c *Claim) {
	x := k.workers[c.Worker]
	lanes := maps.Clone(k.lanes)
	job := NewLane("default", "job", "", 0, nil)
	lanes[job.ID] = job
	c.Idle = true
	for _, r := range k.records {
		e := r.execution
		c.Idle = c.Idle && e.Worker != c.Worker
		if e.Lane.IsAlone() {
			beside := lanes[e.Lane.Shared()]
			beside.ID = e.Lane
			lanes[e.Lane] = beside
		}
	}
	for _, l := range slices.SortedFunc(maps.Values(lanes), func(a, b Lane) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	}) {
		if x != nil && l.Takes(x.Spec) {
			c.Lanes = append(c.Lanes, l)
		}
	}
	for i := range c.Slots {
		c.Secrets = append(c.Secrets, belay.Secret{0: 1, 1: byte(c.Number), 2: byte(i), 3: c.Worker[15]})
	}
}

// lock returns the Lock command of an external owner.
func (s *stage) lock(id belay.WorkerID, execution belay.ExecutionID, with ...func(*belay.LockRequest)) *Lock {
	r := belay.LockRequest{ID: id, Execution: execution, Owner: "out", TTL: within(15 * time.Second)}
	for _, w := range with {
		w(&r)
	}
	return &Lock{r, belay.Secret{0: 2, 3: id[15]}}
}

// win makes the worker claim one execution, and fails the test if no execution is due.
func (s *stage) win(w belay.WorkerID) belay.Lease {
	s.t.Helper()
	for _, r := range s.records {
		if e := r.execution; e.Suspect() && e.Ready() > s.now {
			s.to(e.Ready())
		}
	}
	r := s.do(s.claims(w, 1))
	if len(r.Claims) != 1 {
		s.t.Fatalf("the claim won %d executions", len(r.Claims))
	}
	return leaseOf(&r.Claims[0].Execution)
}

func leaseOf(e *Execution) belay.Lease {
	return belay.Lease{Execution: e.ID, Worker: e.Worker, Token: e.Token, Secret: e.Secret}
}

// run submits an execution and claims it.
func (s *stage) run(w belay.WorkerID, with ...func(*belay.Submission)) belay.Lease {
	s.t.Helper()
	s.submit(with...)
	return s.win(w)
}

func (s *stage) op() belay.OpID { return belay.OpID(s.id()) }

func (s *stage) save(l belay.Lease, kind belay.CheckpointKind, key string) *Save {
	return &Save{Save: belay.Save{Lease: l, Op: s.op(), Kind: kind, Key: key, Data: json.RawMessage(`"` + key + `"`)}}
}

func (s *stage) settle(l belay.Lease, o belay.Outcome, with ...func(*belay.Settlement)) *Settle {
	c := &Settle{Settlement: belay.Settlement{Lease: l, Op: s.op(), Outcome: o}, Jitter: 0.5}
	for _, w := range with {
		w(&c.Settlement)
	}
	return c
}

func (s *stage) act(id belay.ExecutionID, a belay.Action, with ...func(*belay.Control)) *Act {
	c := belay.Control{Execution: id, Action: a, Actor: "ann", Reason: "because", Op: s.op()}
	if a == belay.ActionFork {
		c.Fork = belay.ExecutionID(s.id())
	}
	if a == belay.ActionBudget {
		c.Budget = &belay.Budget{Cost: belay.CostOf(1)}
	}
	for _, w := range with {
		w(&c)
	}
	return &Act{c}
}

func (s *stage) signal(id belay.ExecutionID, name string) *Deliver {
	return &Deliver{
		SignalRequest: belay.SignalRequest{Execution: id, Name: name, Op: s.op(), Payload: json.RawMessage(`1`)},
	}
}

func (s *stage) beat(w belay.WorkerID, holds ...belay.Lease) *Heartbeat {
	h := belay.Heartbeat{Worker: w, ClaimSeen: s.claim[w]}
	for _, l := range holds {
		h.Holds = append(h.Holds, belay.Held{Execution: l.Execution, Token: l.Token})
	}
	return &Heartbeat{Heartbeat: h}
}

// follow carries out the follow-up commands of a reply.
func (s *stage) follow(r Reply) {
	s.t.Helper()
	for _, c := range r.Follow {
		s.do(c)
	}
}

// is checks the state of an execution, in the notation of describe.
func (s *stage) is(id belay.ExecutionID, want string) {
	s.t.Helper()
	if got := describe(s.row(id), s.now); got != want {
		s.t.Fatalf("the execution is %s, want %s", got, want)
	}
}
