package client_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/testkit/sdktest"
	"github.com/belaydev/belay/internal/wire"
)

// The client replaces a connection on which no answer arrives. It replaces the connection for small
// requests within one heartbeat interval, so that a worker keeps its leases, and the connection for
// large requests within 16 seconds.
func TestSilentConnectionIsReplaced(t *testing.T) {
	for _, test := range []struct {
		name   string
		call   func(ctx context.Context, c *client.Client) error
		within time.Duration
	}{
		{"small", func(ctx context.Context, c *client.Client) error {
			return c.Drain(ctx, belay.WorkerID{1})
		}, belay.DefaultHeartbeat.D() + time.Second},
		{"large", func(ctx context.Context, c *client.Client) error {
			_, err := c.Control(ctx, belay.Control{
				Action: belay.ActionRequeue, Input: json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`),
			})
			return err
		}, 16 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, dials := silentAtFirst(t)
				began := time.Now()
				if err := test.call(t.Context(), c); err != nil {
					t.Error(err)
				}
				if d := time.Since(began); d > test.within {
					t.Errorf("took %s", d)
				}
				if n := dials.Load(); n != 2 {
					t.Errorf("%d connections", n)
				}
			})
		})
	}
}

// If a heartbeat is not answered in time, the next heartbeat uses another connection, even if the
// heartbeat's deadline comes before a ping can show that the connection is dead.
func TestAnUnansweredHeartbeatReplacesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dials := silentAtFirst(t)
		ctx, cancel := context.WithTimeout(t.Context(), belay.MinTTL.D()/2)
		defer cancel()
		if _, err := c.Heartbeat(ctx, belay.Heartbeat{}); belay.CodeOf(err) != belay.CodeUnavailable {
			t.Error(err)
		}
		began := time.Now()
		if _, err := c.Heartbeat(t.Context(), belay.Heartbeat{}); err != nil || time.Since(began) != 0 ||
			dials.Load() != 2 {
			t.Errorf("%v after %s and %d connections", err, time.Since(began), dials.Load())
		}
	})
}

// A claim that waits on a connection ends when the server does not answer a heartbeat on the same
// connection. The worker then sends the claim again on another connection and gets the executions
// that the claim won.
func TestAClaimEndsWhenItsConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := silentAtFirst(t)
		claimed := make(chan error)
		go func() {
			_, err := c.Claim(t.Context(), belay.ClaimRequest{Number: 1, Slots: 1, Wait: 20 * time.Second})
			claimed <- err
		}()
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), belay.MinTTL.D()/2)
		defer cancel()
		if _, err := c.Heartbeat(ctx, belay.Heartbeat{}); err == nil {
			t.Error("the first connection answers")
		}
		if err := <-claimed; belay.CodeOf(err) != belay.CodeUnavailable || time.Since(began) != belay.MinTTL.D()/2 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// A heartbeat without an answer ends the other small calls on its connection, but no large calls,
// which may only be slow.
func TestAnUnansweredHeartbeatDoesNotEndLargeRequests(t *testing.T) {
	h := answering(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); len(body) < 100_000 {
			<-r.Context().Done()
			return
		}
		time.Sleep(5 * time.Second)
		reply(w, wire.BatchReply{Results: []wire.Result{{Seq: 7}}})
	})
	inBubble(t, h, func(t *testing.T, c *client.Client) {
		large, small := make(chan error), make(chan error)
		go func() {
			big := save(1)
			big.Data = json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
			seq, err := c.Save(t.Context(), big)
			if seq != 7 {
				t.Errorf("seq %d", seq)
			}
			large <- err
		}()
		synctest.Wait()
		go func() { small <- c.Signal(t.Context(), belay.SignalRequest{Name: "go"}) }()
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Heartbeat(ctx, belay.Heartbeat{}); belay.CodeOf(err) != belay.CodeUnavailable {
			t.Error(err)
		}
		if err := <-small; belay.CodeOf(err) != belay.CodeUnavailable || time.Since(began) != time.Second {
			t.Errorf("small: %v after %s", err, time.Since(began))
		}
		if err := <-large; err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("large: %v after %s", err, time.Since(began))
		}
	}, client.Patience(0))
}

// silentAtFirst returns a client whose first connection accepts all data and never answers, and the
// counter of the connections that the client has opened.
func silentAtFirst(t *testing.T) (*client.Client, *atomic.Int32) {
	t.Helper()
	dial := sdktest.Serve(t, echo)
	var dials atomic.Int32
	c, err := client.Dial(t.Context(), "http://belay.test", client.Lazy(), client.Logger(slog.New(slog.DiscardHandler)),
		client.Patience(time.Minute),
		client.Dialer(func(ctx context.Context) (net.Conn, error) {
			if dials.Add(1) > 1 {
				return dial(ctx)
			}
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			return ours, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, &dials
}
