package test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/belaydev/belay/internal/webui"
)

// clerk is a filler who counts the actions that it has taken.
type clerk struct {
	*filler
	taken map[string]bool // the names of forms, as in "cancel" and "gate.pause"
}

// take opens a page, unless it is empty, follows the link to the form of an action, fills in fields (selectors and
// values), and sends the form. The next page must be no form, and must say a text.
func (c *clerk) take(page, action, says string, fields ...string) {
	c.t.Helper()
	of, do, deed := strings.Cut(action, ".")
	link := `.acts a[href$="/` + action + `"], .remedies a[href$="/` + action + `"]`
	if deed {
		link = `.acts a[href*="of=` + of + `&"][href*="do=` + do + `"], .acts a[href*="do=` + do + `&"][href*="of=` + of + `"]`
	}
	if page != "" {
		c.do("open "+page, chromedp.Navigate(c.base+page), see(`main h1`))
	}
	c.do("open the form "+action+" of "+page, click(link), see(`form.act`))
	for i := 0; i < len(fields); i += 2 {
		c.do("fill in "+fields[i]+" of "+action, set(fields[i], fields[i+1]))
	}
	if action == "requeue" {
		c.do("review "+action, click(`form.act .buttons button:not(.other)`), see(`#change .added`))
	}
	c.do("send the form "+action, click(`form.act .buttons button:not(.other)`),
		chromedp.WaitNotPresent(chromedp.CSS(`form.act`)), see(`main h1`))
	c.until(says)
	c.taken[action] = true
}

// Rule: each action that the pages offer works in a real browser. TestAPersonReadsAJobAndTheAuditInABrowser makes and
// revokes keys and replies to an agent, TestAPersonStartsADocument starts an execution, and
// TestAPersonRequeuesDeadLetters starts a bulk.
func TestAPersonTakesEveryAction(t *testing.T) {
	t.Parallel()
	c := &clerk{newFiller(t), map[string]bool{
		"reply": true, "/start": true, "/bulks/new": true, "/keys/create": true, "/keys/{id}/revoke": true,
	}}
	a, key := c.a, c.key
	c.actsOnExecutions()

	c.take("/workers", "worker.cordon", "cordoned", "#reason", "its disk is full")
	c.take("", "worker.uncordon", "")
	c.take("", "worker.drain", "drain")
	queue, target := "/queues?gate=queue:default", "/queues?gate=target:pay"
	resource := "/queues?gate=resource:gpu"
	c.take(queue, "gate.pause", "paused for")
	c.take(queue, "gate.resume", "")
	c.take(queue, "gate.limit", "of 7 places", "#max", "7")
	c.take(queue, "gate.unlimit", "")
	c.take(queue, "gate.rate", "9", "#max", "9", "#per", "5m")
	c.take(queue, "gate.unrate", "")
	c.take(target, "gate.open", "forced by anna: it is down", "#reason", "it is down")
	c.take(target, "gate.close", "forced by anna: it is up", "#reason", "it is up")
	c.take(target, "gate.auto", "")
	c.take(resource, "gate.resource", "", "#wait", "90s")
	c.take(resource, "gate.unresource", "")

	a.want(201, "PUT", "/v1/schedules/nightly", `{"cron": "0 0 1 1 *", "execution": {"workflow": "w"}}`, key...)
	c.take("/schedules/nightly", "schedule.pause", "holidays", "#reason", "holidays")
	c.take("/schedules/nightly", "schedule.resume", "")
	c.take("/schedules/nightly", "schedule.run", "pending")
	c.take("/schedules/nightly", "schedule.remove", "Schedules")

	a.want(201, "PUT", "/v1/webhooks/orders", `{"scheme": "cloudevents", "execution": {"workflow": "w"}}`, key...)
	c.take("/webhooks/orders", "webhook.test", "pending", "#data", `{"order": 7}`)
	c.take("/webhooks/orders", "delivery.replay", "pending")
	c.take("/webhooks/orders", "webhook.change", "event.data.order", "#filter", "event.data.order == 7")
	c.take("/webhooks/orders", "webhook.pause", "too many", "#reason", "too many")
	c.take("/webhooks/orders", "webhook.resume", "")
	c.take("/webhooks/orders", "webhook.remove", "Webhooks")

	a.want(201, "PUT", "/v1/notification-targets/ops", `{"url": "https://127.0.0.1:9/x"}`, key...)
	c.take("/notifications/ops", "target.change", "nightly-*", "#workflows", "nightly-*")
	c.take("/notifications/ops", "target.test", "")
	c.take("/notifications/ops", "target.pause", "on holiday", "#reason", "on holiday")
	c.take("/notifications/ops", "target.resume", "")
	c.take("/notifications/ops", "target.remove", "Notifications")

	for _, f := range webui.Forms() {
		name := strings.TrimPrefix(f.Path, "/executions/{id}/")
		if f.Path != "/act" && !c.taken[name] {
			t.Errorf("the form %s was not sent", f.Path)
		}
	}
	for _, d := range webui.Deeds() {
		if !c.taken[d[0]+"."+d[1]] {
			t.Errorf("the form %s of %s was not sent", d[1], d[0])
		}
	}
}

// actsOnExecutions takes the actions on executions and dead letters.
func (c *clerk) actsOnExecutions() {
	t, a, key := c.t, c.a, c.key
	t.Helper()
	submit := func() string {
		const body = `{"workflow": "w", "input": {"a": 1}, "budget": {"cost": 5}}`
		return a.want(201, "POST", "/v1/executions", body, key...).string("id")
	}
	page := "/executions/" + submit()
	c.take(page, "signal", "The signal was sent.", "#signal", "go")
	c.take(page, "pause", "paused", "#reason", "wait a moment")
	c.take(page, "resume", "The execution goes on.")
	c.take(page, "budget", "The execution has the new budget.", "#cost", "9")
	c.take(page, "cancel", "cancelled")
	c.take(page, "retry", "The execution runs again.")
	c.take(page, "quarantine", "The execution has failed")
	c.take(page, "requeue", "The execution runs again with the new input.", "#input", `{"a": 2}`)
	c.take(page, "cancel", "cancelled")
	c.take(page, "delete", "Executions")

	id := submit()
	page = "/executions/" + id
	a.want(201, "POST", "/v1/executions/"+id+"/lock", `{"owner": "me", "ttl": "10m"}`, key...)
	c.take(page, "fork", "This is the fork, a new execution.")
	c.take(page, "preempt", "The owner was asked to yield.")
	c.take(page, "steal", "The execution was taken from its owner.", "#reason", "it hangs")

	for range 3 {
		a.want(200, "POST", "/v1/executions/"+submit()+"/quarantine", `{"reason": "broken"}`, key...)
	}
	groups := a.want(200, "GET", "/v1/dead-letter-groups", "", key...)
	list, _ := groups.at("groups").([]any)
	first, _ := list[0].(map[string]any)
	letters := "/dead?fingerprint=" + url.QueryEscape(first["fingerprint"].(string))
	c.take(letters, "group.note", "all alike", "#reason", "all alike")
	c.take(letters, "letter.note", "this one too", "#reason", "this one too")
	c.take(letters, "letter.fix", "Dead letters", "#reason", "mended by hand")
	c.take(letters, "letter.discard", "Dead letters", "#reason", "nobody needs it")
}
