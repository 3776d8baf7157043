package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// A submission gets the defaults of its server only for the policy fields that it leaves out. A
// repeated submission finds the execution of the first, even if the server has other defaults by
// then. An external execution does not fail for lack of a worker, whatever the default is. A
// submission without a policy, on a server without defaults, has no policy.
func TestDefaultsFillWhatASubmissionLeavesOut(t *testing.T) {
	s := newStage(t)
	d := belay.Policy{
		MaxAttempts: 5, BackoffBase: within(2 * time.Second), BackoffCap: within(time.Minute),
		ScheduledTimeout: within(time.Hour), StartTimeout: within(5 * time.Minute), OnNoWorker: belay.FailNoWorker,
	}
	submit := func(d belay.Policy, with ...func(*belay.Submission)) *Submit {
		x := belay.Submission{ID: belay.ExecutionID(s.id()), Workflow: "job"}
		for _, f := range with {
			f(&x)
		}
		return &Submit{Submission: x, Defaults: d}
	}
	policyOf := func(c *Submit) belay.Policy {
		t.Helper()
		s.do(c)
		if p := s.row(c.ID).Policy; p != nil {
			return *p
		}
		return belay.Policy{}
	}
	if p := policyOf(submit(d)); p != d {
		t.Errorf("without a policy it has %+v", p)
	}
	said := belay.Policy{
		MaxAttempts: 1, BackoffBase: within(time.Second), BackoffCap: within(2 * time.Second),
		ScheduledTimeout: within(time.Second), StartTimeout: within(time.Second), OnNoWorker: belay.WaitForWorker,
	}
	if p := policyOf(submit(d, policy(said))); p != said {
		t.Errorf("with a whole policy it has %+v", p)
	}
	if p := policyOf(submit(d, external)); p.OnNoWorker != "" || p.MaxAttempts != 5 {
		t.Errorf("an external one has %+v", p)
	}
	plain := submit(belay.Policy{})
	if policyOf(plain); s.row(plain.ID).Policy != nil {
		t.Error("without defaults it has a policy")
	}
	again := &Submit{Submission: plain.Submission, Defaults: d}
	if r := s.do(again); !r.Replayed {
		t.Errorf("its repetition got %+v", r)
	}
}
