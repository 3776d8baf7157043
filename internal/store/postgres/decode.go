package postgres

import (
	"encoding/binary"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// columns are the values of one row, in binary. NULL reads as zero.
type columns [][]byte

// int reads an integer or boolean of any width.
func (c columns) int(i int) int64 {
	switch v := c[i]; len(v) {
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v)))
	case 1:
		return int64(v[0])
	}
	return 0
}

func (c columns) time(i int) machine.Time { return machine.Time(c.int(i)) }
func (c columns) bool(i int) bool         { return c.int(i) != 0 }
func (c columns) text(i int) string       { return string(c[i]) }

// blob returns a copy of a value, which is nil if the value is empty.
func (c columns) blob(i int) []byte { return append([]byte(nil), c[i]...) }

func (c columns) id(i int) (id [16]byte) {
	copy(id[:], c[i])
	return id
}

// interner keeps one copy of each text that occurs in many rows.
type interner map[string]string

func (w *interner) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := (*w)[string(b)]; ok {
		return s
	}
	if *w == nil || len(*w) >= 1000 {
		*w = make(interner)
	}
	s := string(b)
	(*w)[s] = s
	return s
}

// stored is an execution as the database has it.
type stored struct {
	*machine.Execution
	runSeq int64 // seq of the start of the execution's present run, if that run has no row
}

// run returns the present run of the execution, if the table of runs has no row for it.
func (s stored) run() *machine.Run {
	if s.runSeq == 0 {
		return nil
	}
	return &machine.Run{
		Execution: s.ID, Token: s.Token, Worker: s.Worker, Attempt: s.Attempts + 1, Generation: s.Generation,
		StartedSeq: s.runSeq, StartedAt: s.RunAt,
	}
}

// Int and the methods after it implement table.Row.
func (c columns) Int(i int) int64   { return c.int(i) }
func (c columns) Text(i int) string { return c.text(i) }
func (c columns) Word(i int) string { return c.text(i) }
func (c columns) Raw(i int) []byte  { return c[i] }
func (c columns) Blob(i int) []byte { return c.blob(i) }

// internedRow is a row whose repeated texts share one copy in memory.
type internedRow struct {
	columns
	interner *interner
}

func (r internedRow) Word(i int) string { return r.interner.text(r.columns[i]) }

// scan reads an execution from a row that begins with its columns.
func (c *conn) scan(r columns) (stored, error) {
	shared, err := table.ParseShared(&c.shared, r[table.ExecutionPolicy], r[table.ExecutionGates],
		r[table.ExecutionNotify])
	if err != nil {
		return stored{}, err
	}
	e, runSeq := table.ScanExecution(internedRow{r, &c.interner}, shared)
	return stored{e, runSeq}, nil
}
