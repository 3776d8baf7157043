package postgres

import (
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Each list of columns is read by the function after it.

const (
	workerColumns = "id, state, opened_at, heartbeat_at, expires_at, ended_at, end_reason, claim_no, claim_floor, spec"
	selectWorkers = "SELECT " + workerColumns + " FROM workers"
)

func (c *conn) scanWorker(r columns) (*machine.Worker, error) {
	spec, err := c.specs.parse("the spec of a worker", r[9])
	if err != nil {
		return nil, err
	}
	x := &machine.Worker{
		ID: r.id(0), State: belay.WorkerState(r.int(1)), OpenedAt: r.time(2), HeartbeatAt: r.time(3), ExpiresAt: r.time(4),
		EndedAt: r.time(5), EndReason: r.text(6), ClaimNo: r.int(7), ClaimFloor: r.int(8),
	}
	if spec != nil {
		x.Spec = *spec
	}
	return x, nil
}

const (
	specFields  = "execution, generation, hash, priority, trigger, key, labels, worker_labels, "
	specColumns = specFields + "input, false"
	specHeads   = specFields + "NULL::bytea, false"
)

// carriedSpec leaves large inputs out.
var carriedSpec = fmt.Sprintf(specFields+"CASE WHEN octet_length(input) <= %[1]d THEN input END, octet_length(input) > %[1]d", machine.MaxCarried)

func (c *conn) scanSpec(r columns) (*machine.Spec, error) {
	s := &machine.Spec{
		Execution: r.id(0), Generation: int(r.int(1)), Hash: r.hash(2), Priority: int(r.int(3)),
		Trigger: belay.Trigger(c.words.text(r[4])), Key: r.text(5), Input: r.blob(8), Large: r.bool(9),
	}
	var err error
	if s.Labels, err = parseLabels(r[6]); err != nil {
		return nil, err
	}
	s.WorkerLabels, err = parseLabels(r[7])
	return s, err
}

const (
	runHeads = "execution, token, worker, attempt, generation, scheduled_seq, scheduled_at, started_seq, started_at, " +
		"ended_seq, ended_at, outcome, final, op, cost, class, message, stack, input_hash, config_hash, op_sum, NULL::bytea"
	runColumns = "execution, token, worker, attempt, generation, scheduled_seq, scheduled_at, started_seq, started_at, " +
		"ended_seq, ended_at, outcome, final, op, cost, class, message, stack, input_hash, config_hash, op_sum, output"
	selectRuns     = "SELECT " + runColumns + " FROM runs"
	selectRunHeads = "SELECT " + runHeads + " FROM runs"
)

func scanRun(r columns) *machine.Run {
	return &machine.Run{
		Execution: r.id(0), Token: belay.Token(r.int(1)), Worker: r.id(2), Attempt: int(r.int(3)), Generation: int(r.int(4)),
		ScheduledSeq: r.int(5), ScheduledAt: r.time(6), StartedSeq: r.int(7), StartedAt: r.time(8), EndedSeq: r.int(9), EndedAt: r.time(10),
		Outcome: belay.Outcome(r.int(11)), Final: r.bool(12), Op: r.id(13), Cost: r.int(14), Class: belay.Class(r.int(15)),
		Message: r.text(16), Stack: r.text(17), InputHash: r.blob(18), ConfigHash: r.blob(19), OpSum: r.id(20), Output: r.blob(21),
	}
}

const (
	checkpointColumns     = "execution, seq, kind, key, token, op, at, cost, pruned, op_sum"
	selectCheckpoints     = "SELECT " + checkpointColumns + ", data FROM checkpoints"
	selectCheckpointHeads = "SELECT " + checkpointColumns + ", NULL::bytea FROM checkpoints"
)

func scanCheckpoint(r columns) *machine.Checkpoint {
	return &machine.Checkpoint{
		Execution: r.id(0), Seq: r.int(1), Kind: belay.CheckpointKind(r.int(2)), Key: r.text(3), Token: belay.Token(r.int(4)),
		Op: r.id(5), At: r.time(6), Cost: r.int(7), Pruned: r.bool(8), OpSum: r.id(9), Data: r.blob(10),
	}
}

const (
	signalColumns     = "execution, seq, name, child, op, at, consumed_by, op_sum"
	selectSignals     = "SELECT " + signalColumns + ", payload FROM signals"
	selectSignalHeads = "SELECT " + signalColumns + ", NULL::bytea FROM signals"
)

func scanSignal(r columns) *machine.Signal {
	return &machine.Signal{
		Execution: r.id(0), Seq: r.int(1), Name: r.text(2), Child: r.id(3), Op: r.id(4), At: r.time(5), ConsumedBy: r.int(6),
		OpSum: r.id(7), Payload: r.blob(8),
	}
}

const selectDeeds = "SELECT execution, seq, kind, actor, reason, op, at, token, final, op_sum FROM actions"

func scanDeed(r columns) *machine.Deed {
	return &machine.Deed{
		Execution: r.id(0), Seq: r.int(1), Kind: r.text(2), Actor: r.text(3), Reason: r.text(4), Op: r.id(5), At: r.time(6),
		Token: belay.Token(r.int(7)), Final: r.bool(8), OpSum: r.id(9),
	}
}

const (
	chunkHeads   = "execution, name, n, token, hash, size, at, NULL::bytea"
	chunkColumns = "execution, name, n, token, hash, size, at, data"
)

func scanChunk(r columns) machine.Chunk {
	return machine.Chunk{
		ChunkRef: machine.ChunkRef{Execution: r.id(0), Name: r.text(1), N: r.int(2)},
		Token:    belay.Token(r.int(3)), Hash: r.hash(4), Size: r.int(5), At: r.time(6), Data: r.blob(7),
	}
}

const sumColumns = "execution, name, bytes, token, own, log"

func scanSum(r columns) *machine.Sum {
	return &machine.Sum{
		SumRef: machine.SumRef{Execution: r.id(0), Name: r.text(1)}, Bytes: r.int(2), Token: belay.Token(r.int(3)), Own: r.int(4), Log: r.bool(5),
	}
}
