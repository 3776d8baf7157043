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

// retired is what became of everything when a short retention was turned on, after all
// else had been read, while servers were killed.
type retired struct {
	Ended   int                 `json:"ended"`   // executions that were to go
	Left    int                 `json:"left"`    // executions that are there at the end
	Waiting []belay.ExecutionID `json:"waiting"` // those that were to stay, since they have not ended
	Missing []belay.ExecutionID `json:"missing"` // those of them that are not there
	Orphans map[string]int      `json:"orphans"` // rows of executions that are not there, by table
	Took    time.Duration       `json:"took"`
}

// The retention, how many executions wait and must stay, and how long it may take for
// everything else to go: in all, and for each.
const (
	shortRetention = time.Second
	staying        = 20
	retiring       = time.Minute
	retiringEach   = 5 * time.Millisecond
)

// rows are the tables with rows of executions.
var rows = []string{"runs", "checkpoints", "signals", "actions", "dead_letters", "specs", "blobs", "blob_sums"}

// retire starts the servers again with a short retention, kills them while they delete,
// and waits until nothing is left but what has not ended.
func (w *world) retire(ctx context.Context, r *record) error {
	x := &retired{Ended: len(r.Tales), Orphans: make(map[string]int)}
	r.Retired = x
	for range staying {
		s := belay.Submission{ID: newExecutionID(), Workflow: "waits for nobody"}
		if got, err := w.servers[0].client.Submit(ctx, s); err != nil || got[0].Err != nil {
			return fmt.Errorf("submit what is to stay: %w", err)
		}
		x.Waiting = append(x.Waiting, s.ID)
	}
	for _, s := range w.servers {
		s.args = []string{"--retention", shortRetention.String()}
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

// end ends the servers in order.
func (w *world) end() {
	for _, s := range w.servers {
		s.proc.signal(syscall.SIGTERM)
		s.proc.end(40 * time.Second)
	}
}

// retention: what has ended is deleted after the retention, whole, however often
// servers die meanwhile; what has not ended stays.
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
		f.Violation(nil, "%s had not ended and is not there as it was", id)
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
