package store

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// RunRow is a run that has started, without its output and the stack of its error, and with the
// workflow of its execution.
type RunRow struct {
	*machine.Run
	Workflow string
}

// RunQuery selects runs that have started.
type RunQuery struct {
	// Before selects runs that started before this time; 0 means all. A store begins to read there.
	Before machine.Time
	// Matches selects among the runs that a store has read; nil selects all.
	Matches func(RunRow) bool
	// End reports whether a run started too early to be selected. A store reads the newest runs first,
	// so it stops reading at that run. If End is nil, no run is too early.
	End func(RunRow) bool
	// Scan is the largest number of runs that a store reads for one part: 2,000 if it is 0.
	Scan int
}

// Scanned returns the largest number of runs that a store reads for one part.
func (q RunQuery) Scanned() int64 {
	if q.Scan <= 0 {
		return 2000
	}
	return int64(q.Scan)
}

// Read returns the number of runs that a store reads for a part with the given number of rows: one
// more than it may use, to find out whether there is a next part.
func (q RunQuery) Read(rows int64) int64 {
	if q.Matches != nil {
		rows = q.Scanned()
	}
	return rows + 1
}

// Run adds a run if the query selects it, and reports whether the store should read the next one.
func (f *Filling) Run(r RunRow, q RunQuery) bool {
	if q.End != nil && q.End(r) {
		return false
	}
	if int64(f.Examined) >= q.Scanned() || f.rows <= 0 || f.bytes <= 0 {
		f.Next = f.last
		return false
	}
	f.Examined++
	f.last = runCursor(r.Run)
	if q.Matches == nil || q.Matches(r) {
		f.room(int64(len(r.Message) + len(r.Workflow)))
		f.Runs = append(f.Runs, r)
	}
	return true
}

// CompareRuns orders runs by the time of their start, the oldest first.
func CompareRuns(a, b *machine.Run) int {
	return cmp.Or(cmp.Compare(a.StartedAt, b.StartedAt), bytes.Compare(a.Execution[:], b.Execution[:]),
		cmp.Compare(a.Token, b.Token))
}

func runCursor(r *machine.Run) string {
	return fmt.Sprintf("%d/%s/%d", r.StartedAt, r.Execution, r.Token)
}

// startRuns returns the last run of the previous part, with only the fields by which runs are ordered;
// for the first part it returns one that started later than all that the query selects.
func (q Query) startRuns() (r machine.Run, err error) {
	if q.After == "" {
		r.StartedAt = math.MaxInt64
		if q.Runs.Before != 0 {
			r.StartedAt = q.Runs.Before
		}
		return r, nil
	}
	parts := strings.Split(q.After, "/")
	if len(parts) != 3 {
		return r, errCursor
	}
	at, bad := strconv.ParseInt(parts[0], 10, 64)
	id, worse := belay.ParseExecutionID(parts[1])
	token, worst := strconv.ParseInt(parts[2], 10, 64)
	if bad != nil || worse != nil || worst != nil {
		return r, errCursor
	}
	r.StartedAt, r.Execution, r.Token = machine.Time(at), id, belay.Token(token)
	return r, nil
}
