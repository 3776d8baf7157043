package sqlite

import (
	"strings"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// needed are the columns that an insert always names: they have no default, or a default other than
// 0.
const needed table.Mask = 1<<table.State | 1<<table.Lane | 1<<table.Seq | 1<<table.Generation | 1<<table.InputGen

// everything contains all columns of an execution that change, except RunSeq, which this store does
// not have.
const everything table.Mask = (1<<table.HotCount - 1) &^ (1 << table.RunSeq)

// selectExecutions is the beginning of a query, to which a caller adds a condition. In this store a
// run has a row from its start, so the column RunSeq of the execution is read as 0.
var selectExecutions = "SELECT " + table.Executions.Names() + ", " +
	strings.Join(namesOf(everything&(1<<table.Ints-1)), ", ") + ", 0, " +
	strings.Join(namesOf(everything&^(1<<table.Ints-1)), ", ") + " FROM executions"

// namesOf returns the names of the columns in a set, in order.
func namesOf(m table.Mask) []string {
	var all []string
	for i := range m.All {
		all = append(all, table.Hot[i].Name)
	}
	return all
}

// bindHot adds the columns of a set to the arguments, in order. The arguments for ids refer to the
// memory of the execution and not of h, because the caller may fill h with the next execution
// before the statement runs.
func bindHot(a *args, m table.Mask, h *table.HotRow) {
	for i := range m.All {
		if c := &table.Hot[i]; i < table.Ints {
			a.number(c.Zero, h.Ints[i])
		} else {
			bindColumn(a, c, h.Execution)
		}
	}
}

// scanExecution reads a row of selectExecutions.
func (c *conn) scanExecution(r columns) (*machine.Execution, error) {
	shared, err := table.ParseShared(&c.shared, r.text(table.ExecutionPolicy), r.text(table.ExecutionGates),
		r.text(table.ExecutionNotify))
	if err != nil {
		return nil, err
	}
	e, _ := table.ScanExecution(r, shared)
	return e, nil
}
