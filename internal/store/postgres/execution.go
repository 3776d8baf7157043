package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

const everything table.Mask = 1<<table.HotCount - 1

// shape is a set of columns that are written together, with the statement that writes them. There
// are few shapes, so that there are few prepared statements. A row is written with the first shape
// that has all its changed columns.
type shape struct {
	mask table.Mask
	text string
}

var updates = []shape{
	// the columns that a checkpoint changes
	updating(table.MaskOf(table.Seq, table.CheckAt, table.Checkpointed, table.Losses, table.StateSeq, table.Cost,
		table.CostRest, table.ProgressAt)),
	updating(table.MaskOf(table.State, table.ReadyAt, table.DueAt, table.CheckAt, table.Seq, table.Token, table.ClaimNo,
		table.RunSeq,
		// a claim
		table.StartedAt, table.RunAt, table.ProgressAt, table.Reason, table.ReasonText, table.Worker, table.Secret)),
	updating(table.MaskOf(table.State, table.ReadyAt, table.DueAt, table.CheckAt, table.Seq, table.ClaimNo,
		table.RunSeq, table.Cost, table.CostRest,
		table.Attempts, table.Losses, table.RunAt, table.FinishedAt, table.Reason, table.ReasonText, table.Worker,
		table.Secret,
		table.Class, table.Message, table.FailedBy)), // the columns that the end of a run changes
	updating(everything),
}

func updating(m table.Mask) shape {
	columns := append(hotColumns(m), table.Executions.Columns[0]) // the id, by which the statement finds the row
	t := &table.Table[machine.Execution]{Name: "executions", Columns: columns}
	return shape{m, update(t, "id")}
}

// inserts are the shapes of new rows: the columns that a submission sets; these columns and those
// that a claim sets; and all columns.
var inserts = []shape{inserting(submitted), inserting(submitted | claimed), inserting(everything)}

var (
	submitted = table.MaskOf(table.State, table.ReadyAt, table.Lane, table.DueAt, table.CheckAt, table.Seq,
		table.Generation, table.InputGen)
	claimed = table.MaskOf(table.Token, table.ClaimNo, table.RunSeq, table.StartedAt, table.RunAt, table.ProgressAt,
		table.Reason,
		table.ReasonText, table.Worker, table.Secret)
)

func inserting(m table.Mask) shape {
	columns := slices.Concat(table.Executions.Columns, hotColumns(m))
	return shape{m, insert(&table.Table[machine.Execution]{Name: "executions", Columns: columns})}
}

func hotColumns(m table.Mask) (all []table.Column[machine.Execution]) {
	for i := range m.All {
		all = append(all, table.Hot[i])
	}
	return all
}

// fitting returns the first shape that has all columns of a set.
func fitting(shapes []shape, m table.Mask) int {
	for i, s := range shapes {
		if m&^s.mask == 0 {
			return i
		}
	}
	return len(shapes) - 1
}

// executionColumns are all columns of executions, in the order in which scan reads them, with the
// prefix e.
var executionColumns = func() string {
	whole := table.Table[machine.Execution]{Columns: slices.Concat(table.Executions.Columns, table.Hot[:])}
	return "e." + strings.ReplaceAll(whole.Names(), ", ", ", e.")
}()

// executionCount is the number of columns of an execution.
var executionCount = len(table.Executions.Columns) + table.HotCount

// bindHot adds the columns of a set to a statement's arguments.
func bindHot(s *step, m table.Mask, rows []*table.HotRow) {
	for i := range m.All {
		c := &table.Hot[i]
		if i >= table.Ints {
			bindColumn(s, c, rows, func(h *table.HotRow) *machine.Execution { return h.Execution })
			continue
		}
		k := integerOf(c.Kind, c.Zero)
		a, some := s.array(k.oid, len(rows), k.width), k.zero
		for _, h := range rows {
			if v := h.Ints[i]; v == 0 && !k.zero {
				a = a.null()
			} else {
				a, some = a.int(v, k.width), true
			}
		}
		s.column(a, k.oid, some)
	}
}

// casts are the array types of the kinds of columns.
var casts = map[table.Kind]string{
	table.Boolean: "boolean[]", table.Int2: "smallint[]", table.Int4: "integer[]", table.Int8: "bigint[]",
	table.String: "text[]", table.UUID: "uuid[]", table.Bytes: "bytea[]",
}

// arrayArguments returns SQL text that lists the columns of a table. The statement has one argument
// for each column: an array with the column's value in each row.
func arrayArguments[R any](t *table.Table[R]) string {
	list := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		list[i] = fmt.Sprintf("unnest($%d::%s) AS %s", i+1, casts[c.Kind], c.Name)
	}
	return strings.Join(list, ", ")
}

// insert is the statement that adds rows to a table.
func insert[R any](t *table.Table[R]) string {
	return "INSERT INTO " + t.Name + " (" + t.Names() + ") SELECT " + arrayArguments(t)
}

// update is the statement that changes rows of a table. The last columns of t name the row.
func update[R any](t *table.Table[R], named string) string {
	set, where := []string{}, []string{}
	for i, n := 0, len(t.Columns)-1-strings.Count(named, ","); i < len(t.Columns); i++ {
		if c := t.Columns[i].Name; i < n {
			set = append(set, c+" = u."+c)
		} else {
			where = append(where, "t."+c+" = u."+c)
		}
	}
	return "UPDATE " + t.Name + " t SET " + strings.Join(set, ", ") + " FROM (SELECT " +
		arrayArguments(t) + ") u WHERE " +
		strings.Join(where, " AND ")
}
