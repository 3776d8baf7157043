package belay

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// Rule: the measure pages fills both stores, and gets a right answer from every page.
func TestPagesOfASmallStore(t *testing.T) {
	const requests = 3
	binary := filepath.Join(t.TempDir(), "belay")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/belay")
	build.Dir = "../../.."
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build belay: %v: %s", err, text)
	}
	for name, url := range map[string]func(t *testing.T, dir string) string{
		"sqlite":   func(_ *testing.T, dir string) string { return "sqlite:" + dir },
		"postgres": func(t *testing.T, _ string) string { return pgtest.Shared(t).Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := pages(t.Context(), trial.Request{
				Variant: trial.HTTP, Measure: trial.Pages, N: 2000, Workers: 3, Requests: requests, Belay: binary,
				Dir: dir, URL: url(t, dir),
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Values["executions"]; got < 2200 {
				t.Errorf("%v executions", got)
			}
			for _, p := range s.Parts {
				if p.Alone.N != requests || p.Beside.N != requests || p.Bytes == 0 || p.Failed > 0 {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}
