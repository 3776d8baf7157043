package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/config"
)

// oneConnection makes a client that speaks HTTP/2 without TLS, and a counter of the connections
// that it opens.
func oneConnection(t *testing.T) (*http.Client, *atomic.Int64) {
	var dialled atomic.Int64
	tr := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}, &dialled
}

// A heartbeat is answered at once, although two hundred long polls wait on the same connection.
func TestAHeartbeatDoesNotQueueBehindLongPolls(t *testing.T) {
	r := start(t, setup{})
	c, dialled := oneConnection(t)
	id := r.submit(c)
	status, text := r.do(c, http.MethodPost, "/v1/workers",
		`{"name":"w","workflows":[{"workflow":"other"}],"capacity":1}`)
	if status != http.StatusCreated {
		t.Fatalf("open a session: %d %s", status, text)
	}
	_, rest, _ := strings.Cut(text, `"id":"`)
	worker, _, _ := strings.Cut(rest, `"`)
	const polls = 200
	var all sync.WaitGroup
	sent := make(chan struct{}, polls)
	ctx, cancel := context.WithCancel(t.Context())
	for range polls {
		all.Go(func() {
			sent <- struct{}{}
			_, _, err := try(ctx, c, http.MethodGet, r.url+"/v1/executions/"+id+"/history?after=1&wait=50s", "")
			if err == nil {
				t.Error("a long poll was answered")
			}
		})
	}
	for range polls {
		<-sent
	}
	beat := func(client *http.Client) time.Duration {
		began := time.Now()
		if status, text := r.do(client, http.MethodPost, "/v1/workers/"+worker+"/heartbeat",
			`{"claim_seen":0}`); status != http.StatusOK {
			t.Fatalf("heartbeat: %d %s", status, text)
		}
		return time.Since(began)
	}
	worst := time.Duration(0)
	for range 20 {
		worst = max(worst, beat(c))
	}
	if worst > 2*time.Second {
		t.Errorf("a heartbeat took %s beside %d long polls", worst, polls)
	}
	t.Logf("beside %d long polls on one connection a heartbeat took %s at most", polls, worst)
	cancel()
	all.Wait()
	if n := dialled.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A connection beyond the limit waits until another connection is closed.
func TestConnectionsAreBounded(t *testing.T) {
	r := start(t, setup{cfg: func(c *config.Config) { c.Limits.Connections = 2 }})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, second := dial(), dial()
	for _, c := range []net.Conn{first, second} { // the server has accepted the connection
		ask(t, c)
		answered(t, c)
	}
	third := dial()
	ask(t, third)
	if err := third.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := third.Read(make([]byte, 1)); err == nil {
		t.Errorf("a third connection was answered (%d)", n)
	}
	_ = first.Close()
	answered(t, third)
}

func ask(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

func answered(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 12)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "HTTP/1.1 200" {
		t.Errorf("%q, %v", buf, err)
	}
}

// The server cuts off a client that does not finish a header or body, sends too large a header, or
// is silent for too long.
func TestSlowAndSilentClientsAreCutOff(t *testing.T) {
	r := start(t, setup{cfg: func(c *config.Config) {
		const short = 300 * time.Millisecond
		c.Limits.HeaderTimeout, c.Limits.IdleTimeout, c.Limits.ReadTimeout = short, short, short
		c.Limits.Headers = 8 << 10
	}})
	for name, say := range map[string]string{
		"half a header": "GET /healthz HTTP/1.1\r\nHost: local", "nothing": "",
		"an idle connection": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"too large a header": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 64<<10) +
			"\r\n\r\n",
		"half a body": "POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
			"application/json\r\nContent-Length: 100\r\n\r\n{",
		"an HTTP/2 preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, say) // the write fails if the server closes the connection first
			cutOff(t, c)
		})
	}
	status, err := 0, error(nil)
	// The machine may be so busy that the server's short timeouts cut off this client too, so the
	// test tries again.
	for over := time.Now().Add(soon); status != http.StatusOK && time.Now().Before(over); {
		status, _, err = try(t.Context(), http1(t), http.MethodGet, r.url+"/healthz", "")
	}
	if status != http.StatusOK {
		t.Errorf("other clients get %d, %v", status, err)
	}
}

// A client that sends more requests than the rate allows gets the status 429.
func TestTheRateOfRequestsIsLimited(t *testing.T) {
	r := start(t, setup{cfg: func(c *config.Config) { c.Limits.Rate, c.Limits.Burst = 1, 5 }})
	c := http1(t)
	got := make(map[int]int)
	for range 50 {
		status, _ := r.do(c, http.MethodGet, "/v1/executions", "")
		got[status]++
	}
	if got[http.StatusOK] < 5 || got[http.StatusTooManyRequests] == 0 {
		t.Errorf("50 requests at once got %v", got)
	}
}
