package client_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/sdktest"
)

// A connection over which nothing comes any more is replaced within seconds, so
// that a worker's heartbeats get through before its time is over.
func TestSilentConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := sdktest.Serve(t, echo)
		var dials atomic.Int32
		c, err := client.Dial(t.Context(), "http://belay.test", client.Lazy(), client.Logger(slog.New(slog.DiscardHandler)),
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
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		if _, err := c.Execution(t.Context(), belay.ExecutionID{1}); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > belay.DefaultHeartbeat.D() {
			t.Errorf("took %s", d)
		}
		if n := dials.Load(); n != 2 {
			t.Errorf("%d connections", n)
		}
	})
}
