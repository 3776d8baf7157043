package httpapi_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// sessions is a server with keys and pages, which write the visitor's name and rights.
type sessions struct {
	*server
	now            atomic.Int64 // seconds that were added to the clock, which stands still otherwise
	reader, worker *server
	client         *http.Client
}

// listedOrigin is the value of the setting origins.
const listedOrigin = "http://127.0.0.1:5173"

func serveSessions(t *testing.T, more ...func(*httpapi.Options)) *sessions {
	t.Helper()
	s, began := &sessions{}, time.Now()
	var visitor atomic.Pointer[httpapi.Visitor]
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := visitor.Load()
		var rights []string
		for _, x := range []belay.Scope{belay.ScopeRead, belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeAdmin} {
			if v.Allows(x) {
				rights = append(rights, string(x))
			}
		}
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" by "+v.Name+" with "+strings.Join(rights, ","))
	})
	o := httpapi.Options{
		Pages: pages, Rate: httpapi.Rate{PerSecond: -1}, Origins: []string{listedOrigin},
		Forms: []httpapi.PageForm{{Path: "/executions/{id}/cancel", Scope: belay.ScopeOperate}},
		Visit: func(r *http.Request, v httpapi.Visitor) *http.Request { visitor.Store(&v); return r },
		Now:   func() time.Time { return began.Add(time.Duration(s.now.Load()) * time.Second) },
	}
	for _, change := range more {
		change(&o)
	}
	s.server = serve(t, o)
	s.server = s.withKey("boss", belay.ScopeAdmin)
	s.reader, s.worker = s.withKey("reader", belay.ScopeRead), s.withKey("worker", belay.ScopeWorker)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.client = &http.Client{CheckRedirect: stay}
	return s
}

// seen is an answer without its body.
type seen struct {
	StatusCode int
	Header     http.Header
}

// browse sends a request as a browser does. The headers are names and values.
func (s *sessions) browse(method, path, cookie string, form url.Values, h ...string) (seen, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	for i := 0; i < len(h); i += 2 {
		r.Header.Set(h[i], h[i+1])
	}
	a, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return seen{a.StatusCode, a.Header}, string(body)
}

// signIn signs in, and returns the answer and the cookie.
func (s *sessions) signIn(key, next string, h ...string) (seen, string) {
	s.t.Helper()
	a, _ := s.browse("POST", "/login", "", url.Values{"key": {key}, "next": {next}}, h...)
	cookie, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
	return a, cookie
}

func (s *sessions) wants(status int, text, method, path, cookie string, form url.Values, h ...string) {
	s.t.Helper()
	a, body := s.browse(method, path, cookie, form, h...)
	if a.StatusCode != status || !strings.Contains(body+a.Header.Get("Location"), text) {
		s.t.Errorf("%s %s: %d %s%s, want %d and %q", method, path, a.StatusCode, body, a.Header.Get("Location"), status,
			text)
	}
}

// A person signs in with a key, opens pages, sends a form that the key's scopes allow, and signs out.
func TestAPageSession(t *testing.T) {
	s := serveSessions(t)
	s.wants(http.StatusSeeOther, "/login?next=%2Fexecutions%3Fstate%3Dfailed", "GET", "/executions?state=failed", "",
		nil)
	s.wants(http.StatusOK, "GET /assets/belay.css", "GET", "/assets/belay.css", "", nil) // the form needs it
	a, cookie := s.signIn(s.key, "/executions?state=failed")
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/executions?state=failed" {
		t.Fatalf("%d to %q", a.StatusCode, a.Header.Get("Location"))
	}
	set := a.Header.Get("Set-Cookie")
	for _, flag := range []string{"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} {
		if !strings.Contains(set, flag) {
			t.Errorf("the cookie lacks %s: %s", flag, set)
		}
	}
	if strings.Contains(set, "Secure") {
		t.Errorf("a browser would not send the cookie without TLS: %s", set)
	}
	a, _ = s.signIn(s.key, "/", "X-Forwarded-Proto", "https")
	if set = a.Header.Get("Set-Cookie"); !strings.Contains(set, "Secure") {
		t.Errorf("behind a proxy with TLS the cookie is %s", set)
	}
	s.wants(http.StatusOK, "GET /executions by", "GET", "/executions", cookie, nil)
	s.wants(http.StatusOK, "with read,submit,operate,admin", "POST", "/executions/x/cancel", cookie, url.Values{})
	_, reader := s.signIn(s.reader.key, "/")
	s.wants(http.StatusOK, "by reader with read", "GET", "/executions", reader, nil)
	s.wants(http.StatusForbidden, "operate", "POST", "/executions/x/cancel", reader, url.Values{})
	a, _ = s.browse("POST", "/logout", cookie, url.Values{})
	if a.StatusCode != http.StatusSeeOther || !strings.Contains(a.Header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("sign out: %d, %s", a.StatusCode, a.Header.Get("Set-Cookie"))
	}
}

