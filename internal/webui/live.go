package webui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/belaydev/belay"
)

// changesPath is the address of the stream that tells pages of changes. The server answers it, see package httpapi.
const changesPath = "/live"

// live tells the script of a page how to keep the page up to date.
type live struct {
	// Stream is the address of the stream that tells of changes; empty if there is none for this page.
	Stream string
	// Every is the number of seconds after which the script reads the page again, also without a change: ages,
	// heartbeats and logs are no changes of states.
	Every int
	// Page is the address from which the script reads the page, if it is not the present one.
	Page string
}

// ofExecution is the stream of the changes of an execution after the one with the given seq.
func ofExecution(id belay.ExecutionID, seq int64) string {
	return fmt.Sprintf("%s?after=%d&execution=%s", changesPath, seq, id)
}

// reload says whether a page is kept up to date, and has the links that change this.
type reload struct {
	Start, Stop string
	Off         bool // the reader has stopped it
	On          bool // the page reloads itself also in a browser without JavaScript
	Period      int  // in seconds
}

// reloadOf reads the address of a list. The script keeps the list up to date, unless the address has live=off. In a
// browser without JavaScript, a list reloads itself only with live=on.
func reloadOf(u *url.URL) reload {
	q := chosen(u.Query(), "cursor", "live", "resolution", "workflow", "fingerprint")
	r := reload{Period: listPeriod}.reading(q.Get("live"))
	at := u.EscapedPath()
	r.Start, r.Stop = addressOf(at, q, "live", "on"), addressOf(at, q, "live", "off")
	return r
}

// kept makes the views of a page that has no place of its own for the link that stops the updates.
func kept(
	build func(context.Context, *http.Request) (view, error), stream string,
) func(context.Context, *http.Request) (view, error) {
	return func(ctx context.Context, r *http.Request) (view, error) {
		v, err := build(ctx, r)
		if err == nil {
			again := reloadOf(r.URL)
			v.Reload, v.Refresh, v.Live = &again, again.seconds(), again.live(stream)
		}
		return v, err
	}
}

// reading sets whether the page is kept up to date, as the parameter live of its address says.
func (r reload) reading(live string) reload {
	r.Off, r.On = live == "off", live == "on"
	return r
}

// seconds is the time after which the page reloads itself in a browser without JavaScript; 0 for never.
func (r reload) seconds() int {
	if !r.On {
		return 0
	}
	return r.Period
}

// live returns the instructions for the script; nil if the reader has stopped it.
func (r reload) live(stream string) *live {
	if r.Off {
		return nil
	}
	return &live{Stream: stream, Every: r.Period}
}

// shared makes the handler of a page that many browsers may have open, and that their scripts all read again after a
// change. Requests for the same page by the same visitor share a rendering. A rendering begins after all requests that
// get it have arrived, so that each answer shows the change after which its browser has asked.
func (p *pages) shared(build func(context.Context, *http.Request) (view, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Other requests may wait for the page, so the end of this one does not end the rendering.
		ctx := context.WithoutCancel(r.Context())
		p.press.get(sheetOf(r), func() printed { return p.make(ctx, r, build) }).write(w)
	}
}

// sheet is what a page depends on, beside the state of the store.
type sheet struct {
	address, name string
	scopes        [5]bool
}

func sheetOf(r *http.Request) sheet {
	v := visitorOf(r.Context())
	s := sheet{address: r.URL.RequestURI(), name: v.Name}
	for i, scope := range []belay.Scope{
		belay.ScopeRead, belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeWorker, belay.ScopeAdmin,
	} {
		s.scopes[i] = v.allows(scope)
	}
	return s
}

// printed is a page that is ready to be sent.
type printed struct {
	status int
	header http.Header
	body   []byte
}

func (p *printed) write(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range p.header {
		h[name] = values
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body) // the browser may have disconnected
}

// make renders the page that build returns, or the page of its error.
func (p *pages) make(
	ctx context.Context, r *http.Request, build func(context.Context, *http.Request) (view, error),
) printed {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	v, err := build(ctx, r)
	status := http.StatusOK
	if err != nil {
		v, status = p.failed(r, err)
	}
	if v.redirect != "" {
		return printed{http.StatusSeeOther, http.Header{"Location": {v.redirect}}, nil}
	}
	out := p.rendered(r, status, v)
	if status == http.StatusServiceUnavailable {
		out.header.Set("Retry-After", fmt.Sprint(int(retryAfter/time.Second)))
	}
	return out
}

const retryAfter = 2 * time.Second
