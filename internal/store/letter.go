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

// Letter is a dead letter with the workflow of its execution.
type Letter struct {
	*machine.DeadLetter
	Workflow string
}

// LetterQuery selects dead letters.
type LetterQuery struct {
	// Open selects only open dead letters, and Execution only those of one execution; a zero Execution
	// means all. A store finds these by an index.
	Open      bool
	Execution belay.ExecutionID
	// Before selects dead letters that are older than this time; 0 means all. A store begins to read
	// there.
	Before machine.Time
	// Matches selects among the dead letters that a store has read; nil selects all.
	Matches func(Letter) bool
	// End reports whether a dead letter is too old to be selected. A store reads the newest dead letters
	// first, so it stops reading at that dead letter. If End is nil, none is too old.
	End func(Letter) bool
	// Scan is the largest number of dead letters that a store reads for one part: 2,000 if it is 0.
	Scan int
}

// Scanned returns the largest number of dead letters that a store reads for one part.
func (q LetterQuery) Scanned() int64 {
	if q.Scan <= 0 {
		return 2000
	}
	return int64(q.Scan)
}

// Letter adds a dead letter if the query selects it, and reports whether the store should read the
// next one.
func (f *Filling) Letter(l Letter, q LetterQuery) bool {
	if q.End != nil && q.End(l) {
		return false
	}
	if int64(f.Examined) >= q.Scanned() || f.rows <= 0 || f.bytes <= 0 {
		f.Next = f.last
		return false
	}
	f.Examined++
	f.last = letterCursor(l.DeadLetter)
	if q.Matches == nil || q.Matches(l) {
		f.room(int64(len(l.Message) + len(l.Workflow)))
		f.Letters = append(f.Letters, l)
	}
	return true
}

// CompareLetters orders dead letters by the time of the failure, the oldest first.
func CompareLetters(a, b *machine.DeadLetter) int {
	return cmp.Or(cmp.Compare(a.At, b.At), bytes.Compare(a.Execution[:], b.Execution[:]),
		cmp.Compare(a.Generation, b.Generation))
}

func letterCursor(d *machine.DeadLetter) string {
	return fmt.Sprintf("%d/%s/%d", d.At, d.Execution, d.Generation)
}

// startLetters returns the last dead letter of the previous part, with only the fields by which dead
// letters are ordered; for the first part it returns one that is newer than all that the query
// selects.
func (q Query) startLetters() (d machine.DeadLetter, err error) {
	if q.After == "" {
		d.At, d.Generation = math.MaxInt64, 0
		if q.Letters.Before != 0 {
			d.At = q.Letters.Before
		}
		return d, nil
	}
	parts := strings.Split(q.After, "/")
	if len(parts) != 3 {
		return d, errCursor
	}
	at, bad := strconv.ParseInt(parts[0], 10, 64)
	id, worse := belay.ParseExecutionID(parts[1])
	generation, worst := strconv.ParseInt(parts[2], 10, 32)
	if bad != nil || worse != nil || worst != nil {
		return d, errCursor
	}
	d.At, d.Execution, d.Generation = machine.Time(at), id, int(generation)
	return d, nil
}
