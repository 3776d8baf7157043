package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// gpu is the gate of the resource of the tests.
const gpu = belay.GateID("resource:gpu")

// requires makes a submission require the resource gpu in a mode.
func requires(mode string) func(*belay.Submission) {
	return func(b *belay.Submission) { b.Requires = &belay.Requires{Resource: "gpu", Mode: mode} }
}

// preemptible makes a submission require the resource gpu in a mode, with runs that yield.
func preemptible(mode string) func(*belay.Submission) {
	return func(b *belay.Submission) {
		b.Requires = &belay.Requires{Resource: "gpu", Mode: mode, Preemptible: true}
	}
}

// setResource is an operator's command that lets the workflow "job" change the mode of the resource.
func (s *stage) setResource(with ...func(*belay.ResourceTerms)) *SetGate {
	return s.set(gpu, belay.GateSetResource, func(c *belay.GateChange) {
		c.Resource = &belay.ResourceTerms{
			MinResidency: within(10 * time.Second), MaxWait: within(time.Minute),
			Swap: &belay.ResourceSwapper{Workflow: "job"},
		}
		for _, w := range with {
			w(c.Resource)
		}
	})
}

// resource returns the stored state of the resource gpu.
func (s *stage) resource() Resource {
	s.t.Helper()
	g, err := ReadGate(s.objects[GateRef(gpu)])
	if err != nil {
		s.t.Fatal(err)
	}
	if g.Resource == nil {
		return Resource{}
	}
	return *g.Resource
}

// swapped lets the worker carry out the swap that is under way.
func (s *stage) swapped(w belay.WorkerID, how belay.Outcome) {
	s.t.Helper()
	l := s.win(w)
	if r := s.resource(); r.Swap == nil || r.Swap.Execution != l.Execution {
		s.t.Fatalf("%s was claimed, and the swap is %+v", l.Execution, r.Swap)
	}
	s.settled(s.settle(l, how, func(c *belay.Settlement) {
		if how == belay.OutcomeFailed {
			c.Failure = &belay.Failure{Class: belay.ClassPermanent, Message: "no memory"}
		}
	}))
}

// inMode makes the resource ready in a mode, with a run that uses it.
func (s *stage) inMode(w belay.WorkerID, mode func(*belay.Submission)) belay.Lease {
	s.t.Helper()
	s.submit(mode)
	s.all(w)
	s.swapped(w, belay.OutcomeSucceeded)
	return s.win(w)
}

// overdue lets an execution of the mode B wait for the maximum wait, without a check of the gate.
func (s *stage) overdue(w belay.WorkerID) {
	s.t.Helper()
	s.submit(requires("B"))
	s.all(w)
	s.pass(time.Minute)
}

// swapping begins a swap from no mode to the mode A.
func (s *stage) swapping(w belay.WorkerID) {
	s.t.Helper()
	s.do(s.setResource())
	s.submit(requires("A"))
	s.all(w)
}

// unheard lets the swap end with an outcome, and loses the commands that follow.
func unheard(how belay.Outcome) func(*stage, belay.WorkerID) {
	return func(s *stage, w belay.WorkerID) {
		s.swapping(w)
		s.do(s.settle(s.win(w), how, func(c *belay.Settlement) {
			if how == belay.OutcomeFailed {
				c.Failure = &belay.Failure{Class: belay.ClassPermanent, Message: "no memory"}
			}
		}))
	}
}

