//go:build linux

package server_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/config"
)

// A client that opens thousands of streams, each on a connection of its own, gets only its share of
// the streams; the server answers its other requests with the status 429. Another client still gets
// answers and a stream.
func TestOneClientDoesNotBlockOthers(t *testing.T) {
	const waiting, connections, greed = 50, 200, 2000
	r := start(t, setup{cfg: func(c *config.Config) { c.Limits.Connections, c.Limits.Waiting = connections, waiting }})
	id := r.submit(http1(t))
	from := func(host string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}, Timeout: soon}
		return d.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	}
	stream := func(host string) (c net.Conn, status string, err error) {
		if c, err = from(host); err != nil {
			return nil, "", err
		}
		_ = c.SetDeadline(time.Now().Add(soon))
		if _, err = fmt.Fprintf(c, "GET /v1/executions/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", id); err != nil {
			return c, "", err
		}
		status, err = bufio.NewReader(c).ReadString('\n')
		return c, strings.TrimSpace(status), err
	}
	var mu sync.Mutex
	got := make(map[string]int)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range greed / 50 {
				c, status, err := stream("127.0.0.2")
				if c != nil {
					t.Cleanup(func() { _ = c.Close() }) // the connection stays open to the end of the test
				}
				if err != nil {
					status = "cut off"
				}
				mu.Lock()
				got[status]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if got["HTTP/1.1 200 OK"] != waiting || got["HTTP/1.1 429 Too Many Requests"] == 0 {
		t.Errorf("the greedy client got %v", got)
	}
	began := time.Now()
	for range 20 {
		c, status, err := stream("127.0.0.3")
		if err != nil || status != "HTTP/1.1 200 OK" {
			t.Errorf("the other client got %q, %v", status, err)
		}
		t.Cleanup(func() { _ = c.Close() })
		r.do(http1(t), http.MethodGet, "/v1/executions/"+id, "")
	}
	if took := time.Since(began); took > soon/2 {
		t.Errorf("the other client waited %s", took)
	}
	t.Logf("the greedy client got %v", got)
}
