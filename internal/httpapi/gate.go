package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/belaydev/belay"
)

// gate decides which requests a caller may make (access control). It is unrelated to the gates of
// executions.
type gate struct {
	keys Keys // if nil, no request needs a key
	// demand, stranger and hire are the fields Demand, Stranger and Hire of Options.
	demand   string
	stranger func(*http.Request) error
	hire     func(*belay.WorkerSpec) error

	hosts  []string
	limits *limits
	origin *http.CrossOriginProtection
	own    *http.CrossOriginProtection // without the origins below: refuses all but this server's own pages
	// origins are the origins whose pages may read and write.
	origins []string
	// closed is set when the gate finds that the server has a key, and stays set: revoking the last
	// key must not open the server again.
	closed atomic.Bool
	opened atomic.Bool // a request was let in without a key
	log    *slog.Logger
}

func newGate(o Options) *gate {
	g := &gate{
		keys: o.Keys, demand: o.Demand, stranger: o.Stranger, hire: o.Hire,
		limits: newLimits(o.Rate, o.Waiting, o.Now), origin: http.NewCrossOriginProtection(),
		own: http.NewCrossOriginProtection(), log: o.Log,
	}
	if o.InsecureNoAuth {
		g.keys, g.demand, g.stranger, g.hire = nil, "", nil, nil
	}
	for _, origin := range o.Origins {
		if err := g.origin.AddTrustedOrigin(origin); err != nil {
			panic("httpapi: an origin that the configuration should have refused: " + err.Error())
		}
		g.origins = append(g.origins, origin)
	}
	for _, h := range o.Hosts {
		g.hosts = append(g.hosts, bareHost(h))
	}
	return g
}

// caller is the sender of a request. An open caller needed no key: it may do everything and has no
// name.
type caller struct {
	key  belay.Key
	open bool
}

func (c caller) allows(s belay.Scope) bool { return c.open || c.key.Allows(s) }

// actor is the name that the history shows: the name of the caller's key, or the name that the
// request gives if the caller needed no key.
func (c caller) actor(said string) string {
	if c.open {
		return said
	}
	return c.key.Name
}

// admitted is a request that passed the checks. who is the name under which the rate limit counts
// the request. give gives back the memory of the request's body. After leave, the request no longer
// counts as a waiting request.
type admitted struct {
	caller caller
	who    string
	give   func()
	leave  func()
	id     string // the id of the request
	of     string // the id of the execution that the path names, or ""
	quota  quota
	token  string     // the stream token of the request
	opened bool       // the stream token was valid when the stream was opened
	page   bool       // the request is for a page, which a page session opens
	from   netip.Addr // the address from which a worker connects; see workerAddress
	trace  belay.Trace
}

type admittedKey struct{}

// release gives the memory of the request's body back to the budget for bodies. A second call does
// nothing.
func (in *admitted) release() {
	if in.give != nil {
		in.give()
		in.give = nil
	}
}

// end releases the memory of the request's body. If the request counted as a waiting request, it no
// longer does.
func (in *admitted) end() {
	in.release()
	if in.leave != nil {
		in.leave()
	}
}

// nameOf is the name under which the limits count the caller's requests.
func nameOf(ctx context.Context) string {
	if in, ok := ctx.Value(admittedKey{}).(*admitted); ok {
		return in.who
	}
	return ""
}

func callerOf(ctx context.Context) caller {
	if in, ok := ctx.Value(admittedKey{}).(*admitted); ok {
		return in.caller
	}
	return caller{}
}

// address refuses a request for another host name, and a request that a page of another site makes
// a browser send.
func (g *gate) address(r *http.Request) error {
	if len(g.hosts) > 0 && !overSocket(r) && !hostless(r) && !slices.Contains(g.hosts, bareHost(r.Host)) {
		return &belay.Error{
			Code: belay.CodeForbidden, Message: "this server does not answer to that host name; see its setting hosts",
		}
	}
	if err := g.origin.Check(r); err != nil {
		return &belay.Error{Code: belay.CodeForbidden, Message: "a page of another site may not do this"}
	}
	return nil
}

