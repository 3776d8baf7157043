package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/belaydev/belay"
)

// Visitor is the person who opens a page or sends its form.
type Visitor struct {
	// Name is the name of the key of the person's session or request; empty if the server needs no key.
	Name string
	// Allows reports whether the person may do what needs a scope.
	Allows func(belay.Scope) bool
}

// PageForm is an address to which a page sends a form, as a pattern of http.ServeMux, and the scope that this needs.
type PageForm struct {
	Path  string
	Scope belay.Scope
}

// pages adds a route of the pages, which are no part of the API. Style sheet and icon need no key, because the form of
// /login uses them.
func (a *api) pages(path string) {
	rt := &route{method: http.MethodGet, path: path, page: true}
	if path != assetsPath {
		rt.scopes = []belay.Scope{belay.ScopeRead}
	}
	a.define(rt, a.page, nil)
}

// astray reports whether a browser asks for a page at an address that has none: a person then gets a page that says
// so, and not a problem in JSON.
func (a *api) astray(r *http.Request) bool {
	if a.o.Pages == nil || r.Method != http.MethodGet || !strings.HasPrefix(r.Header.Get("Accept"), "text/html") ||
		strings.HasPrefix(r.URL.Path, "/v1/") {
		return false
	}
	_, pattern := a.mux.Handler(r)
	return pattern == ""
}

// nowhere returns a request for an address that certainly has no page. The caller may have no key, so the pages get
// nothing else of the request.
func nowhere(r *http.Request) *http.Request {
	q := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/not-found"}, Header: make(http.Header)}
	return q.WithContext(r.Context())
}

const assetsPath = "/assets/"

// forms adds the routes to which pages send their forms. CrossOriginProtection refuses forms of other sites.
func (a *api) forms() {
	for _, f := range a.o.Forms {
		rt := &route{
			method: http.MethodPost, path: f.Path, scopes: []belay.Scope{f.Scope}, page: true, body: true, raw: true,
		}
		a.define(rt, a.page, nil)
	}
}

// page hands a request over to the pages, together with its sender.
func (a *api) page(w http.ResponseWriter, r *http.Request) {
	if a.o.Visit != nil {
		who := callerOf(r.Context())
		r = a.o.Visit(r, Visitor{Name: who.actor(""), Allows: who.allows})
	}
	a.o.Pages.ServeHTTP(w, r)
}