// A copy of the cookie is useless after the person has signed out. Only the sessions of this key that began earlier end
// with it, and no forged or repeated sign-out ends another session.
func TestASignOutEndsTheSession(t *testing.T) {
	s := serveSessions(t)
	_, other := s.signIn(s.reader.key, "/")
	_, earlier := s.signIn(s.key, "/")
	s.now.Add(60)
	_, stolen := s.signIn(s.key, "/")
	s.now.Add(60)
	_, later := s.signIn(s.key, "/")
	out := func(cookie, left string) {
		t.Helper()
		s.wants(http.StatusSeeOther, "/login?left="+left, "POST", "/logout", cookie, url.Values{})
	}
	opens := func(cookie, what string, want bool) {
		t.Helper()
		if a, _ := s.browse("GET", "/executions", cookie, nil); (a.StatusCode == http.StatusOK) != want {
			t.Errorf("%s opens a page: %t, want %t", what, !want, want)
		}
	}
	name, value, _ := strings.Cut(later, "=")
	out("", "yes")
	out(name+"="+value[:len(value)-4]+"AAAA", "yes") // its code is wrong
	out(name+"="+s.key, "yes")
	a, _ := s.browse("POST", "/logout", later, url.Values{}, "Sec-Fetch-Site", "cross-site")
	if a.StatusCode != http.StatusForbidden {
		t.Errorf("another site signs a person out: %d", a.StatusCode)
	}
	opens(later, "the later session", true)
	opens(stolen, "the session", true)
	out(stolen, "yes")
	opens(stolen, "the session that ended", false)
	opens(earlier, "the session that began earlier", false)
	opens(later, "the later session", true)
	opens(other, "the session of another key", true)
	out(stolen, "yes")
	opens(later, "the later session after a repeated sign-out", true)
	out(later, "yes")
	opens(later, "the later session that ended", false)
	_, again := s.signIn(s.key, "/") // the clock stands still: the new session would end with the one that has ended
	opens(again, "a new session", true)
	page, err := s.b.Audit(t.Context(), belay.AuditFilter{Kind: "key", Action: "sign_out"})
	if err != nil || len(page.Entries) != 2 || page.Entries[0].Actor != "boss" {
		t.Errorf("the audit says %+v, %v", page, err)
	}
}

