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

// Hint is a message from one server to the others about a commit.
type Hint = store.Hint

// The limits of one hint (a message about a commit). A hint that would exceed a limit says instead
// that any lane, session or execution may have changed.
const (
	mostLanes      = 3000
	mostWorkers    = 1500
	mostExecutions = 10_000
	mostBytes      = 5900 // maximum size of one notification; in base64 it has less than PostgreSQL's limit of 8,000
	laneBytes      = 19   // maximum size of a lane and its time
	// The versions of the payload. Servers that know only the first version treat a payload of the
	// second as a lost message, and then check everything.
	version1 = 0x01
	version2 = 0x02
)

// outgoing is a hint (a message about a commit) that is to be sent.
type outgoing struct {
	lost       bool
	lanes      map[machine.LaneID]machine.Time
	anyLane    machine.Time // used instead of lanes, if there are too many
	workers    map[belay.WorkerID]struct{}
	anyWorker  bool // used instead of workers, if there are too many
	look       machine.Time
	ended      []uint32
	changed    []uint32
	anyChanged bool // used instead of ended and changed, if there are too many
	objects    bool
}

// note adds the changes of a commit.
func (t *outgoing) note(rows *machine.Rows, c *machine.Changes) {
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
			// The owner did not end the run itself. The hint names the owner, so that it sends a
			// heartbeat soon: the reply to the heartbeat reports the end of the run.
			t.worker(r.Worker)
		}
	}
	for _, x := range c.Workers {
		// A cordoned or unhealthy worker need not send a heartbeat at once; a server that does not know of
		// the change learns of it from the reply to the worker's next claim.
		if x.State == belay.WorkerDraining || x.State.Ended() {
			t.worker(x.ID)
		}
		if x.New {
			t.soonest(x.OpenedAt) // the new session first needs a mark of life (a time that shows that a server runs)
		}
	}
	// other servers have skipped these ready executions while this transaction had them locked
	if rows != nil && len(rows.Ready) > 0 {
		for _, e := range rows.Executions {
			if at := e.Ready(); at != 0 && at <= rows.Now {
				t.ready(e)
			}
		}
	}
	t.noteGates(rows, c)
	if len(t.changed)+len(t.ended) > mostExecutions {
		t.changed, t.ended, t.anyChanged = nil, nil, true
	}
}

// noteGates adds the changes of objects and gates. If an operator has changed the gate of a queue
// or workflow, any lane of that queue or workflow may be open now. If an execution has freed its
// place in such a gate, only the lane of that execution may be open now.
func (t *outgoing) noteGates(rows *machine.Rows, c *machine.Changes) {
	for _, o := range c.Objects {
		t.soonest(o.NextAt)
		switch o.Kind {
		case machine.GateObject:
		case machine.ScheduleObject, machine.DeliveryObject:
			continue // a slot that fires or a delivery changes it; no server keeps it in memory
		case machine.WebhookObject: // each delivery changes it; servers follow the changes of its terms
			t.objects = t.objects || audited(c, o)
			continue
		default:
			t.objects = true
			continue
		}
		byOperator := audited(c, o)
		if kind := belay.GateID(o.Name).Kind(); rows != nil && byOperator &&
			(kind == belay.GateQueue || kind == belay.GateWorkflow) {
			t.lanes, t.anyLane = nil, rows.Now
		}
	}
	for _, p := range c.Places {
		if kind := p.Gate.Kind(); p.Gone && rows != nil && (kind == belay.GateQueue || kind == belay.GateWorkflow) {
			for _, e := range c.Executions {
				if e.ID == p.Execution {
					t.lane(e.Lane, rows.Now)
				}
			}
		}
	}
}

// audited reports whether an action of an operator has changed an object.
func audited(c *machine.Changes, o *machine.Object) bool {
	return slices.ContainsFunc(c.Audit, func(a *machine.Audit) bool { return a.ObjectRef == o.ObjectRef })
}

func (t *outgoing) ready(e *machine.Execution) {
	if at := e.Ready(); at != 0 {
		t.lane(e.Lane, at)
	}
}

// lane adds a lane (a group of executions that the same workers may claim) in which an execution
// may be claimed from a given time on.
func (t *outgoing) lane(id machine.LaneID, at machine.Time) {
	if t.anyLane != 0 {
		t.anyLane = min(t.anyLane, at)
		return
	}
	if t.lanes == nil {
		t.lanes = make(map[machine.LaneID]machine.Time)
	}
	if have, there := t.lanes[id]; there && have <= at {
		return
	}
	if t.lanes[id] = at; len(t.lanes) > mostLanes {
		t.anyLane = at
		for _, at := range t.lanes {
			t.anyLane = min(t.anyLane, at)
		}
		t.lanes = nil
	}
}

func (t *outgoing) worker(id belay.WorkerID) {
	if t.anyWorker {
		return
	}
	if t.workers == nil {
		t.workers = make(map[belay.WorkerID]struct{})
	}
	if t.workers[id] = struct{}{}; len(t.workers) > mostWorkers {
		t.workers, t.anyWorker = nil, true
	}
}

