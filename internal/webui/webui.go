package webui

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"github.com/belaydev/belay"
)

//go:embed templates assets
var files embed.FS

// Options are the options of the web UI. All fields may be zero.
type Options struct {
	// Version is shown at the foot of every page; empty shows none.
	Version string
	// Now is the clock for ages and countdowns; nil means time.Now. It should show the same time as
	// the Backend's clock.
	Now func() time.Time
	// Log gets internal errors; nil discards them.
	Log *slog.Logger
	// Tasks reads the tasks of an execution of a document, and returns CodeInvalid for another execution. nil shows no
	// tasks.
	Tasks func(context.Context, belay.TaskQuery) (belay.TaskPage, error)
	// Graph returns the tasks of the text of a document with ID, Uses, Needs and Compensates, for a drawing; nil draws
	// none.
	Graph func(text string) ([]belay.Task, error)
	// Narrate reads a line of an agent's structured output. known is false for another line, which is shown as text.
	// nil knows no line.
	Narrate func(line []byte) (said []Said, known bool)
}

// readTimeout is the timeout of all reads from the Backend for one page together.
const readTimeout = 10 * time.Second

// pages has the handlers of the pages, and the data that all of them use.
type pages struct {
	backend   belay.Backend
	options   Options
	templates map[string]*template.Template
	style     asset
	icon      asset
}

// New makes the handler of the web UI: the pages, the form of /login, style sheet
// and icon under /assets/. Before it calls the handler, the caller must check that the request may
// read executions (except for /login), that a POST has the scope that Forms names, and that it does
// not come from a page of another site. WithVisitor tells the pages who the visitor is.
func New(b belay.Backend, o Options) http.Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &pages{
		backend: b, options: o, templates: templates(),
		style: newAsset("assets/belay.css", "text/css; charset=utf-8"),
		icon:  newAsset("assets/icon.svg", "image/svg+xml"),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.page(p.overview))
	mux.HandleFunc("GET /executions", p.page(p.executions))
	mux.HandleFunc("GET /executions/{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/executions", http.StatusMovedPermanently)
	})
	mux.HandleFunc("GET /executions/{id}", p.page(p.execution))
	mux.HandleFunc("GET /executions/{id}/{action}", p.act)
	mux.HandleFunc("GET /executions/{id}/job", p.page(p.job))
	mux.HandleFunc("GET /executions/{id}/checkpoints", p.page(p.checkpoints))
	mux.HandleFunc("GET /executions/{id}/files/{name}", p.file)
	mux.HandleFunc("POST /executions/{id}/{action}", p.act)
	mux.HandleFunc("GET "+deedPath, p.deed)
	mux.HandleFunc("POST "+deedPath, p.deed)
	mux.HandleFunc("GET /login", p.page(p.login))
	p.fleet(mux)
	mux.Handle("GET /assets/belay.css", p.style)
	mux.Handle("GET /assets/icon.svg", p.icon)
	mux.HandleFunc("GET /", p.page(func(context.Context, *http.Request) (view, error) {
		return view{}, &belay.Error{Code: belay.CodeNotFound, Message: "There is no page at this address."}
	}))
	return guard(mux)
}

// guard sets the headers of every answer.
func guard(next http.Handler) http.Handler {
	const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; " +
		"frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// view is one page before it is rendered.
type view struct {
	template string
	Title    string
	// Refresh is the number of seconds after which the page reloads itself; 0 for never. Next, if not empty, is
	// the address to which it goes then, and at once if Refresh is 0.
	Refresh int
	Next    string
	Page    any

	// render sets these fields.
	Nav                  []navLink
	Style, Icon, Version string
	Visitor              string // the name of the visitor's key
}

// page makes a handler. The handler renders the view that build returns or, if build returns an
// error, the page of this error.
func (p *pages) page(build func(context.Context, *http.Request) (view, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		v, err := build(ctx, r)
		status := http.StatusOK
		if err != nil {
			v, status = p.failed(r, err)
		}
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "2")
		}
		p.render(w, r, status, v)
	}
}

func (p *pages) render(w http.ResponseWriter, r *http.Request, status int, v view) {
	v.Visitor = excerpt(visitorOf(r.Context()).Name, 60)
	if v.template != "login" {
		v.Nav = navigation(r.URL.Path, visitorOf(r.Context()))
	}
	v.Style, v.Icon, v.Version = p.style.address, p.icon.address, p.options.Version
	var b bytes.Buffer
	if err := p.templates[v.template].ExecuteTemplate(&b, "layout", v); err != nil {
		p.options.Log.Error("render a page", "template", v.template, "error", err)
		http.Error(w, "this page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(visible(b.Bytes())) // the browser may have disconnected
}
