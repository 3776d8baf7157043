package httpapi

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// A page session lets a browser open pages and send their forms after a person has entered a key. The store does not
// contain it. The cookie has the id of the key, the time when the session ends, and an authentication code (MAC) that
// servers compute from the stored hash of the key, as for stream tokens. So every server of the store can check the
// cookie, and the session ends with the key. No route of the API takes the cookie.
const (
	sessionCookie = "belay_session"
	sessionPrefix = "bps_"
	sessionLife   = 12 * time.Hour
	sessionSkew   = time.Minute // how far the clock of the server that began the session may be ahead
	sessionLength = 16 + 8 + 32 // bytes that a cookie encodes
)

// pageSession has the parts of a cookie that a browser sent.
type pageSession struct {
	key   belay.KeyID
	until time.Time
	code  [32]byte
}

// message is the text that the code of a session authenticates.
func (s *pageSession) message() []byte {
	m := append([]byte("belay page session 1\x00"), s.key[:]...)
	return binary.BigEndian.AppendUint64(m, uint64(s.until.UnixMilli()))
}

func (s *pageSession) String() string {
	b := binary.BigEndian.AppendUint64(append([]byte(nil), s.key[:]...), uint64(s.until.UnixMilli()))
	return sessionPrefix + base64.RawURLEncoding.EncodeToString(append(b, s.code[:]...))
}

// parseSession decodes a cookie, and does not check whether the session is valid.
func parseSession(text string) (*pageSession, bool) {
	rest, ok := strings.CutPrefix(text, sessionPrefix)
	if !ok || len(rest) != base64.RawURLEncoding.EncodedLen(sessionLength) {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) != sessionLength {
		return nil, false
	}
	s := &pageSession{until: time.UnixMilli(int64(binary.BigEndian.Uint64(b[16:24])))}
	copy(s.key[:], b)
	copy(s.code[:], b[24:])
	return s, true
}

// bySession finds the key of a page session. found is false if the request has no valid session of a page.
func (g *gate) bySession(r *http.Request) (c caller, found bool, err error) {
	in, ok := r.Context().Value(admittedKey{}).(*admitted)
	if !ok || !in.page {
		return caller{}, false, nil
	}
	cookies := r.CookiesNamed(sessionCookie)
	if len(cookies) != 1 {
		return caller{}, false, nil
	}
	s, ok := parseSession(cookies[0].Value)
	if !ok {
		return caller{}, false, nil
	}
	if left := s.until.Sub(g.limits.now()); left <= 0 || left > sessionLife+sessionSkew {
		return caller{}, false, nil
	}
	key, code, err := g.keys.Seal(r.Context(), s.key, s.message())
	switch {
	case belay.CodeOf(err) == belay.CodeUnauthorized:
		return caller{}, false, nil
	case err != nil:
		return caller{}, false, err
	case !hmac.Equal(code[:], s.code[:]), !key.RevokedAt.IsZero():
		return caller{}, false, nil
	}
	return caller{key: key}, true, nil
}

// signIn adds the routes with which a person begins and ends a page session. The pages show the form.
func (a *api) signIn() {
	a.define(&route{method: http.MethodGet, path: loginPath, page: true}, a.page, nil)
	send := &route{method: http.MethodPost, path: loginPath, page: true, body: true, raw: true, limit: 8 << 10}
	a.define(send, a.login, nil)
	a.define(&route{method: http.MethodPost, path: "/logout", page: true}, a.logout, nil)
}

const loginPath = "/login"

// login begins a page session for the key in the form, and goes to the page that the form names.
func (a *api) login(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		refuse(malformed("the form cannot be read")).write(w)
		return
	}
	next := localPath(r.PostForm.Get("next"))
	until, cookie, why := a.beginSession(r.Context(), strings.TrimSpace(r.PostForm.Get("key")))
	if why != "" {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, loginPath+"?"+url.Values{"next": {next}, "failed": {why}}.Encode(), http.StatusSeeOther)
		return
	}
	a.setSession(w, r, cookie, int(until.Sub(a.gate.limits.now())/time.Second))
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// beginSession makes the cookie of a session, or says in a word why the secret begins none.
func (a *api) beginSession(ctx context.Context, secret string) (until time.Time, cookie, why string) {
	if a.gate.keys == nil {
		return until, "", "open"
	}
	key, err := a.gate.keys.KeyOf(ctx, secret)
	switch {
	case belay.CodeOf(err) == belay.CodeUnauthorized && err != nil, err == nil && !key.RevokedAt.IsZero():
		return until, "", "key"
	case err != nil:
		return until, "", "unavailable"
	case !key.Allows(belay.ScopeRead):
		return until, "", "scope"
	}
	s := &pageSession{key: key.ID, until: a.gate.limits.now().Add(sessionLife)}
	if _, s.code, err = a.gate.keys.Seal(ctx, s.key, s.message()); err != nil {
		return until, "", "unavailable"
	}
	return s.until, s.String(), ""
}

func (a *api) logout(w http.ResponseWriter, r *http.Request) {
	a.setSession(w, r, "", -1)
	http.Redirect(w, r, loginPath+"?left=yes", http.StatusSeeOther)
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
