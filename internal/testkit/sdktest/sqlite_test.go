package sdktest_test

import (
	"log/slog"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/testkit/sdktest"
)

// The engine with the store in SQLite passes the suite.
func TestSQLite(t *testing.T) {
	sdktest.Run(t, func(t *testing.T) belay.Backend {
		b, err := embedded.Open(t.Context(), "sqlite:"+t.TempDir(), embedded.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}, sdktest.Part...)
}