func (t *outgoing) soonest(at machine.Time) {
	if at != 0 && (t.look == 0 || at < t.look) {
		t.look = at
	}
}

func (t *outgoing) empty() bool {
	return !t.lost && !t.anyChanged && !t.anyWorker && t.anyLane == 0 && !t.objects && t.look == 0 &&
		len(t.lanes)+len(t.workers)+len(t.ended)+len(t.changed) == 0
}

const (
	flagLost = 1 << iota
	flagAnyChanged
	flagObjects
	// The flags from here on exist only in the second version.
	flagAnyLane
	flagAnyWorker
)

// payloads returns the notifications of a hint (a message about a commit). The lists may need
// several notifications; everything else is in the first.
func (t *outgoing) payloads(server [16]byte) []string {
	p := payload{look: t.look, anyLane: t.anyLane}
	for flag, set := range map[byte]bool{
		flagAnyChanged: t.anyChanged, flagObjects: t.objects, flagAnyLane: t.anyLane != 0, flagAnyWorker: t.anyWorker,
	} {
		if set {
			p.flags |= flag
		}
	}
	if t.lost {
		return []string{payload{flags: p.flags | flagLost, look: t.look, anyLane: t.anyLane}.text(server)}
	}
	left := payload{ended: compact(t.ended), changed: compact(t.changed)}
	for lane, at := range t.lanes {
		left.lanes = append(left.lanes, store.LaneHint{Lane: lane, At: at})
	}
	for id := range t.workers {
		left.workers = append(left.workers, id)
	}
	var all []string
	for first := true; first || left.size() > 0; first = false {
		room := mostBytes - p.size()
		p.lanes = cut(&left.lanes, laneBytes, &room)
		p.workers = cut(&left.workers, 16, &room)
		p.ended = cut(&left.ended, 4, &room)
		p.changed = cut(&left.changed, 4, &room)
		all = append(all, p.text(server))
		p = payload{}
	}
	return all
}

// HintsOf returns the hints about a commit that other servers receive if no hint is lost. The
// commit read the given rows and wrote the given changes. The simulation uses HintsOf.
func HintsOf(rows *machine.Rows, c *machine.Changes) (hints []store.Hint, err error) {
	var t outgoing
	if t.note(rows, c); t.empty() {
		return nil, nil
	}
	for _, text := range t.payloads([16]byte{1}) {
		_, h, err := parseHint(text)
		if err != nil {
			return nil, err
		}
		hints = append(hints, h)
	}
	return hints, nil
}

// compact sorts hashes and removes duplicates.
func compact(hashes []uint32) []uint32 {
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

// cut takes as many elements from the front of a list as there is room for.
func cut[T any](from *[]T, size int, room *int) []T {
	n := min(len(*from), *room/size)
	out := (*from)[:n:n]
	*from = (*from)[n:]
	*room -= n * size
	return out
}

// payload is the content of one notification.
type payload struct {
	flags          byte
	look, anyLane  machine.Time
	lanes          []store.LaneHint
	workers        []belay.WorkerID
	ended, changed []uint32
}

// size is the approximate number of bytes of the lists.
func (p payload) size() int {
	return laneBytes*len(p.lanes) + 16*len(p.workers) + 4*(len(p.ended)+len(p.changed))
}

func (p payload) text(server [16]byte) string {
	version := byte(version1)
	if p.flags >= flagAnyLane {
		version = version2
	}
	b := append([]byte{version}, server[:]...)
	b = append(b, p.flags)
	b = binary.AppendUvarint(b, uint64(p.look))
	if p.flags&flagAnyLane != 0 {
		b = binary.AppendUvarint(b, uint64(p.anyLane))
	}
	b = binary.AppendUvarint(b, uint64(len(p.lanes)))
	for _, x := range p.lanes {
		b = binary.AppendUvarint(b, uint64(x.Lane))
		b = binary.AppendUvarint(b, uint64(x.At))
	}
	b = binary.AppendUvarint(b, uint64(len(p.workers)))
	for _, id := range p.workers {
		b = append(b, id[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(p.ended)))
	for _, h := range append(p.ended[:len(p.ended):len(p.ended)], p.changed...) {
		b = binary.BigEndian.AppendUint32(b, h)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

var errPayload = errors.New("not a hint")

// parseHint reads a payload and returns the server that sent it.
func parseHint(text string) (server [16]byte, h store.Hint, err error) {
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) < 18 || b[0] != version1 && b[0] != version2 {
		return server, h, errPayload
	}
	copy(server[:], b[1:])
	flags := b[17]
	h.Lost, h.Objects, h.AnyWorker = flags&flagLost != 0, flags&flagObjects != 0, flags&flagAnyWorker != 0
	h.Changed.All, h.Ended.All = flags&flagAnyChanged != 0, flags&flagAnyChanged != 0
	p := parser{b: b[18:]}
	h.Look = machine.Time(p.uvarint())
	if flags&flagAnyLane != 0 {
		h.AnyLane = machine.Time(p.uvarint())
	}
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

// parser reads a payload. If the payload ends too early, bad is set, and the missing values are
// zero.
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

// count reads the number of elements of a list. Each element has at least one byte.
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
