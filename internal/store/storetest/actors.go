package storetest

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// The actions of clients and workers, for cases that need rows in some state.

// submit submits an execution of the workflow "w". Without options the execution is in the lane that
// the variable lane describes.
func (e *env) submit(with ...func(*belay.Submission)) belay.ExecutionID {
	e.Helper()
	s := belay.Submission{ID: e.id(), Workflow: "w", Input: []byte(`{"n":1}`)}
	for _, change := range with {
		change(&s)
	}
	return e.ok(&machine.Submit{Submission: s}).ID
}

// open opens the session of a worker for workflow w.
func (e *env) open(with ...func(*belay.WorkerSpec)) belay.WorkerID {
	e.Helper()
	s := belay.WorkerSpec{
		ID: e.id(), Name: "worker", Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 10,
		TTL: belay.Duration(15 * time.Second),
	}
	for _, change := range with {
		change(&s)
	}
	e.ok(&machine.Open{WorkerSpec: s})
	return s.ID
}

// lane is the lane (queue, workflow, version, priority and labels) of executions that submit makes
// without options.
var lane = machine.NewLane("default", "w", "", 0, nil)

// lanes are lane and the separate lane for its suspects: executions that were lost several times in
// a row and must run alone.
var lanes = func() []machine.Lane {
	alone := lane
	alone.ID = lane.ID.Alone()
	swaps := machine.NewLane("default", "w", "", belay.MaxPriority, nil) // of the executions that change modes
	return []machine.Lane{swaps, lane, alone}
}()

// claim wins up to n executions; number must be higher with each call.
func (e *env) claim(worker belay.WorkerID, number int64, n int) []belay.Lease {
	e.Helper()
	var leases []belay.Lease
	for _, won := range e.ok(e.claims(worker, number, n)).Claims {
		leases = append(leases, leaseOf(&won.Execution))
	}
	return leases
}

// claims returns the command that claim sends.
func (e *env) claims(worker belay.WorkerID, number int64, n int) *machine.Claim {
	c := &machine.Claim{
		ClaimRequest: belay.ClaimRequest{Worker: worker, Number: number, Slots: n}, Lanes: lanes, Idle: true,
	}
	for range n {
		c.Secrets = append(c.Secrets, e.id())
	}
	return c
}

func leaseOf(x *machine.Execution) belay.Lease {
	return belay.Lease{Execution: x.ID, Worker: x.Worker, Token: x.Token, Secret: x.Secret}
}

// run submits an execution and wins it.
func (e *env) run(worker belay.WorkerID, number int64, with ...func(*belay.Submission)) belay.Lease {
	e.Helper()
	id := e.submit(with...)
	leases := e.claim(worker, number, 1)
	if len(leases) != 1 || leases[0].Execution != id {
		e.Fatalf("claim %d won %v, not %s", number, leases, id)
	}
	return leases[0]
}

func (e *env) save(l belay.Lease, kind belay.CheckpointKind, key, data string) int64 {
	e.Helper()
	return e.ok(&machine.Save{Save: belay.Save{Lease: l, Op: e.id(), Kind: kind, Key: key, Data: []byte(data)}}).Seq
}

func (e *env) settle(l belay.Lease, outcome belay.Outcome) {
	e.Helper()
	s := belay.Settlement{Lease: l, Op: e.id(), Outcome: outcome, Output: []byte(`"out"`)}
	if outcome == belay.OutcomeFailed {
		s.Failure = &belay.Failure{Class: belay.ClassPermanent, Message: "broken"}
	}
	e.ok(&machine.Settle{Settlement: s})
}

func (e *env) signal(id belay.ExecutionID, name string) int64 {
	e.Helper()
	return e.ok(&machine.Deliver{
		SignalRequest: belay.SignalRequest{Execution: id, Name: name, Payload: []byte(`1`), Op: e.id()},
	}).Seq
}

func (e *env) control(id belay.ExecutionID, action belay.Action) machine.Reply {
	e.Helper()
	return e.ok(&machine.Act{
		Control: belay.Control{Execution: id, Action: action, Actor: "me", Reason: "because", Op: e.id()},
	})
}

// child starts a child of the run.
func (e *env) child(parent belay.Lease, key string, with ...func(*belay.Submission)) belay.ExecutionID {
	e.Helper()
	generation := e.row(parent.Execution).Generation
	return e.submit(append([]func(*belay.Submission){func(s *belay.Submission) {
		s.ID, s.Parent, s.ParentKey = belay.ChildID(parent.Execution, generation, key), &parent, key
	}}, with...)...)
}

func (e *env) append(l belay.Lease, name string, n int64, data string) {
	e.Helper()
	e.ok(&machine.Append{Chunk: belay.Chunk{Lease: l, Name: name, N: n, Data: []byte(data)}})
}

// priority gives a submission a priority, and so another lane than the default one.
func priority(p int) func(*belay.Submission) { return func(s *belay.Submission) { s.Priority = p } }
func dueIn(e *env, d time.Duration) func(*belay.Submission) {
	return func(s *belay.Submission) { s.DueAt = e.now().Add(d).Time() }
}
func policy(p belay.Policy) func(*belay.Submission) {
	return func(s *belay.Submission) { s.Policy = p }
}

func named(prefix string, n int) string { return fmt.Sprintf("%s-%d", prefix, n) }
