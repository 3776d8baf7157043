package webui

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Each deed is carried out as its form says, with the name of the visitor, and the browser goes to the page of the
// thing. Each deed needs the scopes of its route of the API.
func TestDeedsReachTheBackend(t *testing.T) {
	ids := map[string]string{
		ofWorker: owning.String(), ofGate: "queue:mail/now", ofSchedule: "nightly", ofLetter: id(1).String() + ".2",
		ofWebhook: "x", ofDelivery: "x/a/b c", ofTarget: "x", ofGroup: "x",
	}
	pages := map[string]string{
		ofWorker: "/workers", ofGate: "/queues?gate=queue%3Amail%2Fnow", ofSchedule: "/schedules/nightly",
		ofLetter: "/executions/" + id(1).String(), ofWebhook: "/webhooks/x", ofDelivery: here + id(6).String(),
		ofTarget: "/notifications/x", ofGroup: "/dead?fingerprint=x",
		"schedule remove": "/schedules", "webhook remove": "/webhooks", "target remove": "/notifications",
		"webhook test": here + id(6).String(), "target test": here + id(6).String(),
	}
	for _, d := range deeds {
		f := withLetters()
		f.gates[0].ID, f.gates[0].Resource = "queue:mail/now", nil
		f.webhooks[0].Version, f.targets[0].Version = 3, 4
		needs := []belay.Scope{belay.ScopeOperate, belay.ScopeSubmit}
		if d.also == "" {
			needs = needs[:1]
		}
		at := deedPath + "?" + url.Values{"of": {d.of}, "id": {ids[d.of]}, "do": {d.name}}.Encode()
		a := send(t, f, by(at, nil, needs...))
		a.says(d.about, ids[d.of])
		form := fieldsOnPage(a)
		for name, value := range map[string]string{
			"reason": "because", "max": "5", "per": "2m", "residency": "3s", "rate": "7",
		} {
			if form.Has(name) {
				form.Set(name, value)
			}
		}
		got := send(t, f, by(deedPath, form, needs...))
		to := cmp.Or(pages[d.of+" "+d.name], pages[d.of])
		if d.of == ofLetter {
			to += "?done=letter." + d.name
		}
		if got.status != http.StatusSeeOther || got.header.Get("Location") != to || len(f.deeds) != 1 {
			t.Errorf("%s %s: %d to %q, %v\n%s", d.of, d.name, got.status, got.header.Get("Location"), f.deeds, got.body)
			continue
		}
		want := map[string]string{
			"worker cordon": "cordon " + ids[d.of] + " false by anna: because", "worker drain": "drain " + ids[d.of],
			"worker uncordon": "cordon " + ids[d.of] + " true by anna: because",
			"webhook test":    "deliver x test by anna: {}", "target test": "test x by anna",
			"webhook change": "put x 3 by anna: because",
			"target change":  "put x 4 by anna: because", "delivery replay": "replay x a/b c by anna",
			"group note": "note " + id(1).String() + ".2 by anna: because false",
		}[d.of+" "+d.name]
		if want == "" {
			want = d.name + " " + ids[d.of] + " by anna: because false"
		}
		if f.deeds[0] != want {
			t.Errorf("%s %s: %q, want %q", d.of, d.name, f.deeds[0], want)
		}
		f.refusal = &belay.Error{Code: belay.CodeConflict, Message: "it is too late"}
		got = send(t, f, by(deedPath, form, needs...))
		if got.status != http.StatusConflict && d.of != ofGroup || form.Has("reason") && d.of != ofGroup &&
			!strings.Contains(got.body, `value="because"`) {
			t.Errorf("%s %s refused: %d\n%s", d.of, d.name, got.status, got.body)
		}
		if d.of != ofGroup {
			got.says("It is too late.")
		}
		small := [][]belay.Scope{nil, {belay.ScopeRead, belay.ScopeSubmit, belay.ScopeWorker}}
		if d.also != "" {
			small = append(small, []belay.Scope{belay.ScopeRead, belay.ScopeOperate, belay.ScopeWorker})
		}
		for _, scopes := range small {
			for _, r := range []*http.Request{by(at, nil, scopes...), by(deedPath, form, scopes...)} {
				if got := send(t, f, r); got.status != http.StatusForbidden || len(f.deeds) != 2 {
					t.Errorf("%s %s with %v: %d", d.of, d.name, scopes, got.status)
				}
			}
		}
	}
	for _, query := range []string{"", "of=gate&do=pause", "of=gate&id=x&do=remove", "of=worker&id=x&do=pause",
		"of=letter&id=x&do=remove"} {
		if a := send(t, running(), by(deedPath+"?"+query, nil, belay.ScopeOperate)); a.status != http.StatusNotFound {
			t.Errorf("%q: %d", query, a.status)
		}
	}
}

