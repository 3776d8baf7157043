package engine

import (
	"log/slog"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// witness logs a warning for each execution that a time limit, the loss of its owner or the lack of
// workers has ended. Many executions may end in one second, when all workers are lost; the witness
// then logs witnessLines of them, and afterwards the number of the others.
type witness struct {
	log *slog.Logger

	mu      sync.Mutex
	second  machine.Time // the begin of the second to which the counts belong
	logged  int          // lines in that second
	skipped int          // executions in that second that have no line
}

// witnessLines is the maximum number of executions that the witness logs in one second.
const witnessLines = 20

// observe logs the executions that ended with the batch.
func (w *witness) observe(b *batch) {
	now := b.rows.Now
	for _, e := range b.changes.Executions {
		if e.State == belay.Failed && e.FinishedAt == now && e.FailedBy != 0 && w.may(now) {
			w.log.Warn("an execution was ended", "execution", e.ID, "workflow", e.Workflow, "queue", e.Queue,
				"token", e.Token, "error_class", e.Class.String(), "error", e.Message, "failed_by", e.FailedBy.String())
		}
	}
}

func (*witness) onHint(store.Hint) {}

// may reports whether the second has room for another line. At the begin of a new second it logs
// how many executions of the second before have no line.
func (w *witness) may(now machine.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.second) >= time.Second || now < w.second {
		if w.skipped > 0 {
			w.log.Warn("more executions were ended than are logged in one second", "not_logged", w.skipped)
		}
		w.second, w.logged, w.skipped = now, 0, 0
	}
	if w.logged == witnessLines {
		w.skipped++
		return false
	}
	w.logged++
	return true
}
