package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/belaydev/belay/internal/reach"
)

// tunnel answers CONNECT: it copies bytes in both directions until both directions have ended.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request) {
	t, err := reach.ParseTarget(r.RequestURI, 0) // r.URL is not used, because its parser accepts a user and a path
	switch {
	case err != nil:
		s.refuse(w, reach.Printable(r.RequestURI), fmt.Errorf("%w: %w", errTarget, err))
		return
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		answer(w, http.StatusBadRequest, "a CONNECT has no body")
		return
	case !s.Policy.Lists(t):
		s.refuse(w, t.String(), reach.ErrUnlisted)
		return
	}
	up, err := s.connect(r.Context(), t)
	if err != nil {
		s.fail(w, t, err)
		return
	}
	defer up.Close()
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the job has disconnected
	}
	defer down.Close()
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	join(up, down, buffered.Reader)
}

// join copies bytes between two connections, and returns when both directions have ended. When one
// direction ends, join closes that direction on the other connection too, and continues with the
// opposite direction. An error closes both connections.
func join(up, down net.Conn, read *bufio.Reader) {
	var both sync.WaitGroup
	carry := func(to net.Conn, from io.Reader) {
		if _, err := io.Copy(to, from); err != nil || closeWrite(to) != nil {
			_ = up.Close()
			_ = down.Close()
		}
	}
	both.Go(func() { carry(up, early{read, down}) })
	both.Go(func() { carry(down, up) })
	both.Wait()
}

// early is a reader of the bytes that arrived together with the request, and then of the later
// bytes of the connection.
type early struct {
	buffered *bufio.Reader
	next     net.Conn
}

// Read reads the buffered bytes first.
func (e early) Read(p []byte) (int, error) {
	if n := e.buffered.Buffered(); n > 0 {
		return e.buffered.Read(p[:min(n, len(p))])
	}
	return e.next.Read(p)
}

// errWhole is the error for a connection that cannot close its sending direction and still receive.
var errWhole = errors.New("one direction of the connection cannot end alone")

// closeWrite ends the sending direction of a connection.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errWhole
}