var resourceSituations = []gateSituation{
	{"resource/missing", "nothing names it", gpu, func(*stage, belay.WorkerID) {}},
	{"resource/idle", "it has the mode A and no terms, and no run uses it", gpu,
		func(s *stage, w belay.WorkerID) { s.settled(s.settle(s.run(w, requires("A")), belay.OutcomeSucceeded)) }},
	{"resource/used", "a run uses it in the mode A, and an execution waits for the mode B", gpu,
		func(s *stage, w belay.WorkerID) {
			s.do(s.setResource())
			s.inMode(w, requires("A"))
			s.submit(requires("B"))
			s.all(w)
		}},
	{"resource/draining", "a preemptible run uses it, and the mode B has waited for the maximum wait", gpu,
		func(s *stage, w belay.WorkerID) {
			s.do(s.setResource())
			s.inMode(w, preemptible("A"))
			s.overdue(w)
		}},
	{"resource/due", "no run uses it in the mode A, and the mode B is due", gpu, func(s *stage, w belay.WorkerID) {
		s.do(s.setResource())
		l := s.inMode(w, requires("A"))
		s.overdue(w)
		s.do(s.settle(l, belay.OutcomeSucceeded))
	}},
	{"resource/swapping", "an execution changes its mode to A", gpu, (*stage).swapping},
	{"resource/swapped", "the execution has changed it, and the gate does not know yet", gpu,
		unheard(belay.OutcomeSucceeded)},
	{"resource/broken", "the execution has failed, and the gate does not know yet", gpu, unheard(belay.OutcomeFailed)},
	{"resource/orphan", "the execution that changes its mode is gone", gpu, func(s *stage, w belay.WorkerID) {
		s.swapping(w)
		delete(s.records, s.resource().Swap.Execution)
	}},
	{"resource/failed", "its last swap has failed", gpu, func(s *stage, w belay.WorkerID) {
		s.swapping(w)
		s.swapped(w, belay.OutcomeFailed)
	}},
	{"resource/retried", "its last swap has failed, and it is time to try again", gpu,
		func(s *stage, w belay.WorkerID) {
			s.swapping(w)
			s.swapped(w, belay.OutcomeFailed)
			s.pass(swapRetry)
		}},
	{"resource/paused", "it is due, and an operator has paused it", gpu, func(s *stage, w belay.WorkerID) {
		s.do(s.set(gpu, belay.GatePause))
		s.submit(requires("A"))
		s.all(w)
	}},
}

var resourceDeals = []gateDeal{
	{"admit modes", func(s *stage, id belay.GateID) Command {
		c := &Admit{Gate: id, Heads: MaxHeads}
		if s.objects[GateRef(gpu)] != nil && id == gpu {
			r := s.resource()
			held, _ := s.held(id)
			c.Modes, c.Lead = r.modes(), r.lead(r.wanted(len(held), s.now))
		}
		return c
	}},
	{"begin swap", func(s *stage, id belay.GateID) Command {
		to := "B"
		if s.objects[GateRef(gpu)] != nil && s.resource().Mode == "" {
			to = "A"
		}
		return &BeginSwap{id, to, belay.ExecutionID(s.id())}
	}},
	{"end swap", func(s *stage, id belay.GateID) Command {
		c := &EndSwap{Gate: id}
		if s.objects[GateRef(gpu)] != nil && id == gpu {
			if r := s.resource(); r.Swap != nil {
				c.Execution = r.Swap.Execution
			}
		}
		return c
	}},
	{"ask holders", func(_ *stage, id belay.GateID) Command { return &AskHolders{Gate: id} }},
	{"yield", func(s *stage, id belay.GateID) Command {
		c := &Yield{Gate: id}
		if held, _ := s.held(id); len(held) > 0 {
			c.Execution = held[0]
		}
		return c
	}},
	{"resource", func(s *stage, id belay.GateID) Command {
		c := s.setResource()
		c.Gate = id
		return c
	}},
	{"unresource", change(belay.GateUnsetResource)},
}

// resourceParts describes the stored state of a resource.
func resourceParts(s *stage, r *Resource, add func(string, ...any)) {
	if r == nil {
		return
	}
	if r.Terms != nil {
		add("set")
	}
	if r.Swap != nil {
		add("swapping to %s", r.Swap.To)
	}
	if r.Mode != "" {
		add("mode %s", r.Mode)
	}
	if r.Failures > 0 {
		add("failed %d", r.Failures)
	}
	for _, x := range r.Wants {
		add("%s waits %d", x.Mode, len(s.parked(LineOf(gpu, x.Mode))))
	}
}
