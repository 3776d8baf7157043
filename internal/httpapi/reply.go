package httpapi

import (
	"net/http"
	"time"

	"github.com/belaydev/belay/internal/wire"
)

// reply writes an answer. It bounds how long a client may take to accept the answer, and records
// whether anything was sent, and whether a route or the mux itself answered.
type reply struct {
	http.ResponseWriter
	timeout time.Duration
	routed  bool
	foreign bool // clients of OpenAI's API may have sent the request
	status  int  // 0 until the status is sent
	refused bool // the mux itself refused the request; the text that it writes is dropped
	cut     bool // the client did not accept the whole answer
	// unread is how long the rest of a request's body may take to arrive if the answer is sent
	// before the body was read: net/http first reads up to 256 KiB of the body, to use the
	// connection again. It is 0 if the request has no body, or the body was read.
	unread time.Duration
}

// Unwrap lets http.ResponseController find the wrapped writer.
func (w *reply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the status. A refusal of the mux itself becomes a problem.
func (w *reply) WriteHeader(status int) {
	if w.refused || w.status != 0 {
		return
	}
	if !w.routed {
		w.refused, w.routed = true, true
		f := unrouted(status, w.Header())
		if w.foreign {
			f.problem.Fault = &wire.ChatFault{
				Message: f.problem.Detail, Type: "invalid_request_error", Code: string(f.problem.Code),
			}
		}
		f.write(problemWriter{w})
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

// extend moves the deadlines: the client gets the timeout for what is written next, and for the
// rest of a body that was not read.
func (w *reply) extend() {
	c, now := http.NewResponseController(w.ResponseWriter), time.Now()
	// Errors are ignored, because the writers of some tests have no deadlines.
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

// problemWriter writes a problem to the client in place of the mux's own refusal. It bypasses
// reply.Write, which discards the text of that refusal.
type problemWriter struct{ *reply }

func (w problemWriter) WriteHeader(status int)      { w.send(status) }
func (w problemWriter) Write(b []byte) (int, error) { return w.ResponseWriter.Write(b) }
