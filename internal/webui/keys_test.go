package webui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// office is a Backend with keys and an audit, which records what the pages ask.
type office struct {
	unset
	keys    []belay.Key
	entries []belay.AuditEntry
	next    string
	asked   []belay.AuditFilter
	reads   int
	made    []belay.KeySpec
	revoked []belay.Revocation
}

const newSecret = "bly_thesecretofthenewkey"

func (o *office) Audit(_ context.Context, f belay.AuditFilter) (belay.AuditPage, error) {
	o.asked = append(o.asked, f)
	return belay.AuditPage{Entries: o.entries, Next: o.next}, nil
}

func (o *office) Keys(context.Context) ([]belay.Key, error) {
	o.reads++
	return o.keys, nil
}

func (o *office) CreateKey(_ context.Context, s belay.KeySpec) (belay.NewKey, error) {
	if slices.ContainsFunc(o.made, func(m belay.KeySpec) bool { return m.Op == s.Op }) {
		return belay.NewKey{}, &belay.Error{Code: belay.CodeConflict, Message: "this operation has made a key already"}
	}
	if s.Name == "" {
		return belay.NewKey{}, &belay.Error{Code: belay.CodeInvalid, Message: "the key's name is empty; give one"}
	}
	k := belay.Key{ID: belay.KeyID{byte(len(o.keys) + 1)}, Name: s.Name, Scopes: s.Scopes, CreatedAt: noon}
	o.made, o.keys = append(o.made, s), append(o.keys, k)
	return belay.NewKey{Key: k, Secret: newSecret}, nil
}

func (o *office) RevokeKey(_ context.Context, r belay.Revocation) error {
	o.revoked = append(o.revoked, r)
	return nil
}

func opened(texts ...string) *office {
	o := &office{}
	for i, s := range texts {
		o.keys = append(o.keys, belay.Key{
			ID: belay.KeyID{byte(i + 1)}, Name: s, Scopes: []belay.Scope{belay.ScopeRead, belay.Scope(s)},
			CreatedAt: ago(time.Duration(i+1) * time.Minute),
		})
		for _, kind := range append(slices.Clone(belay.AuditKinds), s) {
			o.entries = append(o.entries, belay.AuditEntry{
				At: ago(time.Hour), Actor: s, Action: s, Kind: kind, Name: s, Version: 1, Reason: s,
			})
		}
	}
	return o
}

// sentBy returns the fields of the form on a page, as a browser sends them.
func sentBy(a *answer) url.Values {
	form := make(url.Values)
	for _, x := range a.root.class("act")[0].all("input") {
		if x.attr["type"] != "checkbox" || x.attr["checked"] != "" {
			form.Set(x.attr["name"], x.attr["value"])
		}
	}
	return form
}

// A visitor without the scope admin sees no keys and no audit, changes no key, and gets no link to these pages. The
// Backend is not asked.
func TestKeysAndAuditNeedTheScopeAdmin(t *testing.T) {
	id := belay.KeyID{1}.String()
	form := url.Values{"name": {"x"}, "admin": {"yes"}, "op": {newOp()}, "reason": {"x"}}
	for _, scopes := range [][]belay.Scope{
		nil, {belay.ScopeRead}, {belay.ScopeRead, belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeWorker},
	} {
		for _, at := range []string{"/audit", "/keys", keyCreate, "/keys/" + id + "/revoke", "/audit?actor=x"} {
			for _, f := range []url.Values{nil, form} {
				if f != nil && !slices.ContainsFunc(Forms(), func(x Form) bool {
					return x.Scope == belay.ScopeAdmin && strings.ReplaceAll(x.Path, "{id}", id) == at
				}) {
					continue
				}
				o := opened("the name of a key")
				a := send(t, o, by(at, f, scopes...))
				if a.status != http.StatusForbidden || o.reads+len(o.asked)+len(o.made)+len(o.revoked) != 0 {
					t.Errorf("%s with %v: %d, %+v", at, scopes, a.status, o)
				}
				if a.saysNot("the name of a key"); f == nil {
					a.says("Not allowed")
				}
			}
		}
		nav := get(t, running(), "/workers").root.all("nav")[0].words()
		if strings.Contains(nav, "Keys") || strings.Contains(nav, "Audit") {
			t.Errorf("%v: the navigation has %s", scopes, nav)
		}
	}
	if nav := send(t, running(), by("/workers", nil, belay.ScopeAdmin)).root.all("nav")[0].words(); !strings.Contains(
		nav, "Audit Keys") {
		t.Errorf("the navigation of an administrator has %s", nav)
	}
}

