package postgres

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
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

// blob is a copy; nothing is nil.
func (c columns) blob(i int) []byte { return append([]byte(nil), c[i]...) }

func (c columns) id(i int) (id [16]byte) {
	copy(id[:], c[i])
	return id
}

func (c columns) hash(i int) (h [32]byte) {
	copy(h[:], c[i])
	return h
}

// words remembers texts that stand in many rows, so that each is there once.
type words map[string]string

func (w *words) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := (*w)[string(b)]; ok {
		return s
	}
	if *w == nil || len(*w) >= 1000 {
		*w = make(words)
	}
	s := string(b)
	(*w)[s] = s
	return s
}

// parsed remembers what texts mean that stand in many rows or are read often.
// What they mean is shared and never changed in place.
type parsed[T any] map[string]*T

// parse reads JSON text; nothing is nil.
func (p *parsed[T]) parse(what string, text []byte) (*T, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if known := (*p)[string(text)]; known != nil {
		return known, nil
	}
	v := new(T)
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if *p == nil || len(*p) >= 1000 {
		*p = make(parsed[T])
	}
	(*p)[string(text)] = v
	return v, nil
}

func parseLabels(text []byte) (map[string]string, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var labels map[string]string
	if err := json.Unmarshal(text, &labels); err != nil {
		return nil, fmt.Errorf("read labels: %w", err)
	}
	return labels, nil
}

// labelsText is labels as they are stored; empty for none.
func labelsText(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	b, err := json.Marshal(labels)
	if err != nil {
		panic(err) // maps of strings always pass
	}
	return string(b)
}

// microseconds rounds up, as times do.
func microseconds(d time.Duration) int64 { return int64(machine.Time(0).Add(d)) }

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// stored is an execution as it stands in the database.
type stored struct {
	*machine.Execution
	runSeq int64 // at which the run began that it is in, if that run has no row
}

// run is the run that the execution is in, if it has no row.
func (s stored) run() *machine.Run {
	if s.runSeq == 0 {
		return nil
	}
	return &machine.Run{
		Execution: s.ID, Token: s.Token, Worker: s.Worker, Attempt: s.Attempts + 1, Generation: s.Generation, StartedSeq: s.runSeq, StartedAt: s.RunAt,
	}
}

// scan reads the row of an execution from the column at which it begins.
func (c *conn) scan(r columns) (stored, error) {
	policy, err := c.policies.parse("a policy", r[7])
	if err != nil {
		return stored{}, err
	}
	e := &machine.Execution{
		ID: r.id(0), Parent: r.id(1), Child: r.text(2), ParentGen: int(r.int(3)), Workflow: c.words.text(r[4]), Version: c.words.text(r[5]),
		Queue: c.words.text(r[6]), Policy: policy, CreatedAt: r.time(8),
	}
	h := r[fixedCount:]
	e.State, e.PausedFrom, e.Gate = belay.State(h.int(hotState)), belay.State(h.int(hotPausedFrom)), belay.Gate(h.int(hotGate))
	e.Lane = machine.LaneID(h.int(hotLane))
	e.DueAt, e.CheckAt = h.time(hotDueAt), h.time(hotCheckAt)
	e.Seq, e.Token, e.Generation = h.int(hotSeq), belay.Token(h.int(hotToken)), int(h.int(hotGeneration))
	e.BaseSeq, e.InputGen, e.ClaimNo = h.int(hotBaseSeq), int(h.int(hotInputGen)), h.int(hotClaimNo)
	e.Attempts, e.Losses, e.Checkpoints = int(h.int(hotAttempts)), int(h.int(hotLosses)), int(h.int(hotCheckpoints))
	e.StateSeq, e.SignalSeq, e.SignalSeen = h.int(hotStateSeq), h.int(hotSignalSeq), h.int(hotSignalSeen)
	e.Signals, e.SignalBytes = int(h.int(hotSignals)), h.int(hotSignalBytes)
	e.Open, e.Cost, e.Parted = int(h.int(hotOpen)), h.int(hotCost), h.int(hotParted)
	e.ScheduledAt, e.StartedAt, e.RunAt = h.time(hotScheduledAt), h.time(hotStartedAt), h.time(hotRunAt)
	e.ProgressAt, e.FinishedAt, e.CancelBy = h.time(hotProgressAt), h.time(hotFinishedAt), h.time(hotCancelBy)
	e.PauseRequested, e.Preempting = h.bool(hotPauseRequested), h.bool(hotPreempting)
	e.Class, e.Message, e.Plan = belay.Class(h.int(hotClass)), h.text(hotMessage), h.blob(hotPlan)
	e.Reason, e.ReasonText = c.words.text(h[hotReason]), h.text(hotReasonText)
	e.Worker, e.Secret = h.id(hotWorker), h.id(hotSecret)
	return stored{e, h.int(hotRunSeq)}, nil
}
