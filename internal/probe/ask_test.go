package probe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// at returns the address of a test server.
func at(t *testing.T, a net.Addr) netip.AddrPort {
	t.Helper()
	to, err := netip.ParseAddrPort(a.String())
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// raw starts a server that calls answer for each connection, and returns its address.
func raw(t *testing.T, answer func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(c)
			}()
		}
	}()
	return at(t, l.Addr())
}

// Rule: only a status from 200 to 299 shows a healthy worker. A failure shows nothing of the answer
// except the status and the header that only workers send.
func TestTheResultOfAProbe(t *testing.T) {
	var reached atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer elsewhere.Close()
	for _, c := range []struct {
		name, want string
		answer     http.HandlerFunc
	}{
		{"healthy", "", func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/healthz" || r.Header.Get("Authorization") != "" {
				w.WriteHeader(http.StatusBadRequest)
			}
		}},
		{"no content", "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }},
		{"unhealthy", "it answered with the status 503: the disk is full",
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Belay-Health", "the disk is full")
				w.WriteHeader(http.StatusServiceUnavailable)
			}},
		{"the body of an error is not shown", "it answered with the status 500",
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "the password is 7", 500) }},
		{"a long text is cut", "it answered with the status 503: " + strings.Repeat("x", mostText),
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Belay-Health", strings.Repeat("x", 3000))
				w.WriteHeader(http.StatusServiceUnavailable)
			}},
		{"a redirect is not followed", "it answered with the status 302",
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }},
		{"headers without end", "the connection ended without an answer in HTTP",
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X", strings.Repeat("x", 1<<20))
				w.WriteHeader(http.StatusOK)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(c.answer)
			defer s.Close()
			failure, err := ask(t.Context(), at(t, s.Listener.Addr()), time.Minute)
			if failure != c.want || err != nil {
				t.Errorf("%q, %v; want %q", failure, err, c.want)
			}
		})
	}
	if reached.Load() {
		t.Error("a probe followed a redirect")
	}
}

// Rule: a probe does not wait for, and does not read, more than the header of an answer.
func TestAProbeIsBounded(t *testing.T) {
	const limit = 300 * time.Millisecond
	silent := raw(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	if failure, err := ask(t.Context(), silent, limit); failure != "no answer within 300ms" || err != nil {
		t.Errorf("no answer: %q, %v", failure, err)
	}
	dripping := raw(t, func(c net.Conn) {
		for _, b := range "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + strings.Repeat("A: b\r\n", 1000) {
			if _, err := c.Write([]byte(string(b))); err != nil {
				return
			}
			_ = c.SetReadDeadline(time.Now().Add(limit / 20))
			_, _ = io.Copy(io.Discard, c)
		}
	})
	if failure, err := ask(t.Context(), dripping, limit); failure != "no answer within 300ms" || err != nil {
		t.Errorf("a slow header: %q, %v", failure, err)
	}
	written := make(chan int64, 1)
	endless := raw(t, func(c net.Conn) {
		var n int64
		head := "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
		for block := head + strings.Repeat("x", 1<<16); ; block = block[len(head):] {
			m, err := c.Write([]byte(block))
			if n += int64(m); err != nil {
				written <- n
				return
			}
			head = ""
		}
	})
	if failure, err := ask(t.Context(), endless, time.Minute); failure != "" || err != nil {
		t.Errorf("a long body: %q, %v", failure, err)
	}
	if n := <-written; n > 100<<20 { // some bytes fit into the buffers of both sockets
		t.Errorf("the probe let the worker send %d bytes", n)
	}
}

// Rule: a peer that sends bytes before it gets a request is judged like a peer that answers, and
// the server logs none of these bytes.
func TestPeersThatSpeakFirst(t *testing.T) {
	var logged bytes.Buffer
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	for _, c := range []struct{ says, want string }{
		{"SSH-2.0-secret\r\n", "the connection ended without an answer in HTTP"},
		{"HTTP/1.1 503 No\r\nBelay-Health: full\r\nContent-Length: 0\r\n\r\n", "it answered with the status 503: full"},
	} {
		to := raw(t, func(conn net.Conn) { // ends the connection after the request has come
			_, _ = io.WriteString(conn, c.says)
			_, _ = http.ReadRequest(bufio.NewReader(conn))
		})
		for range 20 { // the first bytes come before or after the connection is ready to be used
			if failure, err := ask(t.Context(), to, time.Minute); failure != c.want || err != nil {
				t.Errorf("%q: %q, %v; want %q", c.says, failure, err, c.want)
			}
		}
	}
	if logged.Len() > 0 {
		t.Errorf("logged: %q", logged.String())
	}
}

// Rule: a refused connection counts as a failed probe; a probe that the server cancelled, because it
// stops, counts neither as failed nor as passed.
func TestOnlyTheWorkerMakesAProbeFail(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := at(t, l.Addr())
	l.Close()
	failure, err := ask(t.Context(), closed, time.Minute)
	if failure != "cannot connect: connection refused" || err != nil {
		t.Errorf("a closed port: %q, %v", failure, err)
	}
	asked := make(chan struct{})
	silent := raw(t, func(c net.Conn) {
		close(asked)
		_, _ = io.Copy(io.Discard, c)
	})
	stopping := errors.New("the server stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(stopping)
	}()
	if failure, err := ask(ctx, silent, time.Minute); failure != "" || !errors.Is(err, stopping) {
		t.Errorf("an ended probe: %q, %v", failure, err)
	}
}
