package postgres

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

var _ store.Hinter = (*Store)(nil)

// Hint is what servers tell each other.
type Hint = store.Hint

// Bounds of one telling. What is beyond is told as a loss, or as a change of all
// executions.
const (
	mostLanes      = 100
	mostWorkers    = 100
	mostExecutions = 600  // in one notification, which holds 8,000 bytes
	mostPayloads   = 16   // in one telling
	version1       = 0x01 // of the form of a payload
)

// telling is what is to be told.
type telling struct {
	lost    bool
	lanes   map[machine.LaneID]machine.Time
	workers map[belay.WorkerID]struct{}
	look    machine.Time
	ended   []uint32
	changed []uint32
	many    bool
	keys    bool
}

// note adds what a commit did.
func (t *telling) note(rows *machine.Rows, c *machine.Changes) {
	for _, e := range c.Executions {
		t.ready(e)
		t.soonest(e.CheckAt)
		if e.State.Terminal() {
			t.ended = append(t.ended, store.Hash(e.ID))
		} else {
			t.changed = append(t.changed, store.Hash(e.ID))
		}
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
			t.soonest(x.OpenedAt) // it is a mark of life that it needs first
		}
	}
	if rows != nil && len(rows.Ready) > 0 { // due ones that no claim took, held until now
		for _, e := range rows.Executions {
			if at := e.Ready(); at != 0 && at <= rows.Now {
				t.ready(e)
			}
		}
	}
	t.keys = t.keys || len(c.APIKeys) > 0
	if len(t.changed)+len(t.ended) > mostExecutions*mostPayloads {
		t.changed, t.ended, t.many = nil, nil, true
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
	return !t.lost && !t.many && !t.keys && t.look == 0 && len(t.lanes)+len(t.workers)+len(t.ended)+len(t.changed) == 0
}

const (
	flagLost = 1 << iota
	flagMany
	flagKeys
)

// payloads are the notifications for a telling: the first says all but the
// executions that the others have.
func (t *telling) payloads(server [16]byte) []string {
	var flags byte
	if t.lost {
		flags, t.lanes, t.workers, t.ended, t.changed = flagLost, nil, nil, nil, nil
	}
	if t.many {
		flags |= flagMany
	}
	if t.keys {
		flags |= flagKeys
	}
	slices.Sort(t.ended)
	slices.Sort(t.changed)
	ended, changed := slices.Compact(t.ended), slices.Compact(t.changed)
	var all []string
	for first := true; first || len(ended)+len(changed) > 0; first = false {
		n := min(len(ended), mostExecutions)
		m := min(len(changed), mostExecutions-n)
		all = append(all, t.payload(server, flags, ended[:n], changed[:m]))
		ended, changed = ended[n:], changed[m:]
		t.lanes, t.workers, t.look = nil, nil, 0
	}
	return all
}

func (t *telling) payload(server [16]byte, flags byte, ended, changed []uint32) string {
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
	b = binary.AppendUvarint(b, uint64(len(ended)))
	for _, h := range append(ended[:len(ended):len(ended)], changed...) {
		b = binary.BigEndian.AppendUint32(b, h)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

var errPayload = errors.New("not a hint")

// parseHint reads a payload and says whose it is.
func parseHint(text string) (server [16]byte, h store.Hint, err error) {
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) < 18 || b[0] != version1 {
		return server, h, errPayload
	}
	copy(server[:], b[1:])
	h.Lost, h.Changed.All, h.Ended.All, h.Keys = b[17]&flagLost != 0, b[17]&flagMany != 0, b[17]&flagMany != 0, b[17]&flagKeys != 0
	p := parser{b: b[18:]}
	h.Look = machine.Time(p.uvarint())
	for range p.count() {
		h.Lanes = append(h.Lanes, store.LaneHint{Lane: machine.LaneID(p.uvarint()), At: machine.Time(p.uvarint())})
	}
	for range p.count() {
		h.Workers = append(h.Workers, belay.WorkerID(p.bytes(16)))
	}
	h.Ended.Hashes = p.hashes(p.count())
	h.Changed.Hashes = p.hashes(len(p.b) / 4)
	if p.bad || len(p.b) > 0 {
		return server, store.Hint{}, errPayload
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

func (p *parser) hashes(n int) map[uint32]struct{} {
	if n == 0 || p.bad {
		return nil
	}
	all := make(map[uint32]struct{}, n)
	for range n {
		all[binary.BigEndian.Uint32(p.bytes(4))] = struct{}{}
	}
	return all
}