// A key is made as the form says. Only the answer to the form has the secret, and no address has it; the same form sent
// again makes no key and shows no secret.
func TestAKeyIsMadeOnce(t *testing.T) {
	o := opened()
	form := sentBy(send(t, o, by(keyCreate, nil, belay.ScopeAdmin)))
	if len(form["op"]) != 1 || form.Has("admin") {
		t.Fatalf("the form is %v", form)
	}
	form.Set("name", "")
	form.Set("submit", "yes")
	bad := send(t, o, by(keyCreate, form, belay.ScopeAdmin))
	bad.says("The key's name is empty")
	if again := sentBy(bad); bad.status != http.StatusUnprocessableEntity || again.Get("submit") != "yes" ||
		len(o.made) != 0 {
		t.Errorf("%d, and the form is %v", bad.status, again)
	}
	form.Set("name", " ci ")
	a := send(t, o, by(keyCreate, form, belay.ScopeAdmin))
	a.says("The new key of ci", newSecret)
	if a.status != http.StatusOK || a.header.Get("Cache-Control") != "no-store" || a.header.Get("Location") != "" ||
		strings.Count(a.body, newSecret) != 1 {
		t.Errorf("%d %v", a.status, a.header)
	}
	for range 2 {
		again := send(t, o, by(keyCreate, form, belay.ScopeAdmin))
		again.says("This form was sent before", "revoke the key")
		again.saysNot(newSecret)
		if again.status != http.StatusConflict || len(o.made) != 1 {
			t.Errorf("%d, %+v", again.status, o.made)
		}
	}
	if m := o.made[0]; m.Name != "ci" || fmt.Sprint(m.Scopes) != "[submit]" || m.Actor != "anna" || m.Op.IsZero() {
		t.Errorf("%+v", m)
	}
	send(t, o, by("/keys", nil, belay.ScopeAdmin)).saysNot(newSecret)
	for _, op := range []string{"", "x", "op_0"} { // without an operation id, each repetition would make a key
		form.Set("op", op)
		a := send(t, o, by(keyCreate, form, belay.ScopeAdmin))
		if a.status != http.StatusBadRequest || len(o.made) != 1 {
			t.Errorf("op %q: %d", op, a.status)
		}
	}
	// An address makes no key.
	send(t, o, by(keyCreate+"?"+form.Encode()+"&op="+newOp(), nil, belay.ScopeAdmin))
	if len(o.made) != 1 {
		t.Errorf("%+v", o.made)
	}
}

// A key is revoked with a reason after the form was shown.
func TestAKeyIsRevoked(t *testing.T) {
	o := opened("ci", "old")
	o.keys[1].RevokedAt = ago(time.Second)
	list := send(t, o, by("/keys", nil, belay.ScopeAdmin))
	list.says("ci", "valid Revoke", "revoked 1s ago")
	at := revokeAt(o.keys[0].ID)
	form := sentBy(send(t, o, by(at, nil, belay.ScopeAdmin)))
	form.Set("reason", "it leaked")
	a := send(t, o, by(at, form, belay.ScopeAdmin))
	want := belay.Revocation{Key: o.keys[0].ID, Actor: "anna", Reason: "it leaked"}
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/keys?done=revoke" || len(o.revoked) != 1 ||
		o.revoked[0] != want {
		t.Errorf("%d to %s, %+v", a.status, a.header.Get("Location"), o.revoked)
	}
	for _, id := range []string{"x", belay.KeyID{99}.String(), id(1).String(), "key_"} {
		if a := send(t, o, by("/keys/"+id+"/revoke", form, belay.ScopeAdmin)); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", id, a.status)
		}
	}
	if len(o.revoked) != 1 {
		t.Errorf("%+v", o.revoked)
	}
	many := opened(slices.Repeat([]string{"k"}, 2000)...)
	if a := send(t, many, by("/keys", nil, belay.ScopeAdmin)); len(a.root.all("tr")) > mostKeys+1 ||
		!strings.Contains(a.body, "1500 more") {
		t.Errorf("%d rows", len(a.root.all("tr")))
	}
}

// The filter of the page reaches the Backend, and the pages after the first keep it.
func TestTheAuditIsFiltered(t *testing.T) {
	o := opened("x")
	o.next = "1/1/gate/a b"
	a := send(t, o, by("/audit?actor=ann+&action=pause&kind=gate&name=queue:a/b&since=2026-11-20T08:00"+
		"&until=2026-11-21",
		nil, belay.ScopeAdmin))
	want := belay.AuditFilter{
		Actor: "ann", Action: "pause", Kind: "gate", Name: "queue:a/b", Limit: auditSize,
		Since: time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), Until: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
	}
	if len(o.asked) != 1 || o.asked[0] != want {
		t.Errorf("%+v, want %+v", o.asked, want)
	}
	next := a.root.class("pages")[0].all("a")[0].attr["href"]
	send(t, o, by(next, nil, belay.ScopeAdmin))
	want.Cursor = o.next
	if len(o.asked) != 2 || o.asked[1] != want {
		t.Errorf("%+v, want %+v", o.asked, want)
	}
	if a := send(t, o, by("/audit?since=yesterday", nil, belay.ScopeAdmin)); a.status != http.StatusBadRequest {
		t.Errorf("%d", a.status)
	}
	o.entries = []belay.AuditEntry{
		{Kind: "notification_targets", Name: "all", Action: "put", Reason: "chat, version 3: a new channel"},
		{Kind: "notification_targets", Name: "all", Action: "put", Reason: "no/name, version 3"},
	}
	a = send(t, o, by("/audit", nil, belay.ScopeAdmin))
	a.says("notification targets chat", "notification targets all")
	if !strings.Contains(a.body, `href="/notifications/chat"`) || strings.Contains(a.body, `href="/notifications/no`) {
		t.Error("the entry of a target does not lead to its page")
	}
	o.entries = nil
	send(t, o, by("/audit?actor=x", nil, belay.ScopeAdmin)).says("The search goes on with the next page")
}

// Any text in a key or in the audit is inert, and the pages stay bounded.
func TestHostileKeysAndAudit(t *testing.T) {
	for _, s := range hostile {
		o := opened(s, s)
		for _, at := range []string{
			"/keys", "/audit", revokeAt(belay.KeyID{1}), keyCreate, "/audit?cursor=" + percent(s),
			"/audit?name=" + percent(s), "/audit?kind=" + percent(s), "/audit?since=" + percent(s),
			"/keys/" + percent(s) + "/revoke", "/keys?done=" + percent(s),
		} {
			a := send(t, o, by(at, nil, belay.ScopeAdmin))
			checkTame(t, a)
			if len(a.body) > 512<<10 {
				t.Errorf("%.40q: %d bytes", at, len(a.body))
			}
		}
		checkTame(t, send(t, o, by(keyCreate, url.Values{"name": {s}, "op": {newOp()}, "read": {s}}, belay.ScopeAdmin)))
	}
}
