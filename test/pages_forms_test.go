package test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// set gives an input, a textarea or a select a value.
func set(selector, value string) chromedp.Action[chromedp.Void] {
	return chromedp.SetValue(chromedp.CSS(selector), value)
}

// send sends the form of an action, and waits for the next page with an element.
func (b *browser) send(what, next string) {
	b.t.Helper()
	b.do(what, click(`form.act .buttons button:not(.other)`), see(next))
}

// put stores a document.
func (a api) put(name, text string, headers ...string) {
	a.t.Helper()
	body, err := json.Marshal(map[string]string{"text": text})
	must(a.t, err)
	if got := a.call("PUT", "/v1/workflows/"+name, string(body), headers...); got.status >= 300 {
		a.t.Fatalf("store %s: %d %s", name, got.status, got.text)
	}
}

const deliverDocument = `name: deliver
description: Brings a parcel to a city.
input:
  type: object
  required: [city]
  properties:
    city: {type: string, description: The name of the city}
    count: {type: integer, default: 2, minimum: 1, maximum: 9}
    size: {enum: [small, large]}
    day: {type: string, format: date}
    notes: {type: array, items: {type: string}}
    fragile: {type: boolean, default: false}
tasks:
  - id: allow
    uses: approval
    with: {message: "May the parcel go?"}
  - id: send
    uses: command
    needs: allow
    with: {run: ["echo", "sent to ${{ input.city }}"]}
`

const payDocument = `name: pay
input:
  type: object
  properties:
    code: {type: integer, default: 3}
    invoice: {type: string}
tasks:
  - id: pay
    uses: command
    retry: {attempts: 1}
    with: {run: ["sh", "-c", "exit ${{ input.code }}"]}
`

// filler is a person who fills in forms, with a key of the scope admin, at a server with a worker for commands.
type filler struct {
	*browser
	a   api
	key []string // the header for requests to the API
}

func newFiller(t *testing.T) *filler {
	t.Helper()
	p := newPlace(t)
	_, a := p.serve()
	secret := func(name, scope string) string {
		return strings.TrimSpace(p.belay("keys", "create", "--name", name, "--scope", scope).want(0).out)
	}
	admin := secret("anna", "admin")
	p.start(withEnv(p.command("worker", "--server", a.url, "--name", "old-worker"),
		"BELAY_KEY="+secret("old-worker", "worker")))
	// the status 422 is the answer to forms with mistakes
	b := &filler{newBrowser(t, a.url, "the server responded with a status of 422"), a, []string{
		"Authorization", "Bearer " + admin,
	}}
	b.do("sign in", chromedp.Navigate(a.url+"/workers"), see(`input[name=key]`), enter(`input[name=key]`, admin),
		click(`form.act button`), see(`form.visitor`))
	return b
}

// Rule: in a real browser a person starts a document with the fields of its input, approves a task, and opens the form
// that starts it again.
func TestAPersonStartsADocument(t *testing.T) {
	t.Parallel()
	b := newFiller(t)
	a, key := b.a, b.key
	a.put("deliver", deliverDocument, key...)
	b.do("the document", chromedp.Navigate(a.url+"/workflows/deliver"))
	b.do("open the document", click(`.acts a`), see(`#f0`))
	b.do("leave a field wrong", enter(`#f0`, "Łódź"), set(`#f1`, "12"), set(`#f2`, "1"), set(`#f3`, "2026-12-24"),
		enter(`#f4`, "ring twice\nor call"), click(`input[name=f5]`))
	b.shot("forms-start")
	b.send("a wrong number", `#f1-wrong`)
	b.shot("forms-start-wrong")
	b.do("as JSON", set(`#f1`, "5"), click(`button.other`), see(`#input`))
	b.shot("forms-start-json")
	b.do("in fields", click(`button.other`), see(`#f4`))
	b.send("start", `p.done`)
	b.until("May the parcel go?")
	b.shot("forms-started")
	found := a.call("GET", "/v1/executions?workflow=document&label=document=deliver", "", key...)
	if list, _ := found.at("executions").([]any); len(list) != 1 {
		t.Fatalf("%d executions were started: %s", len(list), found.text)
	}

	b.do("open the approval", click(`a.answer`), see(`#f0`))
	b.shot("forms-approval")
	b.do("approve", set(`#f0`, "0"), enter(`#f1`, "by all means"))
	b.send("approve", `p.done`)
	b.until("It has succeeded")
	b.do("again", click(`.acts a[href^="/start?again="]`), see(`#f0`))
	b.shot("forms-again")
}

