package postgres

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Hinter is a store whose rows other servers change too, and which hears of it.
type Hinter interface {
	// Listen calls heed with what other servers have committed, soon after
	// they did, and tells them what this one commits, until ctx ends. It
	// calls heed from one goroutine. Hints may be late, doubled or lost;
	// after a loss that it notices it says so by a hint.
	Listen(ctx context.Context, heed func(Hint)) error
}

var _ Hinter = (*Store)(nil)

// Hint says where it is worth to look. It changes when something is seen, never
// what is true.
type Hint struct {
	// Lost says that hints may have been missed: look at everything.
	Lost bool
	// Lanes have something ready, now or from a moment on. One that is not
	// known yet is worth reading the lanes for.
	Lanes []LaneHint
	// Workers are sessions that have something to tell their worker: it
	// should heartbeat.
	Workers []belay.WorkerID
	// Look is the earliest moment at which something new will be due by its
	// time, 0 for none.
	Look machine.Time
	// Changed are the executions that changed.
	Changed Executions
}

// LaneHint is a lane and the earliest moment that something new is ready in it.
type LaneHint struct {
	Lane machine.LaneID
	At   machine.Time
}

// Executions is a set of executions that may hold a few too many.
type Executions struct {
	all    bool
	hashes map[uint32]struct{}
}

// Has reports whether the execution may be in the set.
func (x Executions) Has(id belay.ExecutionID) bool {
	_, has := x.hashes[hash(id)]
	return has || x.all
}

// None reports whether the set is empty.
func (x Executions) None() bool { return !x.all && len(x.hashes) == 0 }

// hash is what is told of an execution: ids made together differ in their last
// bytes.
func hash(id belay.ExecutionID) uint32 { return binary.BigEndian.Uint32(id[12:]) }

// Bounds of one telling. What is beyond is told as a loss, or as a change of all
// executions.
const (
	mostLanes      = 100
	mostWorkers    = 100
	mostExecutions = 800  // in one notification, which holds 8,000 bytes
	mostPayloads   = 16   // in one telling
	version1       = 0x01 // of the form of a payload
)

// telling is what is to be told.
type telling struct {
	lost    bool
	lanes   map[machine.LaneID]machine.Time
	workers map[belay.WorkerID]struct{}
	look    machine.Time
	changed []uint32
	many    bool
}

// note adds what a commit did.
func (t *telling) note(rows *machine.Rows, c *machine.Changes) {
	for _, e := range c.Executions {
		t.ready(e)
		t.soonest(e.CheckAt)
		t.changed = append(t.changed, hash(e.ID))
		if e.Attention {
			t.worker(e.Worker)
		}
	}
	for _, r := range c.Runs {
		if r.EndedSeq != 0 && r.Op.IsZero() {
			t.worker(r.Worker) // ended by somebody else: its worker should hear
		}
	}
	for _, x := range c.Workers {
		if x.State != belay.WorkerOpen {
			t.worker(x.ID)
		}
		if x.New {
			t.soonest(x.ExpiresAt)
		}
	}
	if rows != nil && len(rows.Ready) > 0 { // due ones that no claim took, held until now
		for _, e := range rows.Executions {
			if at := e.Ready(); at != 0 && at <= rows.Now {
				t.ready(e)
			}
		}
	}
	if len(t.changed) > mostExecutions*mostPayloads {
		t.changed, t.many = nil, true
	}
}

func (t *telling) ready(e *machine.Execution) {
	at := e.Ready()
	if at == 0 {
		return
	}
	if t.lanes == nil {
		t.lanes = make(map[machine.LaneID]machine.Time)
	}
	if have, there := t.lanes[e.Lane]; there && have <= at {
		return
	}
	if t.lanes[e.Lane] = at; len(t.lanes) > mostLanes {
		t.lost = true
	}
}

func (t *telling) worker(id belay.WorkerID) {
	if t.workers == nil {
		t.workers = make(map[belay.WorkerID]struct{})
	}
	if t.workers[id] = struct{}{}; len(t.workers) > mostWorkers {
		t.lost = true
	}
}

func (t *telling) soonest(at machine.Time) {
	if at != 0 && (t.look == 0 || at < t.look) {
		t.look = at
	}
}

func (t *telling) empty() bool {
	return !t.lost && !t.many && t.look == 0 && len(t.lanes)+len(t.workers)+len(t.changed) == 0
}

const (
	flagLost = 1 << iota
	flagMany
)

// payloads are the notifications for a telling: the first says all but the
// executions that the others have.
func (t *telling) payloads(server [16]byte) []string {
	var flags byte
	if t.lost {
		flags, t.lanes, t.workers, t.changed = flagLost, nil, nil, nil
	}
	if t.many {
		flags |= flagMany
	}
	slices.Sort(t.changed)
	changed := slices.Compact(t.changed)
	var all []string
	for first := true; first || len(changed) > 0; first = false {
		n := min(len(changed), mostExecutions)
		all = append(all, t.payload(server, flags, changed[:n]))
		changed = changed[n:]
		t.lanes, t.workers, t.look = nil, nil, 0
	}
	return all
}

func (t *telling) payload(server [16]byte, flags byte, changed []uint32) string {
	b := append([]byte{version1}, server[:]...)
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(t.look))
	b = binary.AppendUvarint(b, uint64(len(t.lanes)))
	for id, at := range t.lanes {
		b = binary.AppendUvarint(b, uint64(id))
		b = binary.AppendUvarint(b, uint64(at))
	}
	b = binary.AppendUvarint(b, uint64(len(t.workers)))
	for id := range t.workers {
		b = append(b, id[:]...)
	}
	for _, h := range changed {
		b = binary.BigEndian.AppendUint32(b, h)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

var errPayload = errors.New("not a hint")

// parseHint reads a payload and says whose it is.
func parseHint(text string) (server [16]byte, h Hint, err error) {
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) < 18 || b[0] != version1 {
		return server, h, errPayload
	}
	copy(server[:], b[1:])
	h.Lost, h.Changed.all = b[17]&flagLost != 0, b[17]&flagMany != 0
	p := parser{b: b[18:]}
	h.Look = machine.Time(p.uvarint())
	for range p.count() {
		h.Lanes = append(h.Lanes, LaneHint{machine.LaneID(p.uvarint()), machine.Time(p.uvarint())})
	}
	for range p.count() {
		h.Workers = append(h.Workers, belay.WorkerID(p.bytes(16)))
	}
	if n := len(p.b) / 4; n > 0 && !p.bad {
		h.Changed.hashes = make(map[uint32]struct{}, n)
		for range n {
			h.Changed.hashes[binary.BigEndian.Uint32(p.bytes(4))] = struct{}{}
		}
	}
	if p.bad || len(p.b) > 0 {
		return server, Hint{}, errPayload
	}
	return server, h, nil
}

// parser reads a payload; what is cut short is bad and reads as zero.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.bad, p.b = true, nil
		return 0
	}
	p.b = p.b[n:]
	return v
}

// count is a number of things, of which each takes at least a byte.
func (p *parser) count() int {
	n := p.uvarint()
	if n > uint64(len(p.b)) {
		p.bad, p.b = true, nil
		return 0
	}
	return int(n)
}

func (p *parser) bytes(n int) []byte {
	if len(p.b) < n {
		p.bad, p.b = true, nil
		return make([]byte, n)
	}
	out := p.b[:n]
	p.b = p.b[n:]
	return out
}
