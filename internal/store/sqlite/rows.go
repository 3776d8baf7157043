package sqlite

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Each select is followed by a condition and read by the function after it.

const (
	workerColumns = "id, state, opened_at, heartbeat_at, expires_at, ended_at, end_reason, claim_no, claim_floor, spec"
	selectWorkers = "SELECT " + workerColumns + " FROM workers"
)

func scanWorker(r columns, specs *parsed[belay.WorkerSpec]) (*machine.Worker, error) {
	spec, err := specs.parse("the spec of a worker", r.text(9))
	if err != nil {
		return nil, err
	}
	x := &machine.Worker{
		ID: r.id(0), State: belay.WorkerState(r.int(1)), OpenedAt: machine.Time(r.int(2)), HeartbeatAt: machine.Time(r.int(3)),
		ExpiresAt: machine.Time(r.int(4)), EndedAt: machine.Time(r.int(5)), EndReason: r.text(6), ClaimNo: r.int(7), ClaimFloor: r.int(8),
	}
	if spec != nil {
		x.Spec = *spec
	}
	return x, nil
}

const specColumns = "execution, generation, hash, priority, trigger, key, labels, worker_labels"

var (
	selectSpecs = "SELECT " + specColumns + ", input, 0 FROM specs"

	// Large inputs are left out.
	selectCarried = fmt.Sprintf("SELECT "+specColumns+", CASE WHEN length(input) <= %[1]d THEN input END, coalesce(length(input) > %[1]d, 0) FROM specs", machine.MaxCarried)
)

func scanSpec(r columns) (*machine.Spec, error) {
	s := &machine.Spec{
		Execution: r.id(0), Generation: int(r.int(1)), Hash: r.hash(2), Priority: int(r.int(3)),
		Trigger: belay.Trigger(r.text(4)), Key: r.text(5), Input: r.blob(8),
		Large: r.int(9) != 0,
	}
	var err error
	if s.Labels, err = parseLabels(r.text(6)); err != nil {
		return nil, err
	}
	s.WorkerLabels, err = parseLabels(r.text(7))
	return s, err
}

const (
	runColumns = "execution, token, worker, attempt, generation, scheduled_seq, scheduled_at, started_seq, started_at, " +
		"ended_seq, ended_at, outcome, final, op, cost, class, message, stack, input_hash, config_hash, op_sum"
	selectRuns     = "SELECT " + runColumns + ", output FROM runs"
	selectRunHeads = "SELECT " + runColumns + ", NULL FROM runs"
)

func scanRun(r columns) *machine.Run {
	return &machine.Run{
		Execution: r.id(0), Token: belay.Token(r.int(1)), Worker: r.id(2), Attempt: int(r.int(3)), Generation: int(r.int(4)),
		ScheduledSeq: r.int(5), ScheduledAt: machine.Time(r.int(6)), StartedSeq: r.int(7), StartedAt: machine.Time(r.int(8)),
		EndedSeq: r.int(9), EndedAt: machine.Time(r.int(10)), Outcome: belay.Outcome(r.int(11)), Final: r.int(12) != 0,
		Op: r.id(13), Cost: r.int(14), Class: belay.Class(r.int(15)), Message: r.text(16), Stack: r.text(17),
		InputHash: r.blob(18), ConfigHash: r.blob(19), OpSum: r.id(20), Output: r.blob(21),
	}
}

const (
	checkpointColumns     = "execution, seq, kind, key, token, op, at, cost, pruned, op_sum"
	selectCheckpoints     = "SELECT " + checkpointColumns + ", data FROM checkpoints"
	selectCheckpointHeads = "SELECT " + checkpointColumns + ", NULL FROM checkpoints"
)

func scanCheckpoint(r columns) *machine.Checkpoint {
	return &machine.Checkpoint{
		Execution: r.id(0), Seq: r.int(1), Kind: belay.CheckpointKind(r.int(2)), Key: r.text(3), Token: belay.Token(r.int(4)),
		Op: r.id(5), At: machine.Time(r.int(6)), Cost: r.int(7), Pruned: r.int(8) != 0, OpSum: r.id(9), Data: r.blob(10),
	}
}

const (
	signalColumns     = "execution, seq, name, child, op, at, consumed_by, op_sum"
	selectSignals     = "SELECT " + signalColumns + ", payload FROM signals"
	selectSignalHeads = "SELECT " + signalColumns + ", NULL FROM signals"
)

func scanSignal(r columns) *machine.Signal {
	return &machine.Signal{
		Execution: r.id(0), Seq: r.int(1), Name: r.text(2), Child: r.id(3), Op: r.id(4), At: machine.Time(r.int(5)),
		ConsumedBy: r.int(6), OpSum: r.id(7), Payload: r.blob(8),
	}
}

const selectDeeds = "SELECT execution, seq, kind, actor, reason, op, at, token, final, op_sum FROM actions"

func scanDeed(r columns) *machine.Deed {
	return &machine.Deed{
		Execution: r.id(0), Seq: r.int(1), Kind: r.text(2), Actor: r.text(3), Reason: r.text(4), Op: r.id(5),
		At: machine.Time(r.int(6)), Token: belay.Token(r.int(7)), Final: r.int(8) != 0, OpSum: r.id(9),
	}
}

const (
	chunkColumns     = "execution, name, n, token, hash, size, at"
	selectChunks     = "SELECT " + chunkColumns + ", data FROM blobs"
	selectChunkHeads = "SELECT " + chunkColumns + ", NULL FROM blobs"
)

func scanChunk(r columns) machine.Chunk {
	return machine.Chunk{
		ChunkRef: machine.ChunkRef{Execution: r.id(0), Name: r.text(1), N: r.int(2)},
		Token:    belay.Token(r.int(3)), Hash: r.hash(4), Size: r.int(5), At: machine.Time(r.int(6)), Data: r.blob(7),
	}
}

const (
	sumColumns = "execution, name, bytes, token, own, log"
	selectSums = "SELECT " + sumColumns + " FROM blob_sums"
)

func scanSum(r columns) *machine.Sum {
	return &machine.Sum{
		SumRef: machine.SumRef{Execution: r.id(0), Name: r.text(1)},
		Bytes:  r.int(2), Token: belay.Token(r.int(3)), Own: r.int(4), Log: r.int(5) != 0,
	}
}

func parseLabels(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var labels map[string]string
	if err := json.Unmarshal([]byte(text), &labels); err != nil {
		return nil, fmt.Errorf("read labels: %w", err)
	}
	return labels, nil
}

// labelsText is labels as they are stored; empty for none.
func labelsText(labels map[string]string) (string, error) {
	if len(labels) == 0 {
		return "", nil
	}
	b, err := json.Marshal(labels)
	return string(b), err
}

// parsed remembers what texts mean that stand in many rows or are read often.
// What they mean is shared and never changed in place.
type parsed[T any] map[string]*T

// parse reads JSON text; nothing is nil.
func (p *parsed[T]) parse(what, text string) (*T, error) {
	if text == "" {
		return nil, nil
	}
	if known := (*p)[text]; known != nil {
		return known, nil
	}
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if *p == nil || len(*p) >= 1000 {
		*p = make(parsed[T])
	}
	(*p)[text] = v
	return v, nil
}

// microseconds rounds up, as times do.
func microseconds(d time.Duration) int64 { return int64(machine.Time(0).Add(d)) }
