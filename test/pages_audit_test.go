package test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/belaydev/belay"
)

// visitor is a program that sends requests to pages as a browser does, with the session of a key.
type visitor struct {
	t      *testing.T
	base   string
	cookie string
}

// reply is the head of an answer.
type reply struct {
	StatusCode int
	Header     http.Header
}

// visit signs in.
func visit(t *testing.T, base, key string) *visitor {
	t.Helper()
	v := &visitor{t: t, base: base}
	r, _ := v.send("POST", "/login", url.Values{"key": {key}, "next": {"/"}})
	v.cookie, _, _ = strings.Cut(r.Header.Get("Set-Cookie"), ";")
	if v.cookie == "" {
		t.Fatalf("no session: %d", r.StatusCode)
	}
	return v
}

// send sends a request; headers are names and values.
func (v *visitor) send(method, path string, form url.Values, headers ...string) (reply, string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, strings.NewReader(form.Encode()))
	must(v.t, err)
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if v.cookie != "" {
		r.Header.Set("Cookie", v.cookie)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got, err := c.Do(r)
	must(v.t, err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	must(v.t, err)
	return reply{got.StatusCode, got.Header}, string(body)
}

func (v *visitor) wants(status int, method, path string, form url.Values, headers ...string) string {
	v.t.Helper()
	got, body := v.send(method, path, form, headers...)
	if got.StatusCode != status {
		v.t.Errorf("%s %s: %d to %q, want %d\n%s", method, path, got.StatusCode, got.Header.Get("Location"), status,
			body)
	}
	return body
}

var (
	opField    = regexp.MustCompile(`name="op" value="([0-9a-z_]+)"`)
	secretText = regexp.MustCompile(`bly_[0-9a-z]{52}`)
)

// Rule: on a real server, the pages of keys and of the audit, and their forms, need the scope admin and a page of this
// server; a form for a key that is sent twice at the same time makes one key and shows one secret, which no log has;
// and a session ends when its key is revoked, and when the person signs out.
func TestPagesOfKeysAreGuarded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve("--log-level", "debug")
	secret := func(name, scope string) string {
		return strings.TrimSpace(p.belay("keys", "create", "--name", name, "--scope", scope).want(0).out)
	}
	anna, most := secret("anna", "admin"), "read,submit,operate,worker"
	admin, rita := visit(t, a.url, anna), visit(t, a.url, secret("rita", most))
	form := func(name string) url.Values {
		op := opField.FindStringSubmatch(admin.wants(http.StatusOK, "GET", "/keys/create", nil))
		if op == nil {
			t.Fatal("the form has no operation id")
		}
		return url.Values{"op": {op[1]}, "name": {name}, "read": {"yes"}}
	}
	for _, path := range []string{"/keys", "/keys/create", "/audit", "/keys/" + belay.KeyID{1}.String() + "/revoke"} {
		rita.wants(http.StatusForbidden, "GET", path, nil)
		if r, _ := (&visitor{t: t, base: a.url}).send("GET", path, nil); r.StatusCode != http.StatusSeeOther {
			t.Errorf("%s without a session: %d", path, r.StatusCode)
		}
	}
	rita.wants(http.StatusForbidden, "POST", "/keys/create", form("stolen"))
	for _, h := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"},
		{"Origin", "null"},
	} {
		if r, _ := admin.send("POST", "/keys/create", form("stolen"), h...); r.StatusCode < 400 {
			t.Errorf("%v: %d", h, r.StatusCode)
		}
	}
	var sent sync.WaitGroup
	twice, answers, mu := form(`twice <b>"&`), make(map[int][]string), sync.Mutex{}
	for range 4 {
		sent.Go(func() {
			r, body := admin.send("POST", "/keys/create", twice)
			mu.Lock()
			defer mu.Unlock()
			answers[r.StatusCode] = append(answers[r.StatusCode], body)
		})
	}
	sent.Wait()
	if len(answers[http.StatusOK]) != 1 || len(answers[http.StatusConflict]) != 3 {
		t.Fatalf("the answers are %v", answers)
	}
	for _, body := range answers[http.StatusConflict] {
		if secretText.MatchString(body) {
			t.Errorf("a repeated form shows a secret:\n%s", body)
		}
	}
	made := secretText.FindString(answers[http.StatusOK][0])
	list := p.belay("keys", "ls", "-o", "json").want(0).out
	if strings.Count(list, "twice") != 1 || strings.Contains(list, "stolen") {
		t.Errorf("the keys are %s", list)
	}
	if body := admin.wants(http.StatusOK, "GET", "/keys", nil); secretText.MatchString(body) ||
		!strings.Contains(body, "twice &lt;b&gt;") {
		t.Errorf("the list of the keys:\n%s", body)
	}
	again := visit(t, a.url, made)
	again.wants(http.StatusOK, "GET", "/overview", nil)
	list = admin.wants(http.StatusOK, "GET", "/keys", nil)
	revoke := regexp.MustCompile(`/keys/key_[0-9a-z]+/revoke`).FindString(list)
	admin.wants(http.StatusSeeOther, "POST", revoke, url.Values{"reason": {"a test"}})
	again.wants(http.StatusSeeOther, "GET", "/overview", nil)

	stolen := *rita
	rita.wants(http.StatusSeeOther, "POST", "/logout", url.Values{})
	stolen.wants(http.StatusSeeOther, "GET", "/overview", nil)
	audit := p.belay("audit", "-o", "json").want(0).out
	for _, want := range []string{`"action":"sign_out"`, `"action":"revoke"`, `"reason":"a test"`, `"actor":"anna"`} {
		if !strings.Contains(strings.ReplaceAll(audit, `": "`, `":"`), want) {
			t.Errorf("the audit lacks %s: %s", want, audit)
		}
	}
	if log := server.err.String() + server.out.String(); strings.Contains(log, made) || strings.Contains(audit, made) {
		t.Error("a log or the audit has the secret of a key")
	}
}

