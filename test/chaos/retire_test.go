package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/belaydev/belay"
)

// retired is the result of the last part of a run: after everything else has been read, a short
// retention is turned on and servers are killed while they delete.
type retired struct {
	Ended   int                 `json:"ended"`   // executions that had to be deleted
	Left    int                 `json:"left"`    // executions that exist at the end
	Waiting []belay.ExecutionID `json:"waiting"` // executions that had to stay, since they have not ended
	Missing []belay.ExecutionID `json:"missing"` // executions that had to stay but do not exist
	Orphans map[string]int      `json:"orphans"` // rows of executions that do not exist, by table
	Took    time.Duration       `json:"took"`
}

// shortRetention is the retention. staying is the number of executions that wait and must stay. All
// other executions must be deleted in the time retiring, and retiringEach more for each execution.
const (
	shortRetention = time.Second
	staying        = 20
	retiring       = time.Minute
	retiringEach   = 5 * time.Millisecond
)

// rows lists the tables that contain rows of executions.
var rows = []string{"runs", "checkpoints", "signals", "actions", "dead_letters", "specs", "blobs", "blob_sums"}

// retire starts the servers again with a short retention, which also applies to executions with an
// open dead letter. It kills the servers while they delete executions, and waits until only
// executions that have not ended are left.
func (w *world) retire(ctx context.Context, r *record) error {
	x := &retired{Ended: len(r.Tales), Orphans: make(map[string]int)}
	r.Retired = x
	for range staying {
		s := belay.Submission{ID: newExecutionID(), Workflow: "waits for nobody"}
		if got, err := w.servers[0].client.Submit(ctx, s); err != nil || got[0].Err != nil {
			return fmt.Errorf("submit an execution that must stay: %w", err)
		}
		x.Waiting = append(x.Waiting, s.ID)
	}
	for _, s := range w.servers {
		short := shortRetention.String()
		s.args = []string{"--retention", short, "--dead-letter-retention", short}
	}
	began := time.Now()
	rng := dice(w.seed, "retention")
	for n := 0; time.Since(began) < retiring+time.Duration(x.Ended)*retiringEach; n++ {
		if n < 3 {
			for _, s := range w.servers {
				s.proc.signal(syscall.SIGKILL)
				<-s.proc.done
			}
			for _, s := range w.servers {
				if err := s.start(ctx); err != nil {
					return err
				}
			}
			w.fault("servers killed while they deleted")
			_ = pause(ctx, between(rng, 100*time.Millisecond, shortRetention))
		}
		if text, err := w.query("SELECT count(*) FROM executions"); err == nil {
			x.Left, _ = strconv.Atoi(text)
		}
		if x.Left <= staying && n >= 3 {
			break
		}
		_ = pause(ctx, 100*time.Millisecond)
	}
	x.Took = time.Since(began)
	for _, id := range x.Waiting {
		if e, err := w.servers[0].client.Execution(ctx, id); err != nil || e.State != belay.Pending {
			x.Missing = append(x.Missing, id)
		}
	}
	for _, table := range rows {
		text, err := w.query("SELECT count(*) FROM " + table + " WHERE execution NOT IN (SELECT id FROM executions)")
		if err != nil {
			return err
		}
		if n, _ := strconv.Atoi(text); n > 0 {
			x.Orphans[table] = n
		}
	}
	return nil
}

// end ends the servers gracefully.
func (w *world) end() {
	for _, s := range w.servers {
		s.proc.signal(syscall.SIGTERM)
		s.proc.end(40 * time.Second)
	}
}

// retention checks that ended executions are deleted completely after the retention, however often
// servers die during the deletion, and that executions that have not ended stay.
func retention(f *finding) {
	x := f.Retired
	if x == nil {
		return
	}
	f.Looked += x.Ended
	if x.Left != len(x.Waiting) {
		f.Violation(nil, "%d executions are left after %s, and %d have not ended", x.Left, x.Took.Round(time.Second),
			len(x.Waiting))
	}
	for _, id := range x.Missing {
		f.Violation(nil, "%s had not ended and is missing or changed", id)
	}
	for _, table := range slices.Sorted(maps.Keys(x.Orphans)) {
		f.Violation(nil, "%d rows of %s belong to no execution", x.Orphans[table], table)
	}
}

// retentionMutants are the planted bugs for the checker of the retention.
var retentionMutants = []mutant{
	{"execution that is never deleted", "retention", func(p *planting) bool {
		p.record.Retired.Left++
		return true
	}, ""},
	{"execution deleted before its end", "retention", func(p *planting) bool {
		p.record.Retired.Missing = append(p.record.Retired.Missing, p.record.Retired.Waiting[0])
		return true
	}, ""},
	{"execution deleted by half", "retention", func(p *planting) bool {
		p.record.Retired.Orphans = map[string]int{"runs": 1}
		return true
	}, ""},
}
