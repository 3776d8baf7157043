package test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/belaydev/belay"
)

func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

const quick = belay.Duration(20 * time.Millisecond)

// orders makes executions of workflows in Go: with retries, with dead letters of two groups, with an open circuit
// breaker, and with children.
func (s *showcase) orders() {
	ctx := s.api.t.Context()
	patient := belay.Policy{BackoffBase: quick, BackoffCap: quick}
	sold := s.submit("execution-retried", belay.Submission{
		Workflow: "checkout", Input: raw(sale{Number: 4711}), Policy: patient, IdempotencyKey: "order-4711",
		Labels: map[string]string{"shop": "berlin", "customer": "c-2209"},
	})
	s.reach(sold, belay.Succeeded)
	var failed []belay.ExecutionID
	for i, fault := range []string{"card_declined: insufficient funds", "card_declined: insufficient funds",
		"card_declined: insufficient funds", "no route to the warehouse of region ap-south"} {
		failed = append(failed, s.submit("", belay.Submission{
			Workflow: "checkout", Input: raw(sale{Number: 4712 + i, Fault: fault}), Policy: patient,
			Labels: map[string]string{"shop": "lisbon"},
		}))
	}
	for range 5 {
		failed = append(failed, s.submit("", belay.Submission{
			Workflow: "charge", Input: raw(sale{Number: 9}), Policy: belay.Policy{MaxAttempts: 1},
			Gates: belay.Gates{Target: "payments:charge"},
		}))
	}
	for _, id := range failed {
		s.reach(id, belay.Failed)
	}
	s.runs["execution-failed"] = failed[0]
	s.submit("execution-breaker", belay.Submission{
		Workflow: "charge", Input: raw(sale{Number: 4720}), Gates: belay.Gates{Target: "payments:charge"},
	})
	for _, d := range []belay.DeadLetterChange{
		{Execution: failed[1], Action: belay.DeadLetterNoted, Note: "asked the customer for another card"},
		{Execution: failed[2], Action: belay.DeadLetterFix, Note: "paid by bank transfer"},
	} {
		_, err := s.client.ChangeDeadLetter(ctx, d)
		s.fail(err)
	}
	welcome := s.submit("execution-parent", belay.Submission{
		Workflow: "mailing", Input: raw([]string{"Ada", "Grace", "Barbara"}),
		Gates: belay.Gates{Rate: &belay.Rate{Name: "mail", Max: 10, Per: belay.Duration(time.Minute)}},
	})
	until(s.api.t, "the children wait", func() bool {
		page, err := s.client.Executions(ctx, belay.Filter{Parent: welcome})
		s.fail(err)
		waiting := 0
		for i := range page.Executions {
			if page.Executions[i].State == belay.Waiting {
				waiting++
				s.runs["execution-child"] = page.Executions[i].ID
			}
		}
		return waiting == 3
	})
}

// documents stores a document in two versions, and runs it until a person must decide.
func (s *showcase) documents() {
	ctx := s.api.t.Context()
	old := "name: release\ntasks:\n  - id: build\n    uses: command\n    with: {run: [make]}\n"
	for i, text := range []string{old, releaseDocument} {
		_, err := s.client.ApplyDocument(ctx, belay.DocumentApply{
			Name: "release", Text: text, Reason: []string{"", "lint and scan before an approval"}[i],
		})
		s.fail(err)
	}
	_, err := s.client.ChangeDocument(ctx, belay.DocumentChange{
		Name: "release", Action: belay.DocumentDeprecate, Version: 1, Reason: "publishes without tests",
	})
	s.fail(err)
	_, err = s.client.ApplyDocument(ctx, belay.DocumentApply{Name: "cleanup", Text: cleanupDocument})
	s.fail(err)
	release := s.submit("execution-document", belay.Submission{
		Document: "release", Input: raw(map[string]string{"version": "v2.7.0"}),
	})
	until(s.api.t, "the release waits for an approval", func() bool {
		page, err := s.client.Tasks(ctx, belay.TaskQuery{Execution: release})
		waits, scans := false, false
		for i := range page.Tasks {
			waits = waits || page.Tasks[i].ID == "approve" && page.Tasks[i].State == belay.TaskWaiting
			scans = scans || page.Tasks[i].ID == "scan" && page.Tasks[i].State == belay.TaskRunning
		}
		return err == nil && waits && scans
	})
	s.reach(s.submit("", belay.Submission{Document: "cleanup"}), belay.Succeeded)
}

