package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/webui"
)

// twin is a form of the pages, and the request to the API that does the same.
type twin struct {
	form, fields string
	method, path string
	body         string
}

// twins returns the forms for an execution that exists.
func twins(id string) []twin {
	all := []twin{
		{"/start", "workflow=w&mode=json", "POST", "/v1/executions", `{"workflow": "w"}`},
		{"/bulks/new", "action=cancel&workflow=none&step=start&rate=1&failures=0", "POST", "/v1/bulk",
			`{"action": "cancel", "filter": {"workflow": "none"}}`},
		{"/executions/" + id + "/signal", "signal=x&mode=json", "POST", "/v1/executions/" + id + "/signal",
			`{"name": "x"}`},
		{"/executions/" + id + "/reply", "message=x", "POST", "/jobs/" + id + "/prompt", `{"prompt": "x"}`},
		{"/executions/" + id + "/steal", "", "POST", "/v1/executions/" + id + "/lock/steal", `{"reason": "x"}`},
		{"/executions/" + id + "/delete", "", "DELETE", "/v1/executions/" + id, ""},
		{"/keys/create", "name=x&read=yes", "POST", "/v1/keys", `{"name": "x", "scopes": ["read"]}`},
		{"/keys/" + id + "/revoke", "", "DELETE", "/v1/keys/" + belay.KeyID{1}.String(), ""},
	}
	all = append(all, twin{"/executions/" + id + "/budget", "cost=5", "POST", "/v1/executions/" + id + "/budget",
		`{"budget": {"cost": 5}}`})
	for _, a := range []string{"pause", "resume", "retry", "requeue", "fork", "preempt", "cancel", "quarantine"} {
		all = append(all, twin{"/executions/" + id + "/" + a, "generation=1&input=1", "POST",
			"/v1/executions/" + id + "/" + a, `{}`})
	}
	worker := belay.WorkerID{1, 15: 1}.String()
	for _, x := range [][4]string{
		{"worker&id=" + worker + "&do=cordon", "POST /v1/workers/" + worker + "/cordon", `{}`},
		{"worker&id=" + worker + "&do=uncordon", "POST /v1/workers/" + worker + "/uncordon", `{}`},
		{"worker&id=" + worker + "&do=drain", "POST /v1/workers/" + worker + "/drain", ``},
		{"gate&id=queue:q&do=pause", "POST /v1/gates/queue:q/pause", `{}`},
		{"gate&id=queue:q&do=resume", "POST /v1/gates/queue:q/resume", `{}`},
		{"gate&id=queue:q&do=limit&max=5", "PUT /v1/gates/queue:q/limit", `{"max": 5}`},
		{"gate&id=queue:q&do=unlimit", "DELETE /v1/gates/queue:q/limit", ``},
		{"gate&id=queue:q&do=rate&max=5&per=1s", "PUT /v1/gates/queue:q/rate", `{"max": 5, "per": "1s"}`},
		{"gate&id=queue:q&do=unrate", "DELETE /v1/gates/queue:q/rate", ``},
		{"gate&id=target:t&do=open", "PUT /v1/gates/target:t/breaker", `{"state": "open"}`},
		{"gate&id=target:t&do=close", "PUT /v1/gates/target:t/breaker", `{"state": "closed"}`},
		{"gate&id=target:t&do=auto", "PUT /v1/gates/target:t/breaker", `{"state": "auto"}`},
		{"gate&id=resource:r&do=resource", "PUT /v1/gates/resource:r/resource", `{}`},
		{"gate&id=resource:r&do=unresource", "DELETE /v1/gates/resource:r/resource", ``},
		{"schedule&id=s&do=pause", "POST /v1/schedules/s/pause", `{}`},
		{"schedule&id=s&do=resume", "POST /v1/schedules/s/resume", `{}`},
		{"schedule&id=s&do=run", "POST /v1/schedules/s/run", `{}`},
		{"schedule&id=s&do=remove", "DELETE /v1/schedules/s", ``},
		{"letter&id=" + id + ".1&do=fix", "POST /v1/dead-letters/" + id + "/fix", `{}`},
		{"letter&id=" + id + ".1&do=discard", "POST /v1/dead-letters/" + id + "/discard", `{}`},
		{"letter&id=" + id + ".1&do=note&reason=x", "POST /v1/dead-letters/" + id + "/note", `{"notes": "x"}`},
		{"group&id=f&do=note&reason=x", "POST /v1/dead-letters/" + id + "/note", `{"notes": "x"}`},
		{"webhook&id=h&do=pause", "POST /v1/webhooks/h/pause", `{}`},
		{"webhook&id=h&do=resume", "POST /v1/webhooks/h/resume", `{}`},
		{"webhook&id=h&do=remove", "DELETE /v1/webhooks/h", ``},
		{"webhook&id=h&do=test&delivery=1&data=1", "POST /v1/webhooks/h/deliveries", `{"id": "1", "data": 1}`},
		{"webhook&id=h&do=change&version=1", "PUT /v1/webhooks/h", `{"scheme": "github", "secrets": ["${{ secrets.A }}"],
			"execution": {"workflow": "w"}}`},
		{"delivery&id=h/1&do=replay", "POST /v1/webhooks/h/deliveries/1/replay", `{}`},
		{"target&id=n&do=pause", "POST /v1/notification-targets/n/pause", `{}`},
		{"target&id=n&do=resume", "POST /v1/notification-targets/n/resume", `{}`},
		{"target&id=n&do=remove", "DELETE /v1/notification-targets/n", ``},
		{"target&id=n&do=test", "POST /v1/notification-targets/n/test", `{}`},
		{"target&id=n&do=change&version=1", "PUT /v1/notification-targets/n", `{"url": "https://example.org/x"}`},
	} {
		method, path, _ := strings.Cut(x[1], " ")
		all = append(all, twin{"/act", "of=" + x[0], method, path, x[2]})
	}
	return all
}

