package runner_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// Rule: a document whose workers were lost twice, so that it runs only on a worker that runs nothing else, goes on as
// soon as the task that it waits for has ended.
func TestDocumentLostTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		h := l.start("name: x\ntasks:\n  - {id: a, uses: gate}\n  - {id: b, uses: note, needs: a, with: b}\n")
		for range 2 {
			l.kit.Advance(100 * time.Millisecond)
			l.kit.Crash()
			l.kit.Restart()
		}
		l.kit.Advance(2 * time.Minute)
		began := time.Now()
		close(l.gate)
		if _, err := l.result(h); err != nil || l.noted() != "b" {
			t.Error(err, l.noted())
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("the document went on after %s", d)
		}
	})
}
