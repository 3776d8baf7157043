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

// entered is the mux as huma sees it: every handler is entered through the
// checks that all routes share.
type entered struct{ a *api }

// HandleFunc registers a handler behind its route's checks.
func (m entered) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	rt := m.a.routes[pattern]
	m.a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { m.a.enter(w, r, rt, h) })
}

// ServeHTTP serves the mux.
func (m entered) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.a.mux.ServeHTTP(w, r) }

// enter lets a request into its handler: known, allowed, and with a body that is
// whole, bounded and fit to be decoded.
func (a *api) enter(w http.ResponseWriter, r *http.Request, rt *route, next func(http.ResponseWriter, *http.Request)) {
	rep, ok := w.(*reply)
	if !ok { // the mux hands on what it was given
		panic("httpapi: a request came past ServeHTTP")
	}
	rep.routed = true
	in := &admitted{id: w.Header().Get(wire.HeaderRequest)}
	r = r.WithContext(context.WithValue(r.Context(), admittedKey{}, in))
	defer in.end()
	buffer, err := a.prepare(rep, r, rt, in)
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

// answer has the handler write its answer, which is compressed and gets an ETag where the route and the caller want it.
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

// tag gives the answer an ETag where the route has one.
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

// Put takes a buffer back, unless it grew so large that keeping it costs more
// than it saves.
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
	return a.read(w, r, rt, in)
}

// once refuses headers that mean something and are there twice: whoever stands
// between may have read the other one.
func once(r *http.Request) error {
	for _, name := range []string{"Authorization", "Content-Type", "Idempotency-Key", "Lease-Id", "Lease-Token",
		"Last-Event-Id", "If-None-Match", wire.HeaderOnly} {
		if len(r.Header[name]) > 1 {
			return malformed("the header " + name + " is there twice")
		}
	}
	return nil
}

// checkText refuses what is no text in the path, and a query that is not well
// formed or says a thing twice.
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

// read takes the whole body as soon as there is room for it, checks it and puts it
// back in its place.
func (a *api) read(w *reply, r *http.Request, rt *route, in *admitted) (*bytes.Buffer, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		r.Body = http.NoBody
		return nil, nil
	}
	most := rt.most()
	if !rt.body {
		most = 1 << 10
	}
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	size := r.ContentLength
	if size < 0 { // it does not say
		size = most
	}
	take := a.room.take
	if rt.alive {
		take = a.room.first
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

// Close does nothing.
func (*whole) Close() error { return nil }

// fill reads the body within its time and size.
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

// gather reads all of a body. What is large is put together at the end: a buffer
// that doubles holds twice what turns out to be too much.
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

// checkType refuses a body that does not say it is JSON. A page of another site
// cannot say so without being asked for permission first.
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

// unrouted is the refusal of what no route takes.
func unrouted(status int, h http.Header) *refusal {
	if status == http.StatusMethodNotAllowed {
		f := malformed("this address takes " + h.Get("Allow")).as(status)
		f.header.Set("Allow", h.Get("Allow"))
		return f
	}
	h.Del("Location")
	return refuse(&belay.Error{
		Code: belay.CodeNotFound, Message: "there is nothing at this address; /openapi.json says what there is",
	})
}
