package httpapi

import (
	"net/http"
	"time"
)

// reply is an answer on its way. It bounds how long a client may take to accept
// it, and knows whether anything was sent, and whether it was a route of ours that
// answered or the mux.
type reply struct {
	http.ResponseWriter
	timeout time.Duration
	routed  bool
	status  int  // 0 until it is sent
	refused bool // the mux's own words are swallowed
	cut     bool // the client did not take all of it
	// unread is how long the rest of a request's body may take to arrive if the answer
	// is sent before the body was read: net/http reads up to 256 KiB of it first, to use
	// the connection again. 0 if there is no body, or it was read.
	unread time.Duration
}

// Unwrap is for http.ResponseController.
func (w *reply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the status. What the mux refuses by itself becomes a problem.
func (w *reply) WriteHeader(status int) {
	if w.refused || w.status != 0 {
		return
	}
	if !w.routed {
		w.refused, w.routed = true, true
		unrouted(status, w.Header()).write(unheld{w})
		return
	}
	w.send(status)
}

func (w *reply) send(status int) {
	if status == http.StatusNoContent || status == http.StatusNotModified {
		w.Header().Del("Content-Type")
	}
	w.status = status
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// extend gives the client its time for what is written next, and for the rest of a body
// that was not read.
func (w *reply) extend() {
	c, now := http.NewResponseController(w.ResponseWriter), time.Now()
	// Not every writer of a test has deadlines.
	if w.unread > 0 {
		_ = c.SetReadDeadline(now.Add(w.unread))
	}
	_ = c.SetWriteDeadline(now.Add(w.unread + w.timeout))
}

// Write sends a part of the body.
func (w *reply) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
		if w.refused {
			return len(b), nil
		}
	}
	n, err := w.ResponseWriter.Write(b)
	w.cut = w.cut || err != nil
	return n, err
}

// unheld writes past what a reply holds back.
type unheld struct{ *reply }

func (w unheld) WriteHeader(status int)      { w.send(status) }
func (w unheld) Write(b []byte) (int, error) { return w.ResponseWriter.Write(b) }
