package registry

import (
	"fmt"
	"testing"
)

// BenchmarkRegister registers beside nineteen other workflows.
func BenchmarkRegister(b *testing.B) {
	r, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for i := range 19 {
		if _, err := r.Register(b.Context(), Registration{Name: fmt.Sprint("w", i), Recipe: "a"}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		if _, err := r.Register(b.Context(), Registration{Name: "w", Recipe: "a"}); err != nil {
			b.Fatal(err)
		}
	}
}
