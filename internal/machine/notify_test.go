package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// notifies makes a submission report its end to example hosts, each with its own states.
func notifies(on ...[]belay.State) func(*belay.Submission) {
	return func(s *belay.Submission) {
		for i, states := range on {
			s.Notify = append(s.Notify, belay.Notification{URL: fmt.Sprintf("https://h%d.example/hook", i), On: states})
		}
	}
}

var anyEnd = []belay.State{belay.Succeeded, belay.Failed, belay.Cancelled}

// deliveries returns the states that the deliveries of an execution report, by generation and target.
func (s *stage) deliveries(id belay.ExecutionID) string {
	s.t.Helper()
	var all []string
	for g := 1; g <= s.row(id).Generation; g++ {
		for i := range belay.MaxNotifications {
			if r := s.records[belay.NotificationID(id, g, i)]; r.execution != nil {
				var p belay.NotificationPayload
				if err := json.Unmarshal(r.specs[0].TriggerPayload, &p); err != nil {
					s.t.Fatal(err)
				}
				all = append(all, fmt.Sprintf("%d.%d %s", p.Generation, p.Target, p.State))
			}
		}
	}
	return strings.Join(all, ", ")
}

// Rule G19: however an execution ends, the commit that ends it has one delivery for each notification that reports
// this end.
func TestEveryEndIsReportedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		policy belay.Policy
		end    func(*stage, belay.WorkerID, belay.ExecutionID)
		want   string
	}{
		"success": {end: func(s *stage, w belay.WorkerID, _ belay.ExecutionID) {
			s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
		}, want: "1.0 succeeded"},
		"failure": {belay.Policy{MaxAttempts: 1}, func(s *stage, w belay.WorkerID, _ belay.ExecutionID) {
			s.do(s.settle(s.win(w), belay.OutcomeFailed))
		}, "1.0 failed, 1.1 failed"},
		"a failure that is retried": {end: func(s *stage, w belay.WorkerID, _ belay.ExecutionID) {
			s.do(s.settle(s.win(w), belay.OutcomeFailed))
		}},
		"cancel while pending": {end: func(s *stage, _ belay.WorkerID, id belay.ExecutionID) {
			s.do(s.act(id, belay.ActionCancel))
		}, want: "1.0 cancelled, 1.2 cancelled"},
		"cancel while paused": {end: func(s *stage, _ belay.WorkerID, id belay.ExecutionID) {
			s.do(s.act(id, belay.ActionPause))
			s.do(s.act(id, belay.ActionCancel))
		}, want: "1.0 cancelled, 1.2 cancelled"},
		"cancel while running": {end: func(s *stage, w belay.WorkerID, id belay.ExecutionID) {
			l := s.win(w)
			s.do(s.act(id, belay.ActionCancel))
			s.do(s.settle(l, belay.OutcomeSucceeded))
		}, want: "1.0 cancelled, 1.2 cancelled"},
		"cancel that the run ignores": {end: func(s *stage, w belay.WorkerID, id belay.ExecutionID) {
			s.win(w)
			s.do(s.act(id, belay.ActionCancel))
			s.to(s.row(id).CheckAt)
			s.do(&Tick{Execution: id})
		}, want: "1.0 cancelled, 1.2 cancelled"},
		"quarantine": {end: func(s *stage, _ belay.WorkerID, id belay.ExecutionID) {
			s.do(s.act(id, belay.ActionQuarantine))
		}, want: "1.0 failed, 1.1 failed"},
		"no worker": {belay.Policy{OnNoWorker: belay.FailNoWorker},
			func(s *stage, _ belay.WorkerID, id belay.ExecutionID) {
				s.do(&NoWorker{id, s.row(id).Seq})
			}, "1.0 failed, 1.1 failed"},
		"start timeout": {belay.Policy{StartTimeout: within(time.Second)},
			func(s *stage, _ belay.WorkerID, id belay.ExecutionID) {
				s.pass(time.Second)
				s.do(&Tick{Execution: id})
			}, "1.0 failed, 1.1 failed"},
		"timeout": {belay.Policy{Timeout: within(time.Second), CancelGrace: within(time.Second)},
			func(s *stage, w belay.WorkerID, id belay.ExecutionID) {
				s.win(w)
				s.to(s.row(id).CheckAt)
				s.do(&Tick{Execution: id})
			}, "1.0 failed, 1.1 failed"},
		"last timeout of a run": {
			belay.Policy{RunTimeout: within(time.Second), CancelGrace: within(time.Second), MaxAttempts: 1},
			func(s *stage, w belay.WorkerID, id belay.ExecutionID) {
				s.win(w)
				s.to(s.row(id).CheckAt)
				s.do(&Tick{Execution: id})
			}, "1.0 failed, 1.1 failed"},
		"loss": {belay.Policy{OnLost: belay.Fail}, func(s *stage, w belay.WorkerID, _ belay.ExecutionID) {
			s.lose(s.win(w))
		}, "1.0 failed, 1.1 failed"},
		"losses without an end": {belay.Policy{MaxLosses: 1}, func(s *stage, w belay.WorkerID, _ belay.ExecutionID) {
			s.lose(s.win(w))
		}, "1.0 failed, 1.1 failed"},
		"an assignment that expires": {
			belay.Policy{ScheduledTimeout: within(time.Second), OnExpired: belay.FailExpired},
			func(s *stage, w belay.WorkerID, id belay.ExecutionID) {
				s.do(&Schedule{Execution: id, Worker: w, Secret: belay.Secret{1}})
				s.pass(time.Second)
				s.do(&Tick{Execution: id})
			}, "1.0 failed, 1.1 failed"},
		"loss of an owner from outside": {end: func(s *stage, _ belay.WorkerID, id belay.ExecutionID) {
			s.do(s.lock(belay.WorkerID(s.id()), id))
			s.lose(leaseOf(s.row(id)))
		}, want: "1.0 failed, 1.1 failed"},
		"replaced under a limit": {end: func(s *stage, _ belay.WorkerID, id belay.ExecutionID) {
			replaced := s.submission(notifies(anyEnd), func(x *belay.Submission) {
				x.Concurrency = &belay.Concurrency{Name: "x", Max: 1, WhenFull: belay.ReplaceWhenFull}
			})
			s.do(replaced)
			next := s.submission(func(x *belay.Submission) { x.Concurrency = replaced.Concurrency })
			s.follow(s.do(next))
			if got := s.deliveries(replaced.ID); got != "1.0 cancelled" {
				s.t.Errorf("the deliveries of the replaced execution are %q", got)
			}
			s.do(s.act(id, belay.ActionCancel))
		}, want: "1.0 cancelled, 1.2 cancelled"},
		"suspended": {end: func(s *stage, w belay.WorkerID, _ belay.ExecutionID) {
			s.do(s.settle(s.win(w), belay.OutcomeSuspended))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			w := s.worker("w")
			id := s.submit(policy(c.policy), notifies(anyEnd, nil, []belay.State{belay.Cancelled}))
			c.end(s, w, id)
			if got := s.deliveries(id); got != c.want {
				t.Errorf("the deliveries are %q, want %q; the execution is %s", got, c.want, s.row(id).State)
			}
		})
	}
}

