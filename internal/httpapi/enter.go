package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// enter checks a request and calls its handler: the caller must be allowed, and the body complete,
// within its limit, and JSON that every decoder reads alike.
func (a *api) enter(w http.ResponseWriter, r *http.Request, rt *route, next func(http.ResponseWriter, *http.Request)) {
	rep, ok := w.(*reply)
	if !ok { // never happens: the mux passes on the writer of ServeHTTP
		panic("httpapi: a request came past ServeHTTP")
	}
	rep.routed = true
	in := &admitted{id: w.Header().Get(wire.HeaderRequest), page: rt.page}
	if strings.HasPrefix(rt.path, "/v1/executions/{id}") {
		if id, err := belay.ParseExecutionID(r.PathValue("id")); err == nil {
			in.of = id.String()
		}
	}
	if a.o.Prober != nil && rt.tag == "workers" {
		in.from = workerAddress(r)
	}
	r = r.WithContext(context.WithValue(r.Context(), admittedKey{}, in))
	defer in.end()
	r, err := in.present(r, rt)
	var buffer *bytes.Buffer
	if err == nil {
		buffer, err = a.prepare(rep, r, rt, in)
	}
	defer buffers.Put(buffer)
	in.quota.headers(w.Header())
	if err != nil {
		f := refuse(err)
		a.failed(r.Context(), rt, f)
		rt.answer(rep, f)
		return
	}
	a.answer(rep, r, rt, next)
}

// answer calls the handler. It compresses the answer if the route allows that and the client
// accepts compressed answers, and adds an ETag if the route has one.
func (a *api) answer(rep *reply, r *http.Request, rt *route, next func(http.ResponseWriter, *http.Request)) {
	if rt.zipped() {
		rep.Header().Add("Vary", "Accept-Encoding")
		if takesGzip(r.Header) {
			zip := &zipper{ResponseWriter: rep}
			tag(zip, r, rt, next)
			zip.finish()
			return
		}
	}
	tag(rep, r, rt, next)
}

// tag calls the handler, and gives the answer an ETag if the route has one.
func tag(w http.ResponseWriter, r *http.Request, rt *route, next func(http.ResponseWriter, *http.Request)) {
	if !rt.tagged {
		next(w, r)
		return
	}
	tagged := &tagger{ResponseWriter: w, have: r.Header.Get("If-None-Match"), body: buffers.Get()}
	defer buffers.Put(tagged.body)
	next(tagged, r)
	tagged.finish()
}

// buffers hold bodies while they are decoded.
var buffers = buffered{sync.Pool{New: func() any { return new(bytes.Buffer) }}}

type buffered struct{ sync.Pool }

// Put takes a buffer back, unless the buffer has grown so large that keeping it would waste memory.
func (p *buffered) Put(b *bytes.Buffer) {
	if b == nil || b.Cap() > 1<<20 {
		return
	}
	b.Reset()
	p.Pool.Put(b)
}

func (p *buffered) Get() *bytes.Buffer {
	b, ok := p.Pool.Get().(*bytes.Buffer)
	if !ok {
		return new(bytes.Buffer)
	}
	return b
}

func (a *api) prepare(w *reply, r *http.Request, rt *route, in *admitted) (*bytes.Buffer, error) {
	if err := once(r); err != nil {
		return nil, err
	}
	if err := a.gate.admit(r, rt, in); err != nil {
		return nil, err
	}
	if r.Method != rt.method && rt.stream {
		w.Header().Set("Allow", rt.method)
		return nil, unrouted(http.StatusMethodNotAllowed, w.Header())
	}
	if err := checkText(r, rt.lists); err != nil {
		return nil, err
	}
	if rt.submits && onlySubmits(r) && a.o.Crowded != nil {
		if err := a.o.Crowded(); err != nil {
			return nil, err
		}
	}
	in.trace = traceOf(r)
	return a.read(w, r, rt, in)
}

// traceOf is the trace in the headers of a request; zero if there is none that is valid.
func traceOf(r *http.Request) belay.Trace {
	parent := r.Header["Traceparent"]
	if len(parent) != 1 {
		return belay.Trace{}
	}
	return belay.Trace{Parent: parent[0], State: strings.Join(r.Header["Tracestate"], ",")}.Valid()
}

// once refuses a request that has one of these headers twice, because a proxy may use one value and
// the server the other.
func once(r *http.Request) error {
	for _, name := range []string{"Authorization", "Content-Type", "Idempotency-Key", "Lease-Id", "Lease-Token",
		"Last-Event-Id", "If-Match", "If-None-Match", wire.HeaderOnly} {
		if len(r.Header[name]) > 1 {
			return malformed("the header " + name + " is there twice")
		}
	}
	return nil
}

