package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
)

// Some clients send a header or a body byte by byte, or do not read the answer. The server cuts off
// all of them when its timeouts have passed, however many clients behave in this way, and until
// then answers other clients without delay.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	const each, limit = 50, time.Second
	b, err := embedded.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	left := make(chan struct{}, each) // gets a value when the handler for a client that reads nothing returns
	log := &syncBuffer{}
	api := httpapi.New(b, httpapi.Options{Log: slog.New(slog.NewTextHandler(log, nil)), BodyTimeout: limit,
		WriteTimeout: limit, Rate: httpapi.Rate{PerSecond: -1}})
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if strings.HasPrefix(r.URL.Path, "/v1/executions/") {
				left <- struct{}{}
			}
		}()
		api.ServeHTTP(w, r)
	}))
	h.Listener = narrow{h.Listener}
	h.Config.ReadHeaderTimeout, h.Config.IdleTimeout = 10*limit, limit
	h.Start()
	defer h.Close()
	s := &server{t: t, url: h.URL}
	got, err := b.Submit(t.Context(), belay.Submission{
		Workflow: "w", Input: []byte(`"` + strings.Repeat("x", 1<<20-100) + `"`),
	})
	if err != nil {
		t.Fatal(err)
	}
	big := "/v1/executions/" + got[0].ID.String()

	const post = "POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
		"100\r\n\r\n{"
	const early = "POST /v1/executions HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nIdempotency-Key: " +
		"b\r\nContent-Length: 200000\r\n\r\n{"
	const lost = "POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n{"
	var slow sync.WaitGroup
	gone := make(chan struct{}) // closed when the handlers for all clients that read nothing have returned
	for range each {
		slow.Go(func() {
			cutOff(t, s.url, "slow header", "GET /healthz HTTP/1.1\r\nHost: x\r\nA: ", http.StatusRequestTimeout,
				io.EOF)
		})
		slow.Go(func() { cutOff(t, s.url, "slow body", post, http.StatusRequestTimeout, nil) })
		slow.Go(func() { cutOff(t, s.url, "slow body, refused", early, http.StatusBadRequest, nil) })
		slow.Go(func() { cutOff(t, s.url, "slow body, no route", lost, http.StatusNotFound, nil) })
		slow.Go(func() { deaf(t, s.url, "GET "+big+" HTTP/1.1\r\nHost: x\r\n\r\n", gone) })
	}
	for range 50 {
		began := time.Now()
		s.want(http.StatusOK, nil, http.MethodGet, "/v1/workers", "")
		if took := time.Since(began); took > patience() {
			t.Errorf("another client waited %s", took)
		}
	}
	for range each {
		<-left
	}
	close(gone)
	slow.Wait()
	if text := log.String(); text != "" {
		t.Errorf("slow clients filled the log: %.500s", text)
	}
}

// dial connects with a small buffer for reading.
func dial(t *testing.T, url string) (*net.TCPConn, error) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.New("not TCP")
	}
	err = tcp.SetReadBuffer(4 << 10)
	return tcp, err
}

// cutOff sends the beginning of a request and nothing more. The server must answer with the status,
// or without an answer if silent is set, and close the connection.
func cutOff(t *testing.T, url, what, text string, status int, silent error) {
	c, err := dial(t, url)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
		return
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	switch {
	case err == nil && resp.StatusCode != status:
		t.Errorf("%s: %d, want %d", what, resp.StatusCode, status)
	case err != nil && (silent == nil || errors.Is(err, os.ErrDeadlineExceeded)):
		t.Errorf("%s: %v", what, err)
	}
	if err == nil {
		resp.Body.Close()
	}
	if _, err := io.Copy(io.Discard, in); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection was left open", what)
	}
}

// deaf requests a large answer and reads none of it until the server has cut the connection. If
// deaf reads after that, the rest of the answer must not arrive.
func deaf(t *testing.T, url, text string, gone <-chan struct{}) {
	c, err := dial(t, url)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
		return
	}
	<-gone
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if n, err := io.Copy(io.Discard, c); err == nil && n > 1<<20 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("never reading: %d bytes came after all, %v", n, err)
	}
}

// Large bodies that clients send at the same time never take more memory together than
// Options.Bodies: a body waits until there is enough free memory, and is refused with Retry-After
// if it waits too long. Small requests do not wait. A request that waits for a result gives back
// the memory of its body, which was read before.
func TestLargeBodiesWaitForMemory(t *testing.T) {
	t.Parallel()
	s := serve(t, httpapi.Options{Bodies: 1 << 20, BodyTimeout: 2 * time.Minute})
	large := `{"workflow": "w", "input": "` + strings.Repeat("x", 900<<10) + `"}`
	awaited := make(chan *answer, 1)
	go func() {
		a, err := s.try(t.Context(), http.MethodPost, "/v1/executions", large, "Prefer", "wait=60", "Idempotency-Key",
			"awaited")
		if err != nil {
			t.Error(err)
		}
		awaited <- a
	}()
	var list belay.Page
	for len(list.Executions) == 0 {
		s.want(http.StatusOK, &list, http.MethodGet, "/v1/executions?key=awaited", "")
	}
	// begin sends only the header of a large body, and returns the first answer: 100 (Continue) if
	// the server has memory for the body and begins to read it.
	begin := func() (c net.Conn, in *bufio.Reader, status int, header http.Header) {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := fmt.Fprintf(c, "POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
			"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(large)); err != nil {
			t.Fatal(err)
		}
		in = bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return c, in, resp.StatusCode, resp.Header
	}
	c, in, status, _ := begin()
	for status == http.StatusServiceUnavailable { // the waiting request has not given back the memory of its body yet
		c, in, status, _ = begin()
	}
	if status != http.StatusContinue {
		t.Fatalf("the server answers %d to a large body", status)
	}
	if _, _, status, header := begin(); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("beside another large body: %d, %v", status, header)
	}
	s.submit(`{"workflow": "small"}`)
	if _, err := io.WriteString(c, large); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("the body that had memory: %v, %v", resp, err)
	}
	resp.Body.Close()
	s.submit(large)
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/executions/"+list.Executions[0].ID.String()+"/cancel", "")
	<-awaited
}