// Rule G19: each generation has its own deliveries, also if a batch ends and reopens an execution. A fork has the
// notifications of the execution.
func TestEachGenerationIsReported(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w, policy(belay.Policy{MaxAttempts: 1}), notifies(nil, []belay.State{belay.Cancelled}))
	_, replies := s.batch(s.settle(l, belay.OutcomeFailed), s.act(l.Execution, belay.ActionRetry),
		s.act(l.Execution, belay.ActionCancel), s.act(l.Execution, belay.ActionRetry))
	for i, r := range replies {
		if r.Err != nil {
			t.Fatalf("command %d: %v", i, r.Err)
		}
	}
	s.do(s.settle(s.win(w), belay.OutcomeFailed))
	if got, want := s.deliveries(l.Execution), "1.0 failed, 2.1 cancelled, 3.0 failed"; got != want {
		t.Errorf("the deliveries are %q, want %q", got, want)
	}
	fork := s.act(l.Execution, belay.ActionFork)
	s.do(fork)
	s.do(s.act(fork.Fork, belay.ActionCancel))
	if got, want := s.deliveries(fork.Fork), "1.1 cancelled"; got != want {
		t.Errorf("the deliveries of the fork are %q, want %q", got, want)
	}
}

// A delivery is an execution of the workflow http that sends a signed event, which is bounded and has neither the input
// nor the output. It has its endpoint's circuit breaker and limit, its own retries, and no notifications.
func TestADeliveryIsASignedRequest(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	const secret, url = "${{ secrets.HOOK }}", "https://hooks.example.org:8443/in?to=${{ secrets.ROOM }}"
	l := s.run(w, policy(belay.Policy{MaxAttempts: 1}), func(x *belay.Submission) {
		x.Notify = []belay.Notification{
			{URL: url, Secret: secret}, {URL: url, Format: belay.FormatSlack}, {URL: "${{ secrets.SLACK }}"},
		}
	})
	changes, _ := s.batch(s.settle(l, belay.OutcomeFailed, func(x *belay.Settlement) {
		x.Failure = &belay.Failure{Class: belay.ClassPermanent, Message: "<!channel> & ${{ secrets.ROOM }} " +
			strings.Repeat("x", 4<<10)}
	}))
	if len(changes.Executions) < 4 || len(changes.Keys) != 3 {
		t.Errorf("the commit of the end has %d executions and %d keys", len(changes.Executions), len(changes.Keys))
	}
	r := s.records[belay.NotificationID(l.Execution, 1, 0)]
	e, spec := r.execution, r.specs[0]
	if e.State != belay.Pending || e.DueAt != s.now || e.Queue != "default" || e.Gates.Concurrency.Max == 0 ||
		e.Gates.Target != e.Gates.Concurrency.Name ||
		!strings.HasPrefix(e.Gates.Target, "notification:hooks.example.org:8443:") ||
		e.policy().MaxAttempts != deliveryAttempts || len(e.Notify) > 0 {
		t.Errorf("the delivery is %+v", *e)
	}
	if spec.Labels[belay.LabelNotification] != l.Execution.String() || spec.Trigger != belay.TriggerNotification ||
		spec.Key != "notification:"+l.Execution.String()+":1:0" {
		t.Errorf("the delivery has the labels %v, the trigger %s and the key %s", spec.Labels, spec.Trigger, spec.Key)
	}
	var in struct {
		Method, URL   string
		SigningSecret string `json:"signing_secret"`
		Body          belay.NotificationEvent
	}
	if err := json.Unmarshal(spec.Input, &in); err != nil {
		t.Fatal(err)
	}
	ev := in.Body
	if in.Method != "POST" || in.URL != url || in.SigningSecret != secret || ev.Type != "execution.failed" ||
		!ev.Timestamp.Equal(s.now.Time()) || ev.Data.ID != l.Execution || ev.Data.Workflow != "job" ||
		ev.Data.Error.Class != belay.ClassPermanent || len(ev.Data.Error.Message) > maxNotified ||
		ev.Data.Generation != 1 {
		t.Errorf("the input is %s", spec.Input)
	}
	slack := string(s.records[belay.NotificationID(l.Execution, 1, 1)].specs[0].Input)
	if !strings.Contains(slack, `"body":{"text":"job failed: ex_`) || strings.Contains(slack, "<") ||
		strings.Contains(slack, `\u003c!`) || strings.Contains(slack, "signing_secret") || len(slack) > 3<<10 {
		t.Errorf("the input for Slack is %s", slack)
	}
	third := s.row(belay.NotificationID(l.Execution, 1, 2))
	if !strings.HasPrefix(third.Gates.Target, "notification:SLACK:") || third.Gates.Target == e.Gates.Target {
		t.Errorf("the target of the secret URL is %s", third.Gates.Target)
	}
}