// hostless reports whether a request names no host, uses HTTP/1.0 and comes from this machine. Such
// a request passes the check of host names, which protects against pages in browsers: browsers
// always send a host.
func hostless(r *http.Request) bool {
	if r.Host != "" || r.ProtoAtLeast(1, 1) {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return ok && local.IP.IsLoopback() && err == nil && from.Addr().Unmap().IsLoopback()
}

// bareHost is a host in lower case without port and brackets.
func bareHost(h string) string {
	if host, _, err := net.SplitHostPort(h); err == nil {
		h = host
	}
	return strings.ToLower(strings.Trim(h, "[]"))
}

// overSocket reports whether the request came over a unix socket.
func overSocket(r *http.Request) bool { return socketed(r.Context()) }

func socketed(ctx context.Context) bool {
	a, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	return ok && a.Network() == "unix"
}

// admit finds the caller, counts the request, and refuses a caller without one of the route's
// scopes. A route without scopes lets every caller in.
func (g *gate) admit(r *http.Request, rt *route, in *admitted) (err error) {
	in.who = remote(r)
	scopes := rt.scopes
	if rt.probe {
		// Health checks have a rate limit of their own: otherwise a flood of requests with bad keys
		// from the same address would use up the limit, the checks would fail, and a supervisor would
		// restart the server.
		return g.limits.take(r, "probe "+in.who, in)
	}
	if len(scopes) == 0 {
		return g.limits.take(r, in.who, in)
	}
	in.caller, err = g.caller(r)
	if err != nil {
		// Requests with a wrong key are counted too, so that keys cannot be guessed.
		if limited := g.limits.take(r, in.who, in); limited != nil {
			return limited
		}
		var f *refusal
		if rt.page && errors.As(err, &f) && f.problem.Code == belay.CodeUnauthorized {
			f.header.Add("WWW-Authenticate", `Basic realm="a key of belay as the password", charset="UTF-8"`)
			toLogin(r, f)
		}
		return err
	}
	if !in.caller.open {
		in.who = in.caller.key.ID.String()
	}
	if err := g.limits.take(r, in.who, in); err != nil {
		return err
	}
	if !slices.ContainsFunc(scopes, in.caller.allows) {
		return forbidden(in.caller, scopes)
	}
	if rt.waits() {
		in.leave, err = g.limits.wait(r, in.who)
	}
	return err
}

func (g *gate) caller(r *http.Request) (caller, error) {
	ctx := r.Context()
	open, err := g.open(ctx)
	switch {
	case err != nil:
		return caller{}, err
	case open && g.demand != "":
		return caller{}, unauthorized(g.demand, "")
	case open && g.stranger != nil:
		if err := g.stranger(r); err != nil {
			return caller{}, err
		}
	}
	if open {
		return caller{open: true}, nil
	}
	if in := presented(r); in != nil {
		return g.byToken(r, in)
	}
	secret, given := credentials(r)
	if !given {
		if c, found, err := g.bySession(r); found || err != nil {
			return c, err
		}
		return caller{}, unauthorized("this server needs a key: Authorization: Bearer bly_…", "")
	}
	key, err := g.keys.KeyOf(ctx, secret)
	switch {
	case belay.CodeOf(err) == belay.CodeUnauthorized:
		return caller{}, unauthorized("the key is not one of this server's, or was revoked", `, error="invalid_token"`)
	case err != nil:
		return caller{}, fmt.Errorf("find the key: %w", err)
	case !key.RevokedAt.IsZero():
		return caller{}, unauthorized("the key was revoked", `, error="invalid_token"`)
	}
	return caller{key: key}, nil
}

// still reports whether the key of a request that passed the checks is still valid. If the store
// cannot be read, the key counts as valid.
func (g *gate) still(r *http.Request) bool {
	_, err := g.caller(r)
	return belay.CodeOf(err) != belay.CodeUnauthorized
}

// open reports whether requests need no key, because no key was ever made.
func (g *gate) open(ctx context.Context) (bool, error) {
	if g.keys == nil {
		return true, nil
	}
	if g.closed.Load() {
		return false, nil
	}
	has, err := g.keys.HasKeys(ctx)
	if err != nil {
		return false, fmt.Errorf("look for keys: %w", err)
	}
	switch {
	case !has:
		g.opened.Store(true)
	case !g.closed.Swap(true) && g.opened.Load():
		g.log.InfoContext(ctx, "belay: the first key was made: every request needs a key from now on")
	}
	return !has, nil
}

// credentials is the secret that the request carries. A browser cannot send a Bearer token when a
// person opens a page, so reads may carry the secret as a password (Basic authentication), with any
// user name.
func credentials(r *http.Request) (string, bool) {
	kind, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(kind, "Bearer") && secret != "" {
		return strings.TrimSpace(secret), true
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		if _, password, ok := r.BasicAuth(); ok {
			return password, true
		}
	}
	return "", false
}

func unauthorized(message, why string) error {
	f := refuse(&belay.Error{Code: belay.CodeUnauthorized, Message: message})
	f.header.Set("WWW-Authenticate", `Bearer realm="belay"`+why)
	return f
}

func forbidden(c caller, scopes []belay.Scope) error {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	f := refuse(&belay.Error{
		Code: belay.CodeForbidden,
		Message: fmt.Sprintf("the key %s does not have the scope %s, which this needs", c.key.Name,
			strings.Join(names, " or ")),
	})
	f.header.Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="belay", error="insufficient_scope", scope=%q`,
		strings.Join(names, " ")))
	return f
}

// need refuses a caller without the scope s. It is for a part of a request, such as an operation of
// a batch, that needs a scope of its own.
func (c caller) need(s belay.Scope) error {
	if c.allows(s) {
		return nil
	}
	var f *refusal
	if err := forbidden(c, []belay.Scope{s}); errors.As(err, &f) {
		return f
	}
	return nil
}

// remote is the address that a request came from, without its port. For IPv6 it is the network
// (/64), because one machine may use any address in it.
func remote(r *http.Request) string {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := a.Addr().Unmap().WithZone("")
	if p, err := ip.Prefix(64); err == nil && ip.Is6() && !ip.IsLoopback() {
		return p.String()
	}
	return ip.String()
}