// Only a cookie that this server's keys have sealed opens pages, until its end and until the key is revoked, and it
// opens nothing else.
func TestAPageSessionOpensNothingElse(t *testing.T) {
	s := serveSessions(t)
	_, cookie := s.signIn(s.reader.key, "/")
	name, value, _ := strings.Cut(cookie, "=")
	for _, path := range []string{"/v1/executions", "/v1/workers", "/metrics", "/v1/keys"} {
		s.wants(http.StatusUnauthorized, "needs a key", "GET", path, cookie, nil)
	}
	away := func(why, cookie string) {
		t.Helper()
		if a, body := s.browse("GET", "/executions", cookie, nil); a.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: %d %s", why, a.StatusCode, body)
		}
	}
	for i := range value {
		other := byte('A')
		if value[i] == other {
			other = 'B'
		}
		away("a changed character", name+"="+value[:i]+string(other)+value[i+1:])
	}
	away("no cookie", "")
	away("a part of the cookie", cookie[:len(cookie)-1])
	away("two cookies", cookie+"; "+cookie)
	away("the key", name+"="+s.reader.key)
	for _, form := range []url.Values{
		{"key": {"bly_wrong"}}, {"key": {""}}, {}, {"key": {s.worker.key}}, {"key": {strings.Repeat("x", 4000)}},
	} {
		a, _ := s.browse("POST", "/login", "", form)
		if a.StatusCode != http.StatusSeeOther || a.Header.Get("Set-Cookie") != "" ||
			!strings.Contains(a.Header.Get("Location"), "failed=") {
			t.Errorf("%.40v: %d to %s", form, a.StatusCode, a.Header.Get("Location"))
		}
	}
	s.now.Store(12*3600 - 1)
	s.wants(http.StatusOK, "by reader", "GET", "/executions", cookie, nil)
	s.now.Store(12 * 3600)
	away("the end of the session", cookie)
	s.now.Store(-120)
	away("a session that begins later", cookie)
	s.now.Store(0)
	s.revoke("reader")
	away("a revoked key", cookie)
}

// revoke revokes the key with a name.
func (s *sessions) revoke(name string) {
	s.t.Helper()
	all, err := s.b.Keys(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, k := range all {
		if k.Name == name {
			if err := s.b.RevokeKey(s.t.Context(), belay.Revocation{Key: k.ID}); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// A page of another site cannot send a form, and cannot make the server send a browser to another site.
func TestOtherSitesCannotUseAPageSession(t *testing.T) {
	s := serveSessions(t)
	_, cookie := s.signIn(s.key, "/")
	for _, h := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"},
		{"Origin", "null"},
	} {
		for _, path := range []string{"/executions/x/cancel", "/login", "/logout"} {
			s.wants(http.StatusForbidden, "another site", "POST", path, cookie, url.Values{"key": {s.key}}, h...)
		}
	}
	for _, next := range []string{
		"https://evil.example/", "//evil.example/", `/\evil.example/`, `\\evil.example`, "javascript:alert(1)",
		"evil", "",
		"/\r\nSet-Cookie: x=y", "/%zz", "http:evil.example", "///evil.example",
	} {
		if a, _ := s.signIn(s.key, next); a.Header.Get("Location") != "/" || len(a.Header["Set-Cookie"]) != 1 {
			t.Errorf("%q leads to %q", next, a.Header.Get("Location"))
		}
	}
	// A page of a listed origin may be of the same site, so that browsers send the cookie with its forms.
	for _, h := range [][]string{
		{"Origin", listedOrigin, "Sec-Fetch-Site", "same-site"},
		{"Origin", listedOrigin, "Sec-Fetch-Site", "cross-site"}, {"Origin", listedOrigin},
	} {
		s.wants(http.StatusUnauthorized, "needs a key", "POST", "/executions/x/cancel", cookie, url.Values{}, h...)
		s.wants(http.StatusOK, "POST /executions/x/cancel by boss", "POST", "/executions/x/cancel", cookie,
			url.Values{}, append(h, "Authorization", "Bearer "+s.key)...)
		for _, path := range []string{"/login", "/logout"} {
			s.wants(http.StatusForbidden, "of this server", "POST", path, cookie, url.Values{"key": {s.key}}, h...)
		}
	}
	s.wants(http.StatusSeeOther, "again=yes", "GET", "/executions", "", nil, "Sec-Fetch-Site", "cross-site")
	s.wants(http.StatusUnauthorized, "needs a key", "GET", "/executions", "", nil, "Accept", "*/*")
	s.wants(http.StatusUnauthorized, "needs a key", "POST", "/executions/x/cancel", "", url.Values{})
}
