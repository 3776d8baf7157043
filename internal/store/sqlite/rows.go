package sqlite

import (
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

// Each statement reads the columns of its table; the caller adds a condition. The statements whose
// names end in Heads read NULL instead of the payload.
var (
	selectWorkers   = "SELECT " + table.WorkerColumns + " FROM workers"
	selectRuns      = selecting(table.Runs)
	selectRunHeads  = heads(table.Runs)
	selectSmallRuns = "SELECT " + table.Runs.First(-1).Names() +
		", CASE WHEN length(output) <= ? THEN output END FROM runs"
	selectCheckpoints     = selecting(table.Checkpoints)
	selectCheckpointHeads = heads(table.Checkpoints)
	selectSignals         = selecting(table.Signals)
	selectSignalHeads     = heads(table.Signals)
	selectDeeds           = selecting(table.Deeds)
	selectChunks          = selecting(table.Chunks)
	selectChunkHeads      = heads(table.Chunks)
	selectSums            = selecting(table.Sums)

	// The selects of specs read one more column: whether the input was left out.
	specHeads       = table.Specs.First(-2).Names()
	selectSpecs     = "SELECT " + specHeads + ", trigger_payload, input, 0 FROM specs"
	selectSpecHeads = "SELECT " + specHeads + ", NULL, NULL, 0 FROM specs"
	selectCarried   = fmt.Sprintf("SELECT "+specHeads+
		", NULL, CASE WHEN length(input) <= %[1]d THEN input END, coalesce(length(input) > %[1]d, 0) FROM specs",
		machine.MaxCarried)
)

func selecting[R any](t *table.Table[R]) string { return "SELECT " + t.Names() + " FROM " + t.Name }

func heads[R any](t *table.Table[R]) string {
	return "SELECT " + t.First(-1).Names() + ", NULL FROM " + t.Name
}

// into returns a function that reads a row of a table and appends it to a list.
func into[R any](t *table.Table[R], all *[]*R) func(columns) error {
	return table.Into[R, columns](t, all)
}

// values is like into, for a list of structs instead of pointers.
func values[R any](t *table.Table[R], all *[]R) func(columns) error {
	return table.Values[R, columns](t, all)
}

func scanWorker(r columns, specs *table.Parsed[belay.WorkerSpec]) (*machine.Worker, error) {
	spec, err := table.Parse(specs, "the spec of a worker", r.text(table.WorkerSpec))
	if err != nil {
		return nil, err
	}
	return table.ScanWorker(r, spec)
}

func scanSpec(r columns) (*machine.Spec, error) {
	s, err := table.Scan(table.Specs, r)
	if err == nil {
		s.Large = r.int(len(r)-1) != 0
	}
	return s, err
}