// Rule: in a real browser a person reads the transcript and the changes of a job of an agent, takes the bundle and the
// patch, from which git makes the job's work, and replies to the agent. The person makes and revokes a key, and the
// audit says so.
func TestAPersonReadsAJobAndTheAuditInABrowser(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	repo := p.repository()
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")}, "--agent-repo", repo)
	id := a.ask("I shall mend the notes.\nedit notes.txt <b>hello</b> \u202egnp\ncommit mend the notes\n" +
		"cat notes.txt\nedit notes.txt not committed\nedit src/a.txt another line\nI am done: <script>alert(1)</script>")
	a.wantEnd(id, "completed", float64(0))
	secret := func(name, scope string) string {
		return strings.TrimSpace(p.belay("keys", "create", "--name", name, "--scope", scope).want(0).out)
	}
	anna := secret("anna", "admin")
	b := newBrowser(t, a.url)
	b.do("sign in", chromedp.Navigate(a.url+"/executions/"+id), see(`input[name=key]`), enter(`input[name=key]`, anna),
		click(`form.act button`), see(`nav.views`))
	b.shot("execution-of-a-job")
	b.do("the job", click(`nav.views a[href$="/job"]`), see(`.diff .added`), see(`.turn.tool`))
	for _, want := range []string{
		"I shall mend the notes.", "1 commit", "+not committed", "<script>alert(1)</script>", "⟨U+202E⟩gnp", "Edit",
		"Exit code", "Tokens of the agent",
	} {
		b.until(want)
	}
	b.shot("job")
	b.do("checkpoints", chromedp.Navigate(a.url+"/executions/"+id+"/checkpoints"), see(`.saved`))
	b.shot("checkpoints")

	rita := visit(t, a.url, secret("rita", "read"))
	clone := p.path("clone")
	p.git(p.root, "clone", "-q", repo, clone)
	p.git(clone, "fetch", "-q", p.takes(rita, id, "step-1.bundle"), "refs/*:refs/job/*")
	p.git(clone, "checkout", "-q", "refs/job/heads/main")
	p.git(clone, "apply", p.takes(rita, id, "step-1.patch"))
	if got := read(t, filepath.Join(clone, "notes.txt")); !strings.HasSuffix(got, "gnp\nnot committed\n") {
		t.Errorf("git makes %q of the bundle and the patch", got)
	}

	b.do("reply", chromedp.Navigate(a.url+"/executions/"+id+"/job"), click(`.acts a[href$="/reply"]`),
		see(`#message`), enter(`#message`, "edit notes.txt and more"))
	b.shot("job-reply")
	b.do("reply", click(`form.act button`), see(`#conversation`))
	b.until("It has succeeded")
	b.until("+and more")
	b.shot("job-replied")

	b.do("make a key", chromedp.Navigate(a.url+"/keys"), click(`.acts a`), see(`input[name=name]`),
		enter(`input[name=name]`, "the build"), click(`input[name=read]`), click(`input[name=submit]`))
	b.shot("key-form")
	b.do("make a key", click(`form.act button`), see(`.secret`))
	b.shot("key-made")
	b.do("revoke it", chromedp.Navigate(a.url+"/keys"), click(`td a.danger`), see(`form.act button.danger`),
		enter(`input[name=reason]`, "it was in a public log"), click(`form.act button.danger`), see(`p.done`))
	b.until("revoked")
	b.shot("keys")
	b.do("the audit", chromedp.Navigate(a.url+"/audit"), see(`table.audit`))
	b.until("it was in a public log")
	b.shot("audit")
	b.do("filter the audit", enter(`input[name=action]`, "revoke"), click(`.filter button`),
		see(`.filter a[href="/audit"]`))
	if text := b.text(); strings.Contains(text, "create") || !strings.Contains(text, "it was in a public log") {
		t.Errorf("the filter shows\n%s", text)
	}
	b.do("sign out", click(`form.visitor button`), see(`input[name=key]`))
}

// takes stores a file of a job, and returns its path.
func (p *place) takes(v *visitor, id, name string) string {
	p.t.Helper()
	r, body := v.send("GET", "/executions/"+id+"/files/"+name, nil)
	if r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Disposition"), "attachment") ||
		r.Header.Get("X-Content-Type-Options") != "nosniff" {
		p.t.Fatalf("%s: %d %v\n%s", name, r.StatusCode, r.Header, body)
	}
	file := p.path(name)
	must(p.t, os.WriteFile(file, []byte(body), 0o600))
	return file
}
