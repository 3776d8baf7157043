package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// A page session lets a browser open pages and send their forms after a person has entered a key. The session is in a
// cookie (see sealed), which no route of the API takes.
const (
	sessionCookie  = "belay_session"
	sessionPrefix  = "bps_"
	sessionPurpose = "belay page session 1"
	sessionLife    = 12 * time.Hour
)

// bySession finds the key of a page session. found is false if the request has no valid session of a page. Only pages
// of this server act with a session: SameSite=Strict does not keep the cookie from pages of the same site with another
// port, and those of the setting origins must send a key.
func (g *gate) bySession(r *http.Request) (c caller, found bool, err error) {
	in, ok := r.Context().Value(admittedKey{}).(*admitted)
	if !ok || !in.page || !g.ownPage(r) {
		return caller{}, false, nil
	}
	_, key, found, err := g.session(r)
	return caller{key: key}, found, err
}

// session reads the session of a request, and finds its key. found is false if there is no valid session.
func (g *gate) session(r *http.Request) (t *sealed, key belay.Key, found bool, err error) {
	cookies := r.CookiesNamed(sessionCookie)
	if len(cookies) != 1 {
		return nil, belay.Key{}, false, nil
	}
	t, ok := parseSealed(sessionPrefix, cookies[0].Value)
	if !ok || !t.runs(g.limits.now(), sessionLife) {
		return nil, belay.Key{}, false, nil
	}
	key, code, err := g.keys.Session(r.Context(), t.key, t.until, t.message(sessionPurpose, nil))
	key, found, err = t.opened(key, code, err)
	return t, key, found, err
}

// ownPage reports whether a request comes from a page of this server, or from no page at all.
func (g *gate) ownPage(r *http.Request) bool { return g.own.Check(r) == nil }

// signIn adds the routes with which a person begins and ends a page session. The pages show the form.
func (a *api) signIn() {
	a.define(&route{method: http.MethodGet, path: loginPath, page: true}, a.page, nil)
	for path, do := range map[string]http.HandlerFunc{loginPath: a.login, "/logout": a.logout} {
		rt := &route{method: http.MethodPost, path: path, page: true, body: true, raw: true, limit: 8 << 10}
		a.define(rt, a.fromOwnPage(do), nil)
	}
}

const loginPath = "/login"

// fromOwnPage refuses forms of other pages than this server's own: they could exchange the session of the visitor.
func (a *api) fromOwnPage(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.gate.ownPage(r) {
			refuse(&belay.Error{Code: belay.CodeForbidden, Message: "only a page of this server may do this"}).write(w)
			return
		}
		next(w, r)
	}
}

// login begins a page session for the key in the form, and goes to the page that the form names.
func (a *api) login(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		refuse(malformed("the form cannot be read")).write(w)
		return
	}
	next := localPath(r.PostForm.Get("next"))
	cookie, why := a.beginSession(r.Context(), strings.TrimSpace(r.PostForm.Get("key")))
	if why != "" {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, loginPath+"?"+url.Values{"next": {next}, "failed": {why}}.Encode(), http.StatusSeeOther)
		return
	}
	a.setSession(w, r, cookie, int(sessionLife/time.Second))
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// beginSession makes the cookie of a session, or says in a word why the secret begins none.
func (a *api) beginSession(ctx context.Context, secret string) (cookie, why string) {
	if a.gate.keys == nil {
		return "", "open"
	}
	key, err := a.gate.keys.KeyOf(ctx, secret)
	switch {
	case err != nil && belay.CodeOf(err) == belay.CodeUnauthorized, err == nil && !key.RevokedAt.IsZero():
		return "", "key"
	case err != nil:
		return "", "unavailable"
	case !key.Allows(belay.ScopeRead):
		return "", "scope"
	}
	t := &sealed{key: key.ID, until: a.gate.limits.now().Add(sessionLife).Truncate(time.Millisecond)}
	_, t.code, err = a.gate.keys.Session(ctx, t.key, t.until, t.message(sessionPurpose, nil))
	if belay.CodeOf(err) == belay.CodeUnauthorized {
		// The sign-out that ended the last session came from a server whose clock is ahead of this server's.
		t.until = t.until.Add(clockSkew)
		_, t.code, err = a.gate.keys.Session(ctx, t.key, t.until, t.message(sessionPurpose, nil))
	}
	if err != nil {
		return "", "unavailable"
	}
	return t.text(sessionPrefix), ""
}

// logout ends the session of the browser, and the sessions of the same key that began earlier. A copy of the cookie is
// useless afterwards. If the store cannot be written, the browser forgets the cookie all the same, and the page says
// that the session goes on until it expires.
func (a *api) logout(w http.ResponseWriter, r *http.Request) {
	left := "yes"
	if a.gate.keys != nil {
		t, _, found, err := a.gate.session(r)
		if err == nil && found {
			err = a.gate.keys.SignOut(r.Context(), t.key, t.until)
		}
		if err != nil {
			left = "here"
		}
	}
	a.setSession(w, r, "", -1)
	http.Redirect(w, r, loginPath+"?left="+left, http.StatusSeeOther)
}

// setSession sets the cookie for some seconds, or removes it with a negative age.
func (a *api) setSession(w http.ResponseWriter, r *http.Request, value string, age int) {
	w.Header().Set("Cache-Control", "no-store")
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// localPath returns the address of a page of this server, or that of the first page if the text is something else.
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(text, "/") ||
		strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\r\n") {
		return "/"
	}
	return text
}

// toLogin turns the refusal of a browser that asks for a page without a valid session into the way to the form.
func toLogin(r *http.Request, f *refusal) {
	if r.Method != http.MethodGet || r.Header.Get("Authorization") != "" ||
		!strings.Contains(r.Header.Get("Accept"), "text/html") {
		return
	}
	q := url.Values{"next": {r.URL.RequestURI()}}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// The browser follows a link of another site, and sends no cookie with SameSite=Strict even if the person is
		// signed in. The form then first tries the page again, as a request of this site.
		q.Set("again", "yes")
	}
	f.problem.Status = http.StatusSeeOther
	f.header.Del("WWW-Authenticate")
	f.header.Set("Location", loginPath+"?"+q.Encode())
	f.header.Set("Cache-Control", "no-store")
}