// Any text in the address of a form is inert, and an address cannot carry a deed out.
func TestHostileAddressesOfDeeds(t *testing.T) {
	for _, s := range hostile {
		f := running()
		for of, do := range map[string]string{
			ofWorker: "drain", ofGate: "pause", ofSchedule: "run", ofLetter: "fix", ofGroup: "note",
			ofWebhook: "test", ofDelivery: "replay", ofTarget: "pause",
		} {
			text := percent(s)
			q := deedPath + "?of=" + of + "&do=" + do + "&op=" + text + "&reason=" + text + "&back=" + text
			q += "&id=" + text
			checkTame(t, send(t, f, by(q, nil, belay.ScopeOperate)))
			checkTame(t, send(t, f, by(q, url.Values{"reason": {s}}, belay.ScopeOperate)))
		}
		if len(f.deeds) != 0 {
			t.Errorf("%.30q: %v", s, f.deeds)
		}
	}
}

// The pages of workers, gates and schedules offer the deeds that change something, to visitors who may carry them out.
func TestDeedsThatPagesOffer(t *testing.T) {
	f := running()
	on := func(scopes ...belay.Scope) string {
		var names []string
		for _, a := range send(t, f, by("/workers", nil, scopes...)).root.class("acts") {
			for _, link := range a.all("a") {
				names = append(names, link.words())
			}
		}
		return strings.Join(names, ", ")
	}
	if got := on(belay.ScopeRead); got != "" {
		t.Errorf("a reader is offered %s", got)
	}
	for state, want := range map[belay.WorkerState]string{
		belay.WorkerOpen: "Cordon, Drain", belay.WorkerCordoned: "Uncordon, Drain", belay.WorkerDraining: "",
	} {
		f.workers[0].State = state
		if got := on(belay.ScopeOperate); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
	for want, g := range map[string]belay.GateInfo{
		"auto close open pause": {Kind: belay.GateTarget},
		"limit rate resume":     {Kind: belay.GateQueue, Pause: &belay.GatePaused{}},
		"limit pause rate unlimit unrate": {Kind: belay.GateWorkflow, Limit: &belay.GateLimited{Set: 1},
			Rate: &belay.GatePace{Set: true}},
		"limit pause":               {Kind: belay.GateLimit, Limit: &belay.GateLimited{Named: 1}},
		"pause rate":                {Kind: belay.GateRate, Rate: &belay.GatePace{}},
		"pause resource unresource": {Kind: belay.GateResource, Resource: &belay.GateResourceInfo{Set: true}},
		"pause resource":            {Kind: belay.GateResource},
	} {
		if got := strings.Join(slices.Sorted(slices.Values(gateDeeds(&g))), " "); got != want {
			t.Errorf("%s: %q, want %q", g.Kind, got, want)
		}
	}
}

// The forms of gates, webhooks and targets show the present terms, and send all of them with the changes.
func TestDeedsChangeTerms(t *testing.T) {
	f := withLetters()
	f.gates = []belay.GateDetail{{GateInfo: belay.GateInfo{ID: "resource:gpu", Kind: belay.GateResource, Name: "gpu",
		Resource: &belay.GateResourceInfo{Set: true, ResourceTerms: belay.ResourceTerms{
			MinResidency: belay.Duration(30 * time.Second),
			Swap:         &belay.ResourceSwapper{Workflow: "load", Queue: "gpu-1"},
		}}}}}
	both := []belay.Scope{belay.ScopeOperate, belay.ScopeSubmit}
	open := func(of, id, do string) url.Values {
		at := deedPath + "?" + url.Values{"of": {of}, "id": {id}, "do": {do}}.Encode()
		return fieldsOnPage(send(t, f, by(at, nil, both...)))
	}
	form := open(ofGate, "resource:gpu", "resource")
	form.Set("wait", "5m")
	send(t, f, by(deedPath, form, both...))
	terms := f.changed.Resource
	if terms == nil || terms.MinResidency.D() != 30*time.Second || terms.MaxWait.D() != 5*time.Minute ||
		terms.Swap.Workflow != "load" || terms.Swap.Queue != "gpu-1" {
		t.Errorf("the terms are %+v", terms)
	}
	before := len(f.deeds)
	for name, value := range map[string]string{"wait": "long", "residency": "-1s", "workflow": ""} {
		wrong := url.Values{}
		for n, v := range form {
			wrong[n] = v
		}
		wrong.Set(name, value)
		a := send(t, f, by(deedPath, wrong, both...))
		if a.status != http.StatusUnprocessableEntity || len(f.deeds) != before || fieldsOnPage(a).Get(name) != value {
			t.Errorf("%s=%q: %d, %v", name, value, a.status, f.deeds[before:])
		}
	}
	form = open(ofGate, "queue:mail", "pause")
	form.Set("until", "2026-11-21T08:00")
	send(t, f, by(deedPath, form, both...))
	if f.changed.Until.Format(time.RFC3339) != "2026-11-21T08:00:00Z" {
		t.Errorf("paused until %v", f.changed.Until)
	}
	f.webhooks = []belay.WebhookInfo{{Version: 3, Webhook: belay.Webhook{
		Name: "x", Scheme: belay.SchemeGitHub, Secrets: []string{"${{secrets.OLD}}"}, Filter: "true", Rate: 9,
		Execution: belay.Submission{Workflow: "build", Queue: "q"},
	}}}
	form = open(ofWebhook, "x", "change")
	if form.Get("secret1") != "OLD" || form.Get("version") != "3" || form.Get("rate") != "9" {
		t.Fatalf("the form is %v", form)
	}
	form.Set("secret2", "NEW")
	form.Set("filter", `event.type == "push"`)
	send(t, f, by(deedPath, form, both...))
	if p := f.putHook; len(p.Secrets) != 2 || p.Secrets[1] != "${{ secrets.NEW }}" || p.IfVersion != 3 ||
		p.Filter != `event.type == "push"` || p.Rate != 9 || p.Execution.Queue != "q" || p.Scheme != belay.SchemeGitHub {
		t.Errorf("put %+v", p)
	}
	f.targets = []belay.NotificationTargetInfo{{Version: 4, NotificationTarget: belay.NotificationTarget{
		Name: "x", Notification: belay.Notification{URL: "https://ops.example/secret-path", On: []belay.State{belay.Failed}},
		Workflows: []string{"a*", "b"}, Alerts: []belay.Alert{belay.AlertDeadLetter},
	}}}
	page := send(t, f, by(deedPath+"?of=target&id=x&do=change", nil, both...))
	if strings.Contains(page.body, "secret-path") {
		t.Error("the form shows the address of the target")
	}
	form = fieldsOnPage(page)
	form["on"] = []string{"failed", "cancelled"}
	form.Set("workflows", "c\r\n\r\nd")
	send(t, f, by(deedPath, form, both...))
	if p := f.putTarget; len(p.On) != 2 || p.On[1] != belay.Cancelled || strings.Join(p.Workflows, " ") != "c d" ||
		p.URL != "https://ops.example/secret-path" || len(p.Alerts) != 1 || p.IfVersion != 4 {
		t.Errorf("put %+v", p)
	}
	form.Del("version")
	if a := send(t, f, by(deedPath, form, both...)); a.status != http.StatusBadRequest {
		t.Errorf("without a version: %d", a.status)
	}
}

// A delivery of which no execution can be made says why in the form.
func TestADeliveryThatStartsNothingSaysWhy(t *testing.T) {
	f := withLetters()
	f.delivery = belay.WebhookDelivery{Outcome: belay.DeliveryFailed, Text: "there is no field id"}
	form := fieldsOnPage(send(t, f, by(deedPath+"?of=delivery&id=x/1&do=replay", nil, belay.ScopeOperate)))
	a := send(t, f, by(deedPath, form, belay.ScopeOperate))
	if a.says("The delivery starts nothing: there is no field id."); a.status != http.StatusConflict {
		t.Errorf("%d", a.status)
	}
}