// checkText refuses a path that is no text, and a query that is not well formed or gives a
// parameter twice.
func checkText(r *http.Request, lists []string) error {
	if !isText(r.URL.Path) {
		return malformed("the path is no text")
	}
	if r.URL.RawQuery == "" {
		return nil
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return malformed("the query is not well formed")
	}
	for name, values := range q {
		if len(values) > 1 && !slices.Contains(lists, name) {
			return malformed(fmt.Sprintf("the query names %q twice", short(name)))
		}
		for _, v := range values {
			if !isText(v) {
				return malformed(fmt.Sprintf("the query's %q is no text", short(name)))
			}
		}
	}
	return nil
}

// isText reports whether s can be a name: UTF-8 without a NUL.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// read waits until there is memory for the body, reads the whole body, checks it, and replaces the
// request's body by the checked bytes.
func (a *api) read(w *reply, r *http.Request, rt *route, in *admitted) (*bytes.Buffer, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		r.Body = http.NoBody
		return nil, nil
	}
	most := rt.most()
	if !rt.body {
		most = 1 << 10
	}
	if rt.strangers != nil {
		var err error
		if most, err = rt.strangers(r); err != nil {
			return nil, err
		}
	}
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	size := r.ContentLength
	if size < 0 { // the length is unknown
		size = most
	}
	take := a.bodies.take
	switch {
	case rt.alive:
		take = a.bodies.first
	case rt.strangers != nil:
		take = a.strange.take
	}
	give, err := take(r.Context(), size)
	if err != nil {
		return nil, err
	}
	in.give = give
	buffer := buffers.Get()
	if err := a.fill(w, r, buffer, most); err != nil {
		return buffer, err
	}
	body := buffer.Bytes()
	if len(body) == 0 {
		r.Body = http.NoBody
		return buffer, nil
	}
	if rt.raw {
		r.Body = &whole{bytes.NewReader(body), body}
		return buffer, nil
	}
	if err := checkType(r.Header); err != nil {
		return buffer, err
	}
	if err := checkJSON(body, rt.shape); err != nil {
		return buffer, err
	}
	if !rt.body {
		if err := decode(body, &struct{}{}); err != nil {
			return buffer, malformed("this takes no body")
		}
		r.Body = http.NoBody
		return buffer, nil
	}
	r.Body = &whole{bytes.NewReader(body), body}
	return buffer, nil
}

// whole is a body that has been read and checked.
type whole struct {
	*bytes.Reader
	text []byte
}

// Close does nothing: the body is in memory.
func (*whole) Close() error { return nil }

// fill reads the body within the time limit and the size limit.
func (a *api) fill(w *reply, r *http.Request, into *bytes.Buffer, most int64) error {
	control := http.NewResponseController(w.ResponseWriter)
	w.unread = 0
	_ = control.SetReadDeadline(time.Now().Add(a.o.BodyTimeout))
	err := gather(into, http.MaxBytesReader(w.ResponseWriter, r.Body, most))
	var large *http.MaxBytesError
	switch {
	case err == nil:
		_ = control.SetReadDeadline(time.Time{})
		return nil
	case errors.As(err, &large):
		return tooLarge(most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return refuse(&belay.Error{
			Code: belay.CodeMalformed, Message: "the body took too long to arrive",
		}).as(http.StatusRequestTimeout)
	}
	return malformed("the body ended too early")
}

// gather reads all of a body. It joins the pieces of a large body only at the end: a buffer that
// grows by doubling would hold twice the bytes of a body that turns out to be too large.
func gather(into *bytes.Buffer, body io.Reader) error {
	const piece = 1 << 20
	n, err := into.ReadFrom(io.LimitReader(body, piece))
	if err != nil || n < piece {
		return err
	}
	var pieces [][]byte
	for {
		p := make([]byte, piece)
		n, err := io.ReadFull(body, p)
		pieces = append(pieces, p[:n])
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && n > 0:
			whole := make([]byte, 0, into.Len()+len(pieces)*piece)
			whole = append(whole, into.Bytes()...)
			for _, p := range pieces {
				whole = append(whole, p...)
			}
			*into = *bytes.NewBuffer(whole)
			return nil
		default:
			return err
		}
	}
}

func tooLarge(most int64) error {
	return &belay.Error{
		Code: belay.CodePayloadTooLarge, Message: fmt.Sprintf("the body is too large; the limit is %d bytes", most),
	}
}

// checkType refuses a body without Content-Type: application/json. A browser sends this type for a
// page of another site only after a preflight, which the server refuses.
func checkType(h http.Header) error {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return unsupported("a body must say Content-Type: application/json")
	}
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return unsupported("a body must not be encoded; leave Content-Encoding out")
	}
	return nil
}

func unsupported(message string) error {
	return malformed(message).as(http.StatusUnsupportedMediaType)
}

// unrouted is the refusal of a request that no route accepts.
func unrouted(status int, h http.Header) *refusal {
	if status == http.StatusMethodNotAllowed {
		f := malformed("this address takes " + h.Get("Allow")).as(status)
		f.header.Set("Allow", h.Get("Allow"))
		return f
	}
	h.Del("Location")
	return refuse(&belay.Error{
		Code: belay.CodeNotFound, Message: "there is no route at this address; /openapi.json lists the routes",
	})
}
