package store

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Listing is the kind of a list.
type Listing uint8

// The kinds of lists.
const (
	// Objects lists the objects of Query.Kind in the order of the bytes of their names.
	Objects Listing = iota + 1
	// Trail lists the audit, newest first.
	Trail
	// OneObject is the object with Query.Kind and Query.Name, if it exists. The whole list is one part.
	OneObject
	// OneGate is the gate named by Query.Gate, with up to Limit executions that have a place in it
	// and up to Limit executions that wait for a place. The whole list is one part.
	OneGate
	// NeedingLanes lists the lanes (groups of executions that the same workers may claim) that have a
	// ready execution which fails without a worker (machine.Execution.NeedsWorker), with the earliest
	// time at which such an execution is ready, in the order of the lanes' ids. The whole list is one part.
	NeedingLanes
	// Needing lists the due executions of the lane Query.Lane that fail without a worker. The execution
	// that has been due for longest comes first. The whole list is one part.
	Needing
	// DueLanes lists the lanes that have a due execution which no gate has admitted
	// (machine.Execution.AdmitBy is 0). Each entry has the execution of its lane that has been due for
	// longest; the entries are sorted by that time. The whole list is one part.
	DueLanes
	// Letters lists the dead letters that Query.Letters selects, the newest first. A part may have fewer
	// rows than Limit although further parts have some.
	Letters
	// Runs lists the runs that Query.Runs selects, the run that started last first. A part may have fewer
	// rows than Limit although further parts have some.
	Runs
)

// Query asks for one part of a list.
type Query struct {
	Of   Listing
	Kind machine.ObjectKind
	Name string
	Gate belay.GateID
	Lane machine.LaneID
	// Letters selects dead letters.
	Letters LetterQuery
	// Runs selects runs.
	Runs RunQuery
	// After is the cursor from the previous part, empty for the first part.
	After string
	// Limit is the largest number of rows in the part: 100 if it is 0, and never more than 1,000.
	// Bytes is the approximate largest size of the part; 0 means 1 MiB. A part has at least one
	// row, however large.
	Limit, Bytes int
}

// Found is one part of a list, which answers a Query.
type Found struct {
	Objects []*machine.Object
	Trail   []*machine.Audit
	Gate    GateRow
	Lanes   []LaneHint
	Needing []machine.NoWorker
	Heads   []LaneHead
	Letters []Letter
	Runs    []RunRow
	// Examined is the number of dead letters or runs that the store has read for the part.
	Examined int
	// Next is the cursor for the next part, empty at the end of the list.
	Next string
}

// LaneHead is the execution of a lane that has been due for longest. It has been due since At.
type LaneHead struct {
	Lane      machine.LaneID
	At        machine.Time
	Execution belay.ExecutionID
}

// GateRow is a gate with its counts, with executions that have a place in it, and with executions
// that wait at it.
type GateRow struct {
	Object  *machine.Object // nil if the store has no row for the gate
	Count   machine.GateCount
	Holders []belay.ExecutionID // by id
	Heads   []belay.ExecutionID // in the order in which the gate lets them through
}

// Bounds returns the largest number of rows and bytes of the part.
func (q Query) Bounds() (rows, bytes int64) {
	rows, bytes = int64(min(q.Limit, 1000)), int64(q.Bytes)
	if q.Limit <= 0 {
		rows = 100
	}
	if q.Bytes <= 0 {
		bytes = 1 << 20
	}
	return rows, bytes
}

// Filling is a part of a list while a store fills it row by row.
type Filling struct {
	Found
	rows, bytes int64
	last        string // the cursor of the dead letter or run that was examined last
}

// Fill returns the part that the query requests, still empty.
func (q Query) Fill() *Filling {
	f := &Filling{}
	f.rows, f.bytes = q.Bounds()
	return f
}

// Object adds an object whose body has size bytes, and reports whether the part had room for it. If
// the part has no room, Object does not use o, so the store may pass an object without its body.
func (f *Filling) Object(o *machine.Object, size int64) bool {
	if !f.room(size) {
		f.Next = f.Objects[len(f.Objects)-1].Name
		return false
	}
	f.Objects = append(f.Objects, o)
	return true
}

// Audit adds a row of the audit, and reports whether the part had room for it.
func (f *Filling) Audit(a *machine.Audit) bool {
	if !f.room(int64(len(a.Reason))) {
		f.Next = TrailCursor(f.Trail[len(f.Trail)-1])
		return false
	}
	f.Trail = append(f.Trail, a)
	return true
}

func (f *Filling) room(size int64) bool {
	if f.rows <= 0 || f.bytes <= 0 {
		return false
	}
	f.rows, f.bytes = f.rows-1, f.bytes-size-RowBytes
	return true
}

// TrailCursor is the cursor of a row of the audit. The name comes last, because a name, unlike a
// kind, may contain a slash.
func TrailCursor(a *machine.Audit) string {
	return fmt.Sprintf("%d/%d/%s/%s", a.At, a.Version, a.Kind, a.Name)
}

// Last is the last row of the previous part of a list, with only the fields by which the list is
// ordered. For the first part it is a row that is newer than all others.
type Last struct {
	Audit  machine.Audit
	Letter machine.DeadLetter
	Run    machine.Run
}

// Start checks the query and returns the last row of the previous part.
func (q Query) Start() (last Last, err error) {
	switch q.Of {
	case Objects, OneObject, OneGate, NeedingLanes, Needing, DueLanes:
	case Letters:
		last.Letter, err = q.startLetters()
	case Runs:
		last.Run, err = q.startRuns()
	case Trail:
		last.Audit, err = q.startTrail()
	default:
		err = &belay.Error{
			Code: belay.CodeInternal, Op: "list", Message: "there is no list " + strconv.Itoa(int(q.Of)),
		}
	}
	return last, err
}

func (q Query) startTrail() (a machine.Audit, err error) {
	if q.After == "" {
		a.At = math.MaxInt64
		return a, nil
	}
	parts := strings.SplitN(q.After, "/", 4)
	if len(parts) != 4 {
		return a, errCursor
	}
	at, bad := strconv.ParseInt(parts[0], 10, 64)
	version, worse := strconv.ParseInt(parts[1], 10, 64)
	if bad != nil || worse != nil || !utf8.ValidString(q.After) || strings.ContainsRune(q.After, 0) {
		return a, errCursor
	}
	a.At, a.Kind, a.Name, a.Version = machine.Time(at), machine.ObjectKind(parts[2]), parts[3], version
	return a, nil
}

var errCursor = &belay.Error{Code: belay.CodeInvalid, Op: "list", Message: "the cursor is not from a list"}

// All lists all objects of a kind, part by part. Each part is read in a snapshot of its own.
func All(ctx context.Context, s Store, kind machine.ObjectKind) ([]*machine.Object, error) {
	var all []*machine.Object
	for q := (Query{Of: Objects, Kind: kind, Limit: 1000}); ; {
		part, err := s.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, part.Objects...)
		if part.Next == "" {
			return all, nil
		}
		q.After = part.Next
	}
}
