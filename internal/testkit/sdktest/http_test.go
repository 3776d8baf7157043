package sdktest_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/testkit/sdktest"
)

// overHTTP is a client that sends its calls to a server over in-process connections. The test
// closes the client before the server's Backend.
type overHTTP struct {
	*client.Client
	t      *testing.T
	dial   client.Option
	behind engineBackend
}

// engineBackend is a Backend that also has the calls with which a server checks keys.
type engineBackend interface {
	belay.Backend
	httpapi.Keys
}

func (b overHTTP) Close() error {
	if err := b.Client.Close(); err != nil {
		return err
	}
	return b.behind.Close()
}

// WithKey returns another client of the same server, which sends the key.
func (b overHTTP) WithKey(secret string) belay.Backend {
	c, err := client.Dial(b.t.Context(), "http://belay.test", b.dial, client.Key(secret), client.Logger(quiet))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

var quiet = slog.New(slog.DiscardHandler)

func serve(t *testing.T, behind engineBackend) belay.Backend {
	t.Helper()
	dial := client.Dialer(sdktest.Serve(t, httpapi.New(behind, httpapi.Options{Log: quiet, Keys: behind})))
	c, err := client.Dial(t.Context(), "http://belay.test", dial, client.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	return overHTTP{c, t, dial, behind}
}

// A client over HTTP passes the suite, with the store in memory.
func TestHTTPMemory(t *testing.T) {
	sdktest.Run(t, func(t *testing.T) belay.Backend {
		return serve(t, engine.New(memory.New(time.Now), engine.Options{Log: quiet}))
	})
}

// A client over HTTP passes the suite, with the store in SQLite.
func TestHTTPSQLite(t *testing.T) {
	sdktest.Run(t, func(t *testing.T) belay.Backend {
		b, err := embedded.Open(t.Context(), "sqlite:"+t.TempDir(), embedded.Logger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		return serve(t, b)
	}, sdktest.Part...)
}
