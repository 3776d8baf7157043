package test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
)

// hostileMarkup attacks a page: it closes the elements and attributes in which it may stand, and begins others. Its
// characters are allowed in names.
const hostileMarkup = `"'><script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>` +
	`</title></style></textarea><!--&lt;b&gt;{{7*7}}javascript:alert(4)` + hostileText

// hostilePlace is a server whose clients have written hostile texts wherever they can.
func hostilePlace(t *testing.T) *showcase {
	t.Helper()
	p := newPlace(t)
	flags := []string{"--agent-repo", p.repository()}
	if os.Geteuid() != 0 {
		flags = append(flags, bare...)
	}
	s := &showcase{runs: make(map[string]belay.ExecutionID), places: make(map[string]string)}
	s.agents = p.assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")}, flags...)
	var err error
	s.client, err = client.Dial(t.Context(), s.url)
	must(t, err)
	t.Cleanup(func() { _ = s.client.Close() })
	s.hostileRuns()
	s.hostileFleet()
	s.hostileTriggers()
	return s
}

// hostileRuns makes executions with hostile names, inputs, outputs, errors and logs.
func (s *showcase) hostileRuns() {
	ctx, evil, text := s.api.t.Context(), hostileMarkup, hostileMarkup+hostileBytes
	dirty := raw(map[string]any{text: []string{text, strings.Repeat("nobreak", 3000)}})
	submission := belay.Submission{
		Workflow: evil, Queue: evil, Input: dirty, External: true, IdempotencyKey: evil, TriggerPayload: dirty,
		Labels: map[string]string{"command": evil, evil: evil, "a": evil}, Policy: belay.Policy{MaxAttempts: 1},
		Gates: belay.Gates{Target: evil, Rate: &belay.Rate{Name: evil, Max: 100, Per: belay.Duration(time.Second)}},
	}
	failed := s.submit("execution-failed", submission)
	lock, err := s.client.Lock(ctx, belay.LockRequest{Execution: failed, Owner: evil})
	s.fail(err)
	line := append([]byte(text), bytes.Repeat([]byte("\x1b[31mx\x1b[0m<b>\xff"), 16_000)...)
	n := int64(0)
	for total := 0; total < 10<<20; total += len(line) { // 10 MB without a line end
		s.fail(s.client.Append(ctx, belay.Chunk{Lease: lock.Lease, Name: "output", N: n, Data: line}))
		n++
	}
	s.fail(s.client.Signal(ctx, belay.SignalRequest{Execution: failed, Name: evil, Payload: dirty}))
	s.fail(s.client.Settle(ctx, belay.Settlement{Lease: lock.Lease, Outcome: belay.OutcomeFailed, Output: dirty,
		Failure: &belay.Failure{Class: belay.ClassPermanent, Message: text, Stack: text}}))
	_, err = s.client.ChangeDeadLetter(ctx, belay.DeadLetterChange{
		Execution: failed, Action: belay.DeadLetterNoted, Note: evil, Actor: evil,
	})
	s.fail(err)

	submission.IdempotencyKey, submission.Version = "", evil
	held := s.submit("execution-running", submission)
	lock, err = s.client.Lock(ctx, belay.LockRequest{Execution: held, Owner: evil, TTL: belay.Duration(time.Hour)})
	s.fail(err)
	s.fail(s.client.Append(ctx, belay.Chunk{Lease: lock.Lease, Name: "output", Data: []byte(text + "\nline\r\n")}))
	submission.External, submission.WorkerLabels = false, map[string]string{evil: evil}
	submission.Gates.Requires = &belay.Requires{Resource: evil, Mode: evil}
	waiting := s.submit("execution-waiting", submission)
	s.control(waiting, belay.ActionPause, evil)
	gone := s.submit("execution-cancelled", submission)
	s.control(gone, belay.ActionCancel, evil)

	job := s.want(202, "POST", "/execute", `{"prompt": `+jsonText(text+"\ncat notes.txt\nshow "+evil)+`}`)
	id, err := belay.ParseExecutionID(job.string("job_id"))
	s.fail(err)
	s.runs["execution-agent"] = id
	until(s.api.t, "the job of the agent ends", func() bool {
		e, err := s.client.Execution(ctx, id)
		return err == nil && e.State.Terminal()
	})
}

// hostileFleet opens a worker with hostile names, and changes gates with hostile names and reasons.
func (s *showcase) hostileFleet() {
	ctx, evil := s.api.t.Context(), hostileMarkup
	w, err := s.client.OpenWorker(ctx, belay.WorkerSpec{
		Name: evil, Version: evil, Queues: []string{evil, "default"}, Capacity: 3, TTL: belay.Duration(time.Hour),
		Workflows: []belay.Registration{{Workflow: evil, Version: evil}}, Labels: map[string]string{evil: evil},
	})
	s.fail(err)
	s.fail(s.client.Cordon(ctx, belay.Cordon{Worker: w.ID, Reason: evil, Actor: evil}))
	for _, g := range []belay.GateChange{
		{Gate: belay.Gate("queue", evil), Action: belay.GatePause},
		{Gate: belay.Gate("queue", evil), Action: belay.GateSetLimit, Max: 2},
		{Gate: belay.Gate("workflow", evil), Action: belay.GatePause},
		{Gate: belay.Gate("target", evil), Action: belay.GateForceOpen},
		{Gate: belay.Gate("resource", evil), Action: belay.GateSetResource, Resource: &belay.ResourceTerms{}},
	} {
		g.Reason, g.Actor = evil, evil
		_, err := s.client.ChangeGate(ctx, g)
		s.fail(err)
	}
}

