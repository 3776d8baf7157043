package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/server"
)

// stream is an open stream of events.
type stream struct {
	body  io.ReadCloser
	lines *bufio.Scanner
}

// watch opens a stream of an execution's events and reads the first line of the stream.
func (r *running) watch(c *http.Client, id string) *stream {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+"/v1/executions/"+id+"/events", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	s := &stream{resp.Body, bufio.NewScanner(resp.Body)}
	if !s.lines.Scan() {
		r.t.Fatalf("no first line: %v", s.lines.Err())
	}
	return s
}

// rest reads the stream to its end.
func (s *stream) rest() error {
	for s.lines.Scan() {
	}
	return s.lines.Err()
}

// Close closes the stream on the side of the client.
func (s *stream) Close() { _ = s.body.Close() }

// During a graceful shutdown under load, streams end without an error, long polls are answered
// early, and every acknowledged submission is in the store (guarantee G3).
func TestAStopUnderLoadLosesNothing(t *testing.T) {
	polling := make(chan struct{}, 20)
	r := start(t, setup{engine: func(b *embedded.Backend) server.Engine { return &polled{b, polling} }})
	c := http1(t)
	id := r.submit(c)
	var all sync.WaitGroup
	for range 20 {
		s := r.watch(c, id)
		all.Go(func() {
			if err := s.rest(); err != nil {
				t.Errorf("a stream was cut off: %v", err)
			}
		})
	}
	for range 20 {
		all.Go(func() {
			status, text, err := try(t.Context(), c, http.MethodGet, r.url+"/v1/executions/"+id+
				"/history?after=1&wait="+pollFor.String(), "")
			if err != nil || status != http.StatusNoContent && status != http.StatusServiceUnavailable {
				t.Errorf("a long poll: %d %s %v", status, text, err)
			}
		})
	}
	for range 20 {
		<-polling
	}
	acknowledged := r.hammer(&all, 8)
	acknowledged.waitFor(t, 50)
	began := time.Now()
	r.stop()
	if err := r.wait(); err != nil {
		t.Errorf("the stop: %v\n%s", err, r.log)
	}
	all.Wait()
	if d := time.Since(began); d > soon/2 {
		t.Errorf("the stop took %s", d)
	}
	for _, id := range acknowledged.ids {
		if _, err := r.engine.Execution(t.Context(), id); err != nil {
			t.Errorf("an acknowledged submission is lost: %v", err)
		}
	}
	t.Logf("%d acknowledged, stopped in %s", len(acknowledged.ids), time.Since(began))
}

// pollFor is how long the test's long polls wait.
const pollFor = 50 * time.Second

// polled is an engine that reports each long poll that reaches it.
type polled struct {
	server.Engine
	polling chan<- struct{}
}

func (p *polled) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	if q.Wait == pollFor { // only the test's long polls wait for exactly pollFor
		p.polling <- struct{}{}
	}
	return p.Engine.Events(ctx, q)
}

// acks are the ids of the submissions that the server has acknowledged.
type acks struct {
	mu   sync.Mutex
	ids  []belay.ExecutionID
	more chan struct{}
}

func (a *acks) add(location string) error {
	id, err := belay.ParseExecutionID(location[strings.LastIndexByte(location, '/')+1:])
	a.mu.Lock()
	a.ids = append(a.ids, id)
	a.mu.Unlock()
	select {
	case a.more <- struct{}{}:
	default:
	}
	return err
}

func (a *acks) waitFor(t *testing.T, n int) {
	t.Helper()
	over := time.After(soon)
	for {
		a.mu.Lock()
		have := len(a.ids)
		a.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-a.more:
		case <-over:
			t.Fatalf("%d acknowledged", have)
		}
	}
}

// hammer submits executions from a number of clients until the server refuses.
func (r *running) hammer(all *sync.WaitGroup, clients int) *acks {
	a := &acks{more: make(chan struct{}, 1)}
	for range clients {
		c := http1(r.t)
		all.Go(func() {
			for {
				resp, err := c.Post(r.url+"/v1/executions", "application/json", strings.NewReader(`{"workflow":"w"}`))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusCreated {
					return
				}
				if err := a.add(resp.Header.Get("Location")); err != nil {
					r.t.Error(err)
				}
			}
		})
	}
	return a
}

// half opens a connection and sends a request with only a part of its body.
func (r *running) half() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, "POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		r.t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		r.t.Fatalf("%q, %v", line, err) // "100 Continue" means that the server reads the body
	}
	return c
}

// The server cuts off a request that has not ended when the grace period is over, and Run still
// returns nil.
func TestRequestsAreCutOffAfterTheGrace(t *testing.T) {
	r := start(t, setup{cfg: func(c *config.Config) { c.Grace = 100 * time.Millisecond }})
	c := r.half()
	r.stop()
	if err := r.wait(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	if !strings.Contains(r.log.String(), "longer than the grace") {
		t.Errorf("the log does not mention the request\n%s", r.log)
	}
	cutOff(t, c)
}

// cutOff waits for the other side to end a connection.
func cutOff(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the connection is still open")
	}
}

// A second request to stop ends the server without waiting for requests or services.
func TestASecondStopIsAtOnce(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	r := start(t, setup{
		cfg:      func(c *config.Config) { c.Grace = time.Hour },
		services: []func(context.Context) error{func(context.Context) error { <-stuck; return nil }},
	})
	c := r.half()
	r.stop()
	r.atOnce()
	if err := r.wait(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	cutOff(t, c)
}
