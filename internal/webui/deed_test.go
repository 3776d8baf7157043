package webui

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Each deed is carried out as its form says, with the name of the visitor, and the browser goes to the page of the
// thing.
func TestDeedsReachTheBackend(t *testing.T) {
	ids := map[string]string{
		ofWorker: owning.String(), ofGate: "queue:mail/now", ofSchedule: "nightly", ofLetter: id(1).String() + ".2",
	}
	pages := map[string]string{
		ofWorker: "/workers", ofGate: "/queues?gate=queue%3Amail%2Fnow", ofSchedule: "/schedules/nightly",
		ofLetter: "/executions/" + id(1).String(),
	}
	for _, d := range deeds {
		if d.of == ofGroup {
			continue // see TestANoteOnAGroup
		}
		f := running()
		at := deedPath + "?" + url.Values{"of": {d.of}, "id": {ids[d.of]}, "do": {d.name}}.Encode()
		a := send(t, f, by(at, nil, belay.ScopeOperate))
		a.says(d.about, ids[d.of])
		form := make(url.Values)
		for _, x := range a.root.class("act")[0].all("input") {
			form.Set(x.attr["name"], x.attr["value"])
		}
		if form.Has("reason") {
			form.Set("reason", "because")
		}
		got := send(t, f, by(deedPath, form, belay.ScopeOperate))
		if got.status != http.StatusSeeOther || got.header.Get("Location") != pages[d.of] || len(f.deeds) != 1 {
			t.Errorf("%s %s: %d to %q, %v\n%s", d.of, d.name, got.status, got.header.Get("Location"), f.deeds, got.body)
			continue
		}
		want := map[string]string{
			"cordon": "cordon " + ids[d.of] + " false by anna: because", "drain": "drain " + ids[d.of],
			"uncordon": "cordon " + ids[d.of] + " true by anna: because",
		}[d.name]
		if d.of != ofWorker {
			want = d.name + " " + ids[d.of] + " by anna: because false"
		}
		if f.deeds[0] != want {
			t.Errorf("%s %s: %q, want %q", d.of, d.name, f.deeds[0], want)
		}
		f.refusal = &belay.Error{Code: belay.CodeConflict, Message: "it is too late"}
		got = send(t, f, by(deedPath, form, belay.ScopeOperate))
		if got.status != http.StatusConflict || form.Has("reason") && !strings.Contains(got.body, `value="because"`) {
			t.Errorf("%s %s refused: %d\n%s", d.of, d.name, got.status, got.body)
		}
		got.says("It is too late.")
		for _, scopes := range [][]belay.Scope{nil, {belay.ScopeRead, belay.ScopeSubmit, belay.ScopeWorker}} {
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
			ofWorker: "drain", ofGate: "pause", ofSchedule: "run", ofLetter: "fix",
		} {
			text := percent(s)
			q := deedPath + "?of=" + of + "&do=" + do + "&op=" + text + "&reason=" + text + "&id=" + text
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
		belay.WorkerOpen: "Cordon, Drain", belay.WorkerCordoned: "Allow it to claim, Drain", belay.WorkerDraining: "",
	} {
		f.workers[0].State = state
		if got := on(belay.ScopeOperate); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
	gate := belay.GateInfo{Breaker: &belay.Breaker{}}
	if got := strings.Join(gateDeeds(&gate), " "); got != "pause open close auto" {
		t.Error(got)
	}
	gate = belay.GateInfo{Pause: &belay.GatePaused{}}
	if got := strings.Join(gateDeeds(&gate), " "); got != "resume" {
		t.Error(got)
	}
}
