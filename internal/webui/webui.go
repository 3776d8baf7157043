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
	// Activity returns what this server did in the last minutes, the oldest first, and since when it has counted. nil
	// shows no plots.
	Activity func() ([]Minute, time.Time)
	// Input describes the input of the text of a document for forms; nil shows inputs as JSON.
	Input func(text string) (*Input, error)
	// Narrate reads a line of an agent's structured output. known is false for another line, which is shown as text.
	// nil knows no line.
	Narrate func(line []byte) (said []Said, known bool)
	// Conversations continues the conversations of agents; nil offers no replies.
	Conversations Conversations
}

// Conversations continues the conversations of agents in new jobs.
type Conversations interface {
	// Reply submits a job that continues an ended job with a message, and returns its id. A repeated call with the same
	// key returns the first id. The error is CodeConflict if the job cannot be continued, or was continued before.
	Reply(ctx context.Context, job *belay.Execution, message, key string) (belay.ExecutionID, error)
	// Key returns the idempotency key of the job that continues a job.
	Key(job belay.ExecutionID) string
}

// readTimeout is the timeout of all reads from the Backend for one page together.
const readTimeout = 10 * time.Second

// pages has the handlers of the pages, and the data that all of them use.
type pages struct {
	backend   belay.Backend
	options   Options
	templates map[string]*template.Template
	press     press
	style     asset
	icon      asset
	script    asset
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
		style:  newAsset("assets/belay.css", "text/css; charset=utf-8"),
		icon:   newAsset("assets/icon.svg", "image/svg+xml"),
		script: newAsset("assets/live.js", "text/javascript; charset=utf-8"),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.shared(p.overview))
	mux.HandleFunc("GET /executions", p.shared(p.executions))
	mux.HandleFunc("GET /executions/{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/executions", http.StatusMovedPermanently)
	})
	mux.HandleFunc("GET /executions/{id}", p.shared(p.execution))
	mux.HandleFunc("GET /executions/{id}/{action}", p.act)
	mux.HandleFunc("GET /executions/{id}/job", p.shared(p.job))
	mux.HandleFunc("GET /executions/{id}/checkpoints", p.page(p.checkpoints))
	mux.HandleFunc("GET /executions/{id}/files/{name}", p.file)
	mux.HandleFunc("POST /executions/{id}/{action}", p.act)
	mux.HandleFunc("GET "+deedPath, p.deed)
	mux.HandleFunc("POST "+deedPath, p.deed)
	mux.HandleFunc("GET "+newBulkPath, p.newBulk)
	mux.HandleFunc("POST "+newBulkPath, p.newBulk)
	mux.HandleFunc("GET "+startPath, p.start)
	mux.HandleFunc("POST "+startPath, p.start)
	mux.HandleFunc("GET /login", p.page(p.login))
	p.fleet(mux)
	mux.Handle("GET /assets/belay.css", p.style)
	mux.Handle("GET /assets/icon.svg", p.icon)
	mux.Handle("GET /assets/live.js", p.script)
	mux.HandleFunc("GET /", p.page(func(context.Context, *http.Request) (view, error) {
		return view{}, &belay.Error{Code: belay.CodeNotFound, Message: "There is no page at this address."}
	}))
	return guard(mux)
}

// guard sets the headers of every answer.
func guard(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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
	// Live tells the script how to keep the page up to date; nil for a page that stays as it is. The page then
	// reloads itself only in a browser without JavaScript.
	Live *live
	// Reload is the link that stops the updates; nil if the page itself shows it, or has none.
	Reload *reload
	Page   any
	// redirect, if not empty, is the address to which the browser goes instead of showing a page.
	redirect string

	// render sets these fields.
	Nav                          []navLink
	Style, Icon, Script, Version string
	Visitor                      string // the name of the visitor's key
}

// page makes a handler. The handler renders the view that build returns or, if build returns an
// error, the page of this error.
func (p *pages) page(build func(context.Context, *http.Request) (view, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out := p.make(r.Context(), r, build)
		out.write(w)
	}
}

func (p *pages) render(w http.ResponseWriter, r *http.Request, status int, v view) {
	out := p.rendered(r, status, v)
	out.write(w)
}

func (p *pages) rendered(r *http.Request, status int, v view) printed {
	v.Visitor = excerpt(visitorOf(r.Context()).Name, 60)
	if v.template != "login" {
		v.Nav = navigation(r.URL.Path, visitorOf(r.Context()))
	}
	v.Style, v.Icon, v.Script, v.Version = p.style.address, p.icon.address, p.script.address, p.options.Version
	var b bytes.Buffer
	if err := p.templates[v.template].ExecuteTemplate(&b, "layout", v); err != nil {
		p.options.Log.Error("render a page", "template", v.template, "error", err)
		return spoiled
	}
	return printed{
		status: status, body: visible(b.Bytes()),
		header: http.Header{"Content-Type": {"text/html; charset=utf-8"}, "Cache-Control": {"no-store"}},
	}
}