// A form needs the same scopes as the request to the API that does the same. A worker may drain itself over the API
// only.
func TestFormsNeedTheScopesOfTheirTwins(t *testing.T) {
	r := start(t, setup{agents: &agentapi.Options{}})
	c := http1(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	id := r.submit(c)
	type caller struct {
		name, secret string
	}
	var callers []caller
	for name, scopes := range map[string][]belay.Scope{
		"read": {belay.ScopeRead}, "submit": {belay.ScopeSubmit}, "operate": {belay.ScopeOperate},
		"worker": {belay.ScopeWorker}, "both": {belay.ScopeSubmit, belay.ScopeOperate}, "admin": {belay.ScopeAdmin},
	} {
		key, err := r.engine.CreateKey(t.Context(), belay.KeySpec{Name: name, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		callers = append(callers, caller{name, key.Secret})
	}
	all := twins(id)
	op := belay.OpID{1}
	for _, x := range all {
		for _, who := range callers {
			op[1]++
			op[2] += op[1] / 255
			form := x.fields + "&op=" + op.String()
			bearer := "Bearer " + who.secret
			status, page := r.do(c, http.MethodPost, x.form, form, "Content-Type", "application/x-www-form-urlencoded",
				"Authorization", bearer)
			api, text := r.do(c, x.method, x.path, x.body, "Authorization", bearer)
			if api == http.StatusMethodNotAllowed || strings.Contains(text, "there is no route") ||
				api == http.StatusUnauthorized || status >= 500 || api >= 500 {
				t.Fatalf("%s %s: %d %s, %d", x.method, x.path, api, text, status)
			}
			if status != http.StatusForbidden && status >= 400 && !strings.Contains(page, "<html") {
				t.Errorf("%s %s with %s: %d\n%.300s", x.form, x.fields, who.name, status, page)
			}
			drains := who.name == "worker" && strings.HasSuffix(x.path, "/drain")
			if (status == http.StatusForbidden) != (api == http.StatusForbidden) && !drains {
				t.Errorf("%s %s with the scope %s: %d, and %s %s: %d", x.form, x.fields, who.name, status, x.method,
					x.path, api)
			}
		}
	}
	for _, f := range webui.Forms() {
		path := strings.ReplaceAll(f.Path, "{id}", id)
		var found bool
		for _, x := range all {
			found = found || x.form == path
		}
		if !found {
			t.Errorf("the form %s has no twin", f.Path)
		}
	}
	for _, d := range webui.Deeds() {
		var found bool
		for _, x := range all {
			q, _ := url.ParseQuery(x.fields)
			found = found || q.Get("of") == d[0] && q.Get("do") == d[1]
		}
		if !found {
			t.Errorf("the deed %v has no twin", d)
		}
	}
	if strings.Contains(r.log.String(), "level=ERROR") {
		t.Errorf("something broke:\n%s", r.log)
	}
}

// A form that a page of another site sends is refused, also if no key is needed, and so is an odd one; nothing starts.
func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	r := start(t, setup{})
	c := http1(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	id := r.submit(c)
	const form = "application/x-www-form-urlencoded"
	for _, f := range webui.Forms() {
		path := strings.ReplaceAll(f.Path, "{id}", id)
		fields := "op=" + belay.OpID{1}.String() + "&workflow=evil&mode=json&action=cancel&step=start&rate=1" +
			"&failures=0&of=gate&id=queue:q&do=pause&signal=x&generation=1"
		for _, h := range [][]string{
			{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
			{"Origin", "null"},
		} {
			status, text := r.do(c, http.MethodPost, path, fields, append(h, "Content-Type", form)...)
			if status != http.StatusForbidden {
				t.Errorf("%s with %v: %d\n%.200s", path, h, status, text)
			}
		}
		for kind, body := range map[string]string{
			"application/json": `{"op": "x"}`, "multipart/form-data; boundary=b": "--b--",
			form: strings.Repeat("op=&", 50_000), "text/html": "<form>",
			form + "; charset=x": "%zz",
		} {
			status, text := r.do(c, http.MethodPost, path, body, "Content-Type", kind)
			if status < 400 || status > 499 {
				t.Errorf("%s with %s: %d\n%.200s", path, kind, status, text)
			}
		}
	}
	status, text := r.do(c, http.MethodGet, "/v1/executions", "")
	if strings.Count(text, `"id":`) != 1 || !strings.Contains(text, `"state":"pending"`) {
		t.Errorf("the executions are now: %d %s", status, text)
	}
	if gates, _ := r.do(c, http.MethodGet, "/v1/gates", ""); gates != http.StatusOK {
		t.Errorf("%d", gates)
	}
	if strings.Contains(r.log.String(), "level=ERROR") {
		t.Errorf("something broke:\n%s", r.log)
	}
}
