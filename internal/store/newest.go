package store

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Lower replaces the letters A to Z by a to z, and no others, as both databases can.
func Lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

// Newest selects rows of a list that a store reads from the newest row on. R is the type of a row.
type Newest[R any] struct {
	// Before selects rows that are older than this time, and Since rows that are not older than this
	// time; 0 means all. A store reads no other rows.
	Before, Since machine.Time
	// Matches selects among the rows that a store has read; nil selects all.
	Matches func(R) bool
	// Scan is the largest number of rows that a store reads for one part: 2,000 if it is 0.
	Scan int
}

// Scanned returns the largest number of rows that a store reads for one part.
func (q Newest[R]) Scanned() int64 {
	if q.Scan <= 0 {
		return 2000
	}
	return int64(q.Scan)
}

// Read returns the number of rows that a store reads for a part that may have the given number of
// rows: one more than it may use, to find out whether there is a next part.
func (q Newest[R]) Read(rows int64) int64 {
	if q.Matches != nil {
		rows = q.Scanned()
	}
	return rows + 1
}

// examine reports whether the query selects a row, and whether the store should read the next one.
// The place is the place of the row in the list.
func examine[R any](f *Filling, q Newest[R], r R, at place, size int64) (selected, more bool) {
	if at.at < q.Since {
		return false, false
	}
	if int64(f.Examined) >= q.Scanned() || f.rows <= 0 || f.bytes <= 0 {
		f.Next = f.last
		return false, false
	}
	f.Examined++
	f.last = at.cursor()
	if q.Matches != nil && !q.Matches(r) {
		return false, true
	}
	f.room(size)
	return true, true
}

// place is the place of a dead letter or a run in its list: its time, its execution, and its
// generation or token.
type place struct {
	at        machine.Time
	execution belay.ExecutionID
	number    int64
}

func (p place) cursor() string { return fmt.Sprintf("%d/%s/%d", p.at, p.execution, p.number) }

// placeOf returns the place of a cursor. If there is no cursor, it returns the place after all rows
// that are older than a given time.
func placeOf(cursor string, before machine.Time) (p place, err error) {
	if cursor == "" {
		p.at = math.MaxInt64
		if before != 0 {
			p.at = before
		}
		return p, nil
	}
	parts := strings.Split(cursor, "/")
	if len(parts) != 3 {
		return p, errCursor
	}
	at, bad := strconv.ParseInt(parts[0], 10, 64)
	id, worse := belay.ParseExecutionID(parts[1])
	number, worst := strconv.ParseInt(parts[2], 10, 64)
	if bad != nil || worse != nil || worst != nil {
		return p, errCursor
	}
	return place{machine.Time(at), id, number}, nil
}