// Deliveries that fail leave a dead letter, and report nothing themselves. They can be run again.
func TestADeliveryIsRetriedAndLeavesADeadLetter(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", func(x *belay.WorkerSpec) {
		x.Workflows = append(x.Workflows, belay.Registration{Workflow: "http"})
	})
	l := s.run(w, notifies(anyEnd))
	s.do(s.settle(l, belay.OutcomeSucceeded))
	id := belay.NotificationID(l.Execution, 1, 0)
	s.sweepGates()
	d := s.win(w)
	if d.Execution != id {
		t.Fatalf("the claim won %s", d.Execution)
	}
	s.do(s.settle(d, belay.OutcomeFailed, func(x *belay.Settlement) {
		x.Failure = &belay.Failure{Class: belay.ClassPermanent, Message: "HTTP 404"}
	}))
	if len(s.records[id].letters) != 1 {
		t.Error("the delivery has no dead letter")
	}
	s.do(s.act(id, belay.ActionRetry))
	s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
	if n := len(s.records); n != 2 {
		t.Errorf("there are %d executions", n)
	}
}

// No submission can take the place of a delivery: its id, its key, its trigger and its gates belong to Belay. A child
// has no notifications.
func TestSubmissionsCannotPoseAsDeliveries(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w, notifies(anyEnd))
	id := belay.NotificationID(l.Execution, 1, 0)
	for name, with := range map[string]func(*belay.Submission){
		"id":      func(x *belay.Submission) { x.ID, x.Workflow = id, "http" },
		"key":     func(x *belay.Submission) { x.IdempotencyKey = "notification:" + l.Execution.String() + ":1:0" },
		"trigger": func(x *belay.Submission) { x.Trigger = belay.TriggerNotification },
		"target":  func(x *belay.Submission) { x.Target = "notification:h0.example:0" },
		"limit": func(x *belay.Submission) {
			x.Concurrency = &belay.Concurrency{Name: "notification:h0.example:0", Max: 1}
		},
		"child": func(x *belay.Submission) { s.childOf(l, "c")(x); notifies(nil)(x) },
	} {
		if e := s.refused(s.submission(with), belay.CodeInvalid); !strings.Contains(e.Message, "notif") {
			t.Errorf("%s: %v", name, e)
		}
	}
	s.refused(s.act(l.Execution, belay.ActionFork, func(c *belay.Control) { c.Fork = id }), belay.CodeInvalid)
	s.do(s.settle(l, belay.OutcomeSucceeded))
	if got := s.deliveries(l.Execution); got != "1.0 succeeded" {
		t.Errorf("the deliveries are %q", got)
	}
}

// A submission with other notifications is another submission.
func TestNotificationsBelongToTheSubmission(t *testing.T) {
	s := newStage(t)
	c := s.submission(notifies(anyEnd))
	s.do(c)
	if r := s.do(&Submit{Submission: c.Submission}); !r.Replayed {
		t.Error("the repetition is another execution")
	}
	other := c.Submission
	other.Notify = nil
	s.refused(&Submit{Submission: other}, belay.CodeIdempotencyMismatch)
}
