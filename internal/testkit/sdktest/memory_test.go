package sdktest_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/testkit/sdktest"
)

// The engine with the store in memory passes the suite.
func TestMemory(t *testing.T) {
	sdktest.Run(t, func(*testing.T) belay.Backend {
		return engine.New(memory.New(time.Now), engine.Options{Log: slog.New(slog.DiscardHandler)})
	})
}
