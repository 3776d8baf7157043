package engine_test

import (
	"testing"

	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/telemetry"
)

// BenchmarkEngineObserved is BenchmarkEngine with metrics. The difference between the two is the
// cost of the metrics.
func BenchmarkEngineObserved(b *testing.B) {
	benchmark(b, 1, engine.Options{Observe: telemetry.New("", "").Observe})
}
