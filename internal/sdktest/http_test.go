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
	"github.com/belaydev/belay/internal/sdktest"
	"github.com/belaydev/belay/internal/store/memory"
)

// overHTTP is a Backend at the other end of in-process connections. It is closed
// before the one it speaks to.
type overHTTP struct {
	*client.Client
	behind belay.Backend
}

func (b overHTTP) Close() error {
	if err := b.Client.Close(); err != nil {
		return err
	}
	return b.behind.Close()
}

func serve(t *testing.T, behind belay.Backend) belay.Backend {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	h := httpapi.New(behind, httpapi.Options{Log: quiet})
	c, err := client.Dial(t.Context(), "http://belay.test", client.Dialer(sdktest.Serve(t, h)), client.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	return overHTTP{c, behind}
}

// The suite holds over HTTP, with the store in memory.
func TestHTTPMemory(t *testing.T) {
	sdktest.Run(t, func(t *testing.T) belay.Backend {
		return serve(t, engine.New(memory.New(time.Now), engine.Options{Log: slog.New(slog.DiscardHandler)}))
	})
}

// The suite holds over HTTP, with the store in SQLite.
func TestHTTPSQLite(t *testing.T) {
	sdktest.Run(t, func(t *testing.T) belay.Backend {
		b, err := embedded.Open(t.Context(), "sqlite:"+t.TempDir(), embedded.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		return serve(t, b)
	})
}