// queues makes executions that wait for a place, an operator, a mode, a time, or a worker; and one that is cancelled.
func (s *showcase) queues() {
	var reports []belay.ExecutionID
	for i := range 5 {
		reports = append(reports, s.submit("", belay.Submission{
			Workflow: "report", Queue: "reports", Input: raw(map[string]int{"quarter": i}), Priority: i,
		}))
	}
	until(s.api.t, "two reports run", func() bool {
		running := 0
		for _, id := range reports {
			e, err := s.client.Execution(s.api.t.Context(), id)
			s.fail(err)
			if e.State == belay.Running {
				running++
				s.runs["execution-running"] = id
			}
		}
		return running == 2
	})
	for _, id := range reports {
		e, err := s.client.Execution(s.api.t.Context(), id)
		s.fail(err)
		if e.State == belay.Running && id != s.runs["execution-running"] {
			s.control(id, belay.ActionCancel, "the quarter is not closed yet")
			s.reach(id, belay.Cancelled)
			s.runs["execution-cancelled"] = id
		}
		if e.State == belay.Pending {
			s.runs["execution-queued"] = id
		}
	}
	paused := s.submit("execution-paused", belay.Submission{Workflow: "checkout", Queue: "imports"})
	s.control(paused, belay.ActionPause, "the supplier sends a corrected file")
	s.submit("", belay.Submission{Workflow: "import", Queue: "imports", Input: raw("s3://rows/2026-11-28.parquet")})
	s.submit("", belay.Submission{Workflow: "newsletter", Input: raw(map[string]string{"issue": "2026-12"})})
	s.submit("", belay.Submission{
		Workflow: "transcribe", Queue: "gpu", WorkerLabels: map[string]string{"gpu": "a100"},
		Gates: belay.Gates{Requires: &belay.Requires{Resource: "gpu-0", Mode: "whisper"}},
	})
	s.submit("execution-due-later", belay.Submission{
		Workflow: "checkout", Budget: &belay.Budget{Cost: belay.CostOf(12)},
		DueAt: time.Now().Add(26 * time.Hour), Gates: belay.Gates{Target: "crm:contacts"},
		Labels: map[string]string{"shop": "berlin"},
	})
}

// outside makes an execution whose owner is no worker, and whose first owner lost it to an operator.
func (s *showcase) outside() {
	ctx := s.api.t.Context()
	id := s.submit("execution-outside", belay.Submission{
		Workflow: "triage", External: true, Labels: map[string]string{"issue": "1482"},
		Policy: belay.Policy{OnLost: belay.Requeue},
	})
	ttl := belay.Duration(time.Hour)
	lock, err := s.client.Lock(ctx, belay.LockRequest{Execution: id, Owner: "laptop of ben", TTL: ttl})
	s.fail(err)
	s.fail(s.client.Append(ctx, belay.Chunk{Lease: lock.Lease, Name: "output", Data: []byte("read 212 comments\n")}))
	s.control(id, belay.ActionSteal, "ben is on a train")
	_, err = s.client.Lock(ctx, belay.LockRequest{Execution: id, Owner: "laptop of cleo", TTL: ttl})
	s.fail(err)
}

