package postgres

import (
	"fmt"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// Each statement reads the columns of its table. The statements whose names end in Heads read NULL
// instead of the payload.
var (
	selectWorkers         = "SELECT " + table.WorkerColumns + " FROM workers"
	selectRuns            = selecting(table.Runs)
	selectRunHeads        = heads(table.Runs)
	selectCheckpoints     = selecting(table.Checkpoints)
	selectCheckpointHeads = heads(table.Checkpoints)
	selectSignals         = selecting(table.Signals)
	selectSignalHeads     = heads(table.Signals)
	selectDeeds           = selecting(table.Deeds)
	selectChunkHeads      = heads(table.Chunks)

	// The selects of specs read one more column: whether the input was left out.
	specHeads   = table.Specs.First(-2).Names()
	specColumns = specHeads + ", trigger_payload, input, false"
	noPayload   = specHeads + ", NULL::bytea, NULL::bytea, false"
	carriedSpec = fmt.Sprintf(specHeads+
		", NULL::bytea, CASE WHEN octet_length(input) <= %[1]d THEN input END, octet_length(input) > %[1]d",
		machine.MaxCarried)
)

func selecting[R any](t *table.Table[R]) string { return "SELECT " + t.Names() + " FROM " + t.Name }

func heads[R any](t *table.Table[R]) string {
	return "SELECT " + t.First(-1).Names() + ", NULL::bytea FROM " + t.Name
}

// into returns a function that reads a row of a table and appends it to a list.
func into[R any](t *table.Table[R], all *[]*R) func(columns) error {
	return table.Into[R, columns](t, all)
}

// values is like into, for a list of structs instead of pointers.
func values[R any](t *table.Table[R], all *[]R) func(columns) error {
	return table.Values[R, columns](t, all)
}

func (c *conn) scanWorker(r columns) (*machine.Worker, error) {
	spec, err := table.Parse(&c.specs, "the spec of a worker", r[table.WorkerSpec])
	if err != nil {
		return nil, err
	}
	return table.ScanWorker(r, spec)
}

func scanSpec(r columns) (*machine.Spec, error) {
	s, err := table.Scan(table.Specs, r)
	if err == nil {
		s.Large = r.bool(len(table.Specs.Columns))
	}
	return s, err
}