// Rule: in a real browser a person requeues a group of dead letters with another input and a canary, after a review
// that shows how the inputs change, and sees the progress of the bulk.
func TestAPersonRequeuesDeadLetters(t *testing.T) {
	t.Parallel()
	b := newFiller(t)
	a, key := b.a, b.key
	a.put("pay", payDocument, key...)
	for i := range 3 {
		body := fmt.Sprintf(`{"document": "pay", "input": {"invoice": "no. %d"}}`, i)
		a.want(201, "POST", "/v1/executions", body, key...)
	}
	until(t, "three dead letters", func() bool {
		groups, _ := a.call("GET", "/v1/dead-letter-groups", "", key...).at("groups").([]any)
		if len(groups) != 1 {
			return false
		}
		g, _ := groups[0].(map[string]any)
		return g["count"] == 3.0
	})
	b.do("the group", chromedp.Navigate(a.url+"/dead"), click(`.cards th a`), see(`.acts a[href*="do=note"]`))
	b.do("a note", click(`.acts a[href*="of=group"]`), enter(`#reason`, "the code is wrong"))
	b.send("a note", `.acts a[href*="action=requeue"]`)
	b.until("the code is wrong")
	b.shot("forms-group")
	b.do("requeue", click(`.acts a[href*="action=requeue"]`), see(`#edit`), set(`#edit`, "patch"),
		enter(`#input`, `{"code": 0}`), set(`#canary`, "1"))
	b.shot("forms-requeue")
	b.send("review", `pre.diff .added`)
	b.until(`+  "code": 0`)
	b.until("A dry run finds 3 dead letters")
	b.do("the reason", enter(`#note`, "the code was wrong"))
	b.shot("forms-review")
	b.send("start the bulk", `#terms`)
	b.until("It has acted on everything that it selected.")
	b.until("succeeded")
	b.shot("forms-bulk")
	b.do("the list of bulks", chromedp.Navigate(a.url+"/bulks"), see(`.cards tbody a`))
	b.shot("forms-bulks")
	if n := a.call("GET", "/v1/dead-letters", "", key...).at("dead_letters").([]any); len(n) != 0 {
		t.Errorf("%d dead letters are left", len(n))
	}
	b.do("the list", chromedp.Navigate(a.url+"/executions?workflow=document"), see(`.acts a.danger`))
	b.shot("forms-list")
}

// Rule: in a real browser a person forces a circuit breaker open, sets a limit, drains a worker, and tests a webhook
// and replays its delivery.
func TestAPersonChangesGatesAndTriggers(t *testing.T) {
	t.Parallel()
	b := newFiller(t)
	a, key := b.a, b.key
	b.do("the breaker", chromedp.Navigate(a.url+"/queues?gate="+url.QueryEscape("target:pay/now")),
		click(`.acts a[href*="do=open"]`), see(`#reason`), enter(`#reason`, "the provider is down"))
	b.shot("forms-breaker")
	b.send("force the breaker", `.acts a[href*="do=auto"]`)
	b.until("forced by anna: the provider is down")
	b.do("a limit", chromedp.Navigate(a.url+"/queues?gate=queue:default"), click(`.acts a[href*="do=limit"]`),
		see(`#max`), set(`#max`, "7"))
	b.send("a limit", `.acts a[href*="do=unlimit"]`)
	b.until("of 7 places taken")
	b.do("drain", chromedp.Navigate(a.url+"/workers"), see(`.acts`))
	b.until("old-worker")
	drain := `//tr[contains(., "old-worker")]//a[contains(@href, "do=drain")]`
	b.do("drain", chromedp.Click(chromedp.Search(drain)), see(`form.act`))
	b.shot("forms-drain")
	b.do("drain", click(`form.act button.danger`), see(`table`))
	b.until("drain")

	a.want(201, "PUT", "/v1/webhooks/orders", `{"scheme": "cloudevents", "execution": {"workflow": "order"}}`, key...)
	b.do("a test delivery", chromedp.Navigate(a.url+"/webhooks/orders"), click(`.acts a[href*="do=test"]`),
		see(`#data`), set(`#data`, `{"order": 7}`))
	b.shot("forms-delivery")
	b.send("a test delivery", `.why`)
	b.do("replay", chromedp.Navigate(a.url+"/webhooks/orders"), see(`td .acts a`))
	b.shot("forms-webhook")
	b.do("replay", click(`td .acts a`), see(`form.act`))
	b.send("replay", `.why`)
	b.until(`"order": 7`)
	got := a.call("GET", "/v1/executions?workflow=order", "", key...)
	if n := strings.Count(got.text, `"workflow":"order"`); n != 2 {
		t.Errorf("the webhook has started %d executions: %s", n, got.text)
	}
}
