package table

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// All tables except the table of executions. If a table has a payload, it is the last column; specs have
// two payloads.
var (
	Specs = &Table[machine.Spec]{"specs", []Column[machine.Spec]{
		id("execution", Kept, func(s *machine.Spec) []byte { return s.Execution[:] }),
		integer("generation", Int4, Kept, func(s *machine.Spec) *int { return &s.Generation }),
		hash("hash", func(s *machine.Spec) []byte { return s.Hash[:] }),
		integer("priority", Int4, Kept, func(s *machine.Spec) *int { return &s.Priority }),
		text("trigger", Kept, func(s *machine.Spec) *belay.Trigger { return &s.Trigger }),
		text("key", Null, func(s *machine.Spec) *string { return &s.Key }),
		labels("labels", func(s *machine.Spec) *map[string]string { return &s.Labels }),
		labels("worker_labels", func(s *machine.Spec) *map[string]string { return &s.WorkerLabels }),
		text("created_by", Null, func(s *machine.Spec) *string { return &s.CreatedBy }),
		blob("trigger_payload", func(s *machine.Spec) *[]byte { return &s.TriggerPayload }),
		blob("input", func(s *machine.Spec) *[]byte { return &s.Input }),
	}}

	Runs = &Table[machine.Run]{"runs", []Column[machine.Run]{
		id("execution", Kept, func(r *machine.Run) []byte { return r.Execution[:] }),
		integer("token", Int8, Kept, func(r *machine.Run) *belay.Token { return &r.Token }),
		id("worker", Kept, func(r *machine.Run) []byte { return r.Worker[:] }),
		integer("attempt", Int4, Kept, func(r *machine.Run) *int { return &r.Attempt }),
		integer("generation", Int4, Kept, func(r *machine.Run) *int { return &r.Generation }),
		integer("scheduled_seq", Int8, Null, func(r *machine.Run) *int64 { return &r.ScheduledSeq }),
		integer("scheduled_at", Int8, Null, func(r *machine.Run) *machine.Time { return &r.ScheduledAt }),
		integer("started_seq", Int8, Null, func(r *machine.Run) *int64 { return &r.StartedSeq }),
		integer("started_at", Int8, Null, func(r *machine.Run) *machine.Time { return &r.StartedAt }),
		integer("ended_seq", Int8, Null, func(r *machine.Run) *int64 { return &r.EndedSeq }),
		integer("ended_at", Int8, Null, func(r *machine.Run) *machine.Time { return &r.EndedAt }),
		integer("outcome", Int2, Lean, func(r *machine.Run) *belay.Outcome { return &r.Outcome }),
		boolean("final", func(r *machine.Run) *bool { return &r.Final }),
		id("op", Null, func(r *machine.Run) []byte { return r.Op[:] }),
		wholeCost(func(r *machine.Run) *belay.Cost { return &r.Cost }),
		restOfCost(func(r *machine.Run) *belay.Cost { return &r.Cost }),
		integer("class", Int2, Lean, func(r *machine.Run) *belay.Class { return &r.Class }),
		text("message", Null, func(r *machine.Run) *string { return &r.Message }),
		text("stack", Null, func(r *machine.Run) *string { return &r.Stack }),
		integer("failed_by", Int2, Lean, func(r *machine.Run) *belay.FailedBy { return &r.FailedBy }),
		text("steps", Null, func(r *machine.Run) *string { return &r.Steps }),
		blob("input_hash", func(r *machine.Run) *[]byte { return &r.InputHash }),
		blob("config_hash", func(r *machine.Run) *[]byte { return &r.ConfigHash }),
		id("op_sum", Null, func(r *machine.Run) []byte { return r.OpSum[:] }),
		blob("output", func(r *machine.Run) *[]byte { return &r.Output }),
	}}

	// RunHeads are runs without their outputs and the stacks of their errors.
	RunHeads = Runs.Only("execution, token, worker, attempt, generation, scheduled_seq, scheduled_at, started_seq, " +
		"started_at, ended_seq, ended_at, outcome, final, cost, cost_rest, class, message, failed_by")

	Checkpoints = &Table[machine.Checkpoint]{"checkpoints", []Column[machine.Checkpoint]{
		id("execution", Kept, func(k *machine.Checkpoint) []byte { return k.Execution[:] }),
		integer("seq", Int8, Kept, func(k *machine.Checkpoint) *int64 { return &k.Seq }),
		integer("kind", Int2, Kept, func(k *machine.Checkpoint) *belay.CheckpointKind { return &k.Kind }),
		text("key", Kept, func(k *machine.Checkpoint) *string { return &k.Key }),
		integer("token", Int8, Kept, func(k *machine.Checkpoint) *belay.Token { return &k.Token }),
		id("op", Null, func(k *machine.Checkpoint) []byte { return k.Op[:] }),
		integer("at", Int8, Kept, func(k *machine.Checkpoint) *machine.Time { return &k.At }),
		wholeCost(func(k *machine.Checkpoint) *belay.Cost { return &k.Cost }),
		restOfCost(func(k *machine.Checkpoint) *belay.Cost { return &k.Cost }),
		integer("took", Int8, Null, func(k *machine.Checkpoint) *int64 { return &k.Took }),
		integer("attempt", Int4, Null, func(k *machine.Checkpoint) *int { return &k.Attempt }),
		text("steps", Null, func(k *machine.Checkpoint) *string { return &k.Steps }),
		boolean("pruned", func(k *machine.Checkpoint) *bool { return &k.Pruned }),
		id("op_sum", Null, func(k *machine.Checkpoint) []byte { return k.OpSum[:] }),
		blob("data", func(k *machine.Checkpoint) *[]byte { return &k.Data }),
	}}

	Signals = &Table[machine.Signal]{"signals", []Column[machine.Signal]{
		id("execution", Kept, func(s *machine.Signal) []byte { return s.Execution[:] }),
		integer("seq", Int8, Kept, func(s *machine.Signal) *int64 { return &s.Seq }),
		text("name", Kept, func(s *machine.Signal) *string { return &s.Name }),
		id("child", Null, func(s *machine.Signal) []byte { return s.Child[:] }),
		id("op", Null, func(s *machine.Signal) []byte { return s.Op[:] }),
		integer("at", Int8, Kept, func(s *machine.Signal) *machine.Time { return &s.At }),
		integer("consumed_by", Int8, Null, func(s *machine.Signal) *int64 { return &s.ConsumedBy }),
		id("op_sum", Null, func(s *machine.Signal) []byte { return s.OpSum[:] }),
		blob("payload", func(s *machine.Signal) *[]byte { return &s.Payload }),
	}}

	Deeds = &Table[machine.Deed]{"actions", []Column[machine.Deed]{
		id("execution", Kept, func(d *machine.Deed) []byte { return d.Execution[:] }),
		integer("seq", Int8, Kept, func(d *machine.Deed) *int64 { return &d.Seq }),
		text("kind", Kept, func(d *machine.Deed) *string { return &d.Kind }),
		text("actor", Null, func(d *machine.Deed) *string { return &d.Actor }),
		text("reason", Null, func(d *machine.Deed) *string { return &d.Reason }),
		id("op", Null, func(d *machine.Deed) []byte { return d.Op[:] }),
		integer("at", Int8, Kept, func(d *machine.Deed) *machine.Time { return &d.At }),
		integer("token", Int8, Lean, func(d *machine.Deed) *belay.Token { return &d.Token }),
		boolean("final", func(d *machine.Deed) *bool { return &d.Final }),
		id("op_sum", Null, func(d *machine.Deed) []byte { return d.OpSum[:] }),
	}}

	DeadLetters = &Table[machine.DeadLetter]{"dead_letters", []Column[machine.DeadLetter]{
		id("execution", Kept, func(d *machine.DeadLetter) []byte { return d.Execution[:] }),
		integer("generation", Int4, Kept, func(d *machine.DeadLetter) *int { return &d.Generation }),
		integer("seq", Int8, Kept, func(d *machine.DeadLetter) *int64 { return &d.Seq }),
		integer("token", Int8, Lean, func(d *machine.DeadLetter) *belay.Token { return &d.Token }),
		text("reason", Kept, func(d *machine.DeadLetter) *string { return &d.Reason }),
		integer("class", Int2, Kept, func(d *machine.DeadLetter) *belay.Class { return &d.Class }),
		text("message", Null, func(d *machine.DeadLetter) *string { return &d.Message }),
		integer("at", Int8, Kept, func(d *machine.DeadLetter) *machine.Time { return &d.At }),
		integer("failed_by", Int2, Lean, func(d *machine.DeadLetter) *belay.FailedBy { return &d.FailedBy }),
		text("resolution", Null, func(d *machine.DeadLetter) *string { return &d.Resolution }),
		text("resolved_by", Null, func(d *machine.DeadLetter) *string { return &d.ResolvedBy }),
		integer("resolved_at", Int8, Null, func(d *machine.DeadLetter) *machine.Time { return &d.ResolvedAt }),
		notes("notes", func(d *machine.DeadLetter) *[]machine.LetterNote { return &d.Notes }),
	}}

	Keys = &Table[machine.KeyRow]{"idempotency", []Column[machine.KeyRow]{
		text("workflow", Kept, func(k *machine.KeyRow) *string { return &k.Workflow }),
		text("key", Kept, func(k *machine.KeyRow) *string { return &k.Key.Key }),
		id("execution", Kept, func(k *machine.KeyRow) []byte { return k.Execution[:] }),
		hash("hash", func(k *machine.KeyRow) []byte { return k.Hash[:] }),
		integer("at", Int8, Kept, func(k *machine.KeyRow) *machine.Time { return &k.At }),
	}}

	// HeldKeys has the columns of a key and those columns of its execution that decide whether the
	// execution gives the key up.
	HeldKeys = &Table[machine.KeyRow]{Keys.Name, append(slices.Clip(Keys.Columns),
		integer("state", Int2, Null, func(k *machine.KeyRow) *belay.State { return &k.Holder.State }),
		integer("input_gen", Int4, Null, func(k *machine.KeyRow) *int { return &k.Holder.InputGen }),
		integer("cancel_by", Int8, Null, func(k *machine.KeyRow) *machine.Time { return &k.Holder.CancelBy }),
		text("reason", Null, func(k *machine.KeyRow) *string { return &k.Holder.Reason }),
	)}

	Objects = &Table[machine.Object]{"objects", []Column[machine.Object]{
		text("kind", Kept, func(o *machine.Object) *machine.ObjectKind { return &o.Kind }),
		text("name", Kept, func(o *machine.Object) *string { return &o.Name }),
		integer("version", Int8, Kept, func(o *machine.Object) *int64 { return &o.Version }),
		integer("next_at", Int8, Null, func(o *machine.Object) *machine.Time { return &o.NextAt }),
		integer("updated_at", Int8, Kept, func(o *machine.Object) *machine.Time { return &o.UpdatedAt }),
		text("updated_by", Null, func(o *machine.Object) *string { return &o.UpdatedBy }),
		kept(blob("body", func(o *machine.Object) *[]byte { return &o.Body })),
	}}

	Trail = &Table[machine.Audit]{"audit", []Column[machine.Audit]{
		integer("at", Int8, Kept, func(a *machine.Audit) *machine.Time { return &a.At }),
		text("kind", Kept, func(a *machine.Audit) *machine.ObjectKind { return &a.Kind }),
		text("name", Kept, func(a *machine.Audit) *string { return &a.Name }),
		integer("version", Int8, Kept, func(a *machine.Audit) *int64 { return &a.Version }),
		text("actor", Null, func(a *machine.Audit) *string { return &a.Actor }),
		text("action", Kept, func(a *machine.Audit) *string { return &a.Action }),
		text("reason", Null, func(a *machine.Audit) *string { return &a.Reason }),
		id("op", Null, func(a *machine.Audit) []byte { return a.Op[:] }),
	}}

	Chunks = &Table[machine.Chunk]{"blobs", []Column[machine.Chunk]{
		id("execution", Kept, func(k *machine.Chunk) []byte { return k.Execution[:] }),
		text("name", Kept, func(k *machine.Chunk) *string { return &k.Name }),
		integer("n", Int8, Kept, func(k *machine.Chunk) *int64 { return &k.N }),
		integer("token", Int8, Kept, func(k *machine.Chunk) *belay.Token { return &k.Token }),
		hash("hash", func(k *machine.Chunk) []byte { return k.Hash[:] }),
		integer("size", Int8, Kept, func(k *machine.Chunk) *int64 { return &k.Size }),
		integer("at", Int8, Kept, func(k *machine.Chunk) *machine.Time { return &k.At }),
		blob("data", func(k *machine.Chunk) *[]byte { return &k.Data }),
	}}

	Sums = &Table[machine.Sum]{"blob_sums", []Column[machine.Sum]{
		id("execution", Kept, func(s *machine.Sum) []byte { return s.Execution[:] }),
		text("name", Kept, func(s *machine.Sum) *string { return &s.Name }),
		integer("bytes", Int8, Kept, func(s *machine.Sum) *int64 { return &s.Bytes }),
		integer("token", Int8, Kept, func(s *machine.Sum) *belay.Token { return &s.Token }),
		integer("own", Int8, Kept, func(s *machine.Sum) *int64 { return &s.Own }),
		boolean("log", func(s *machine.Sum) *bool { return &s.Log }),
	}}

	// Workers has three columns that are written with the others but read separately: the spec, which
	// is parsed once for all rows with an equal spec, the TTL, which is also in the spec, and the
	// current steps, which almost no reader of a session needs. While
	// a session has not ended, the column end_reason says why it claims nothing, if it is cordoned
	// or unhealthy.
	Workers = &Table[machine.Worker]{"workers", []Column[machine.Worker]{
		id("id", Kept, func(x *machine.Worker) []byte { return x.ID[:] }),
		integer("state", Int2, Kept, func(x *machine.Worker) *belay.WorkerState { return &x.State }),
		integer("opened_at", Int8, Kept, func(x *machine.Worker) *machine.Time { return &x.OpenedAt }),
		integer("heartbeat_at", Int8, Kept, func(x *machine.Worker) *machine.Time { return &x.HeartbeatAt }),
		integer("expires_at", Int8, Kept, func(x *machine.Worker) *machine.Time { return &x.ExpiresAt }),
		integer("ended_at", Int8, Null, func(x *machine.Worker) *machine.Time { return &x.EndedAt }),
		text("end_reason", Null, func(x *machine.Worker) *string { return &x.Why }),
		integer("claim_no", Int8, Kept, func(x *machine.Worker) *int64 { return &x.ClaimNo }),
		integer("claim_floor", Int8, Kept, func(x *machine.Worker) *int64 { return &x.ClaimFloor }),
		{Name: "spec", Kind: String, Text: specText},
		{Name: "ttl", Kind: Int8, Int: func(x *machine.Worker) int64 { return Microseconds(x.Spec.TTL.D()) }},
		{Name: "current", Kind: String, Zero: Null, Text: func(x *machine.Worker) string { return x.Current }},
	}}
)

func specText(x *machine.Worker) string {
	b, err := json.Marshal(x.Spec)
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	return string(b)
}

// WorkerSpec is the index of the spec in a session's row.
const WorkerSpec = 9

// WorkerColumns are the columns that ScanWorker reads.
var WorkerColumns = Workers.First(WorkerSpec + 1).Names()

// ScanWorker reads a session from a row. The caller has parsed the spec.
func ScanWorker[C Row](row C, spec *belay.WorkerSpec) (*machine.Worker, error) {
	x, err := Scan(Workers, row)
	if err == nil && spec != nil {
		x.Spec = *spec
	}
	return x, err
}

// Microseconds converts a duration to microseconds. It rounds up, as machine.Time does.
func Microseconds(d time.Duration) int64 { return int64(machine.Time(0).Add(d)) }