// hostileTriggers makes schedules, webhooks, targets and documents, with hostile texts in what they start.
func (s *showcase) hostileTriggers() {
	ctx, evil, text := s.api.t.Context(), hostileMarkup, hostileMarkup+hostileBytes
	run := belay.Submission{Workflow: evil, Queue: evil, Input: raw(text), Labels: map[string]string{"a": evil}}
	_, err := s.client.PutSchedule(ctx, belay.SchedulePut{Schedule: belay.Schedule{
		Name: "hostile", Cron: "@daily", Execution: run,
	}, Reason: evil, Actor: evil})
	s.fail(err)
	for _, action := range []belay.ScheduleAction{belay.ScheduleRun, belay.SchedulePauseAction} {
		_, err = s.client.ChangeSchedule(ctx, belay.ScheduleChange{Name: "hostile", Action: action, Reason: evil})
		s.fail(err)
	}
	run.Input = nil
	_, err = s.client.PutWebhook(ctx, belay.WebhookPut{Webhook: belay.Webhook{
		Name: "hostile", Scheme: belay.SchemeCloudEvents, Filter: "event.type != " + jsonText(evil), Execution: run,
	}, Reason: evil, Actor: evil})
	s.fail(err)
	_, err = s.client.Deliver(ctx, belay.WebhookEvent{
		Webhook: "hostile", ID: `"><img/src=x/onerror=alert(5)>`, Type: hostileText, Data: raw(text), By: "test",
	})
	s.fail(err)
	target := belay.NotificationTarget{
		Name: "hostile", Notification: belay.Notification{URL: `https://example.org/"'><img/onerror=alert(6)>`},
		Workflows: []string{evil}, Queues: []string{evil}, Labels: map[string]string{evil: evil},
	}
	_, err = s.client.PutNotificationTarget(ctx, belay.NotificationTargetPut{
		NotificationTarget: target, Reason: evil, Actor: evil,
	})
	s.fail(err)
	ask := map[string]any{"id": "ask", "uses": "approval", "description": text, "with": map[string]any{"message": text}}
	never := map[string]any{"id": "never", "uses": "command", "needs": "ask",
		"with": map[string]any{"run": []string{text}}}
	document := raw(map[string]any{"name": "hostile", "description": text, "tasks": []any{ask, never}})
	_, err = s.client.ApplyDocument(ctx, belay.DocumentApply{
		Name: "hostile", Reason: evil, Actor: evil, Text: string(document),
	})
	s.fail(err)
	s.submit("execution-document", belay.Submission{Document: "hostile", Labels: map[string]string{"a": evil}})
}

// tame finds elements, attributes and characters that only a hostile text can have put into a page.
const tame = `(() => {
	const bad = [...document.querySelectorAll('iframe, object, embed, base, [style], script:not([src^="/assets/"]), ' +
		'img:not([src^="/assets/"]), svg[onload], a[href]:not([href^="/"]):not([href^="#"])')].map(
		e => 'an element: ' + e.outerHTML.slice(0, 200));
	for (const e of document.querySelectorAll('*'))
		for (const a of e.attributes) if (a.name.startsWith('on')) bad.push('an attribute: ' + a.name);
	const steers =
		/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;
	const text = document.documentElement.outerHTML, at = text.search(steers);
	if (at >= 0) bad.push('a hidden character: ' + escape(text.slice(Math.max(0, at - 50), at + 20)));
	if (document.querySelector('main').getBoundingClientRect().left < 0) bad.push('the content is out of view');
	return bad;
})()`

// Rule: hostile texts, wherever clients can write them, are inert on every page in a real browser: no dialog, no
// element, no attribute, no hidden character, no message in the console, at most 600 KiB, and no wider than a phone.
func TestHostileTextIsInertInABrowser(t *testing.T) {
	t.Parallel()
	s := hostilePlace(t)
	most := 1
	if *long {
		most = 6
	}
	pages := s.crawl(most)
	b := newBrowser(t, s.url)
	found := 0
	for _, p := range pages {
		if strings.Contains(p.kind, "live") || !*long && strings.HasPrefix(p.kind, "/act") {
			continue
		}
		if strings.Contains(p.html, "alert(1)") {
			found++
		}
		if len(p.html) > 600<<10 {
			t.Errorf("%s has %d bytes", p.path, len(p.html))
		}
		if m := stops.FindStringSubmatch(p.html); m != nil {
			p.path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
		t.Run(p.name, func(t *testing.T) {
			b.t = t
			b.wear("light", 390)
			b.open(p)
			b.ask("hostile text", tame)
			b.ask("width", wide)
			b.wear("light", 1280)
			b.ask("width", wide)
		})
	}
	b.t = t
	if found < 15 {
		t.Errorf("only %d pages show the hostile text", found)
	}
}
