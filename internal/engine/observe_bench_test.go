package engine_test

import (
	"testing"

	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/telemetry"
)

// BenchmarkEngineObserved is BenchmarkEngine with metrics: compare the two for
// what those cost.
func BenchmarkEngineObserved(b *testing.B) {
	benchmark(b, engine.Options{Observe: telemetry.New("", "").Observe})
}
