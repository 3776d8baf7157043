package client_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/wire"
)

// Rule: all heartbeats use the connection for small requests, however many runs they name. Other
// large requests use a second connection.
func TestLongHeartbeatsUseTheConnectionForSmallRequests(t *testing.T) {
	var mu sync.Mutex
	var from []string
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		from = append(from, r.RemoteAddr)
		reply(w, wire.HeartbeatReply{})
	}))
	c, err := client.Dial(t.Context(), "http://"+l.Addr().String(), client.Lazy())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	beat := func(n int) {
		t.Helper()
		if _, err := c.Heartbeat(t.Context(), belay.Heartbeat{Worker: belay.WorkerID{1}, Holds: make([]belay.Held,
			n)}); err != nil {
			t.Fatal(err)
		}
	}
	beat(1)
	beat(10_000)
	input := json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
	if _, err := c.Control(t.Context(), belay.Control{Action: belay.ActionRequeue, Input: input}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(from) != 3 || from[0] != from[1] || from[1] == from[2] {
		t.Errorf("a short heartbeat, a long one and a large body came from %s", from)
	}
}