// triggers makes schedules, webhooks and targets of notifications, each with something to show.
func (s *showcase) triggers() {
	ctx := s.api.t.Context()
	for _, d := range []belay.Schedule{
		{Name: "nightly-report", Cron: "0 3 * * *", TimeZone: "Europe/Berlin", Overlap: belay.AllowAll,
			Execution: belay.Submission{Document: "cleanup"}},
		{Name: "heartbeat", Every: belay.Duration(15 * time.Minute), Overlap: belay.AllowAll,
			Execution: belay.Submission{Workflow: "checkout", Queue: "imports", Input: raw(sale{Number: 1})}},
		{Name: "invoices", Cron: "0 8 1 * *", Execution: belay.Submission{Workflow: "invoices", Queue: "billing"}},
	} {
		_, err := s.client.PutSchedule(ctx, belay.SchedulePut{Schedule: d})
		s.fail(err)
	}
	for _, d := range []belay.ScheduleChange{
		{Name: "nightly-report", Action: belay.ScheduleRun, Reason: "the report of yesterday is missing"},
		{Name: "heartbeat", Action: belay.ScheduleBackfill, From: time.Now().Add(-50 * time.Minute), To: time.Now()},
		{Name: "invoices", Action: belay.SchedulePauseAction, Reason: "until the new price list is in force"},
	} {
		_, err := s.client.ChangeSchedule(ctx, d)
		s.fail(err)
	}
	for _, w := range []belay.Webhook{
		{Name: "build", Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.GITHUB_HOOK }}"},
			Filter: `event.type == "push"`, Execution: belay.Submission{
				Document: "cleanup",
				Input:    raw(map[string]string{"commit": "${{ event.data.after }}"}),
				Labels:   map[string]string{"commit": "${{ event.data.after }}"},
			}},
		{Name: "orders", Scheme: belay.SchemeStandard, Secrets: []string{"${{ secrets.SHOP_HOOK }}"},
			Execution: belay.Submission{Workflow: "checkout", Queue: "imports"}},
	} {
		_, err := s.client.PutWebhook(ctx, belay.WebhookPut{Webhook: w})
		s.fail(err)
	}
	push := `{"after": "3f2a9c1", "ref": "refs/heads/main"}`
	sum := hmac.New(sha256.New, []byte("it's a secret to everybody"))
	sum.Write([]byte(push))
	s.want(http.StatusOK, "POST", "/hooks/build", push, "X-GitHub-Event", "push", "X-GitHub-Delivery", "72d3162e",
		"X-Hub-Signature-256", "sha256="+hex.EncodeToString(sum.Sum(nil)))
	for i, e := range []belay.WebhookEvent{
		{Webhook: "build", Type: "ping", Data: raw(map[string]string{"zen": "Keep it logically awesome."})},
		{Webhook: "build", Type: "push", Data: raw(map[string]int{"after": 7})},
		{Webhook: "orders", Data: raw(sale{Number: 4800})},
	} {
		e.ID = fmt.Sprint("test-", i)
		_, _ = s.client.Deliver(ctx, e) // the second cannot start an execution; the page says why
	}
	s.want(http.StatusUnauthorized, "POST", "/hooks/build", push, "X-GitHub-Event", "push", "X-GitHub-Delivery", "0",
		"X-Hub-Signature-256", "sha256=00")
	for _, n := range []belay.NotificationTarget{
		{Name: "operators", Notification: belay.Notification{URL: "http://127.0.0.1:9/hooks/belay"},
			Alerts: []belay.Alert{belay.AlertDeadLetter, belay.AlertBreakerOpen, belay.AlertNoWorker}},
		{Name: "shop-team", Notification: belay.Notification{URL: "https://chat.example.com/hooks/7d1",
			Format: belay.FormatSlack, On: []belay.State{belay.Failed, belay.Cancelled}},
			Workflows: []string{"checkout", "charge*"}, Labels: map[string]string{"shop": "berlin"}},
	} {
		_, err := s.client.PutNotificationTarget(ctx, belay.NotificationTargetPut{NotificationTarget: n})
		s.fail(err)
	}
	// Nothing listens there, so the delivery fails.
	_, _ = s.client.TestNotificationTarget(ctx, belay.NotificationTargetTest{Name: "operators"})
}

// jobs sends two prompts to the agent: one job ends, and one works while the pages are looked at.
func (s *showcase) jobs(repo string) {
	key := []string{"Authorization", "Bearer " + s.admin}
	ask := func(prompt string) belay.ExecutionID {
		got := s.want(http.StatusAccepted, "POST", "/execute", `{"prompt": `+jsonText(prompt)+`}`, key...)
		id, err := belay.ParseExecutionID(got.string("job_id"))
		s.fail(err)
		return id
	}
	s.runs["execution-agent-done"] = ask("I read the notes first.\ncat notes.txt\nedit notes.txt A second line.\n" +
		"commit Add a line to the notes\ngit log --oneline -2\nThe notes have a second line now.")
	s.reach(s.runs["execution-agent-done"], belay.Succeeded)
	s.runs["execution-agent"] = ask("I look for the flaky test.\ngit status --short\nedit src/a.txt retry twice\n" +
		"git diff --stat\nNow the tests run; this takes a while.\nsleep 600")
	until(s.api.t, "the agent works", func() bool {
		job := s.want(http.StatusOK, "GET", "/jobs/"+s.runs["execution-agent"].String(), "", key...)
		return job.string("phase") == "working"
	})
}
