package postgres

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Servers send the changes of states to each other on a channel of their own, and only while a server
// wants them. A server that wants them asks all others, again and again; from its message stateBegin
// on, each of the others sends all changes, in one transaction with the hints about the same commits
// and before these hints. So a hint about a commit of a server that has sent no stateBegin says that
// changes are missing: the server does not know this protocol, or has not received the request yet.
const (
	statesChannel = "belay_states"
	// stateRenewal is how often a server asks for changes, and stateLease how long the others send
	// them after a request.
	stateRenewal = 10 * time.Second
	stateLease   = 30 * time.Second
	// mostStates is the largest number of changes that wait to be sent.
	mostStates = 10_000
	// statesAtATime is how many changes one notification has, each of stateBytes at most.
	statesAtATime = mostBytes / stateBytes
	stateBytes    = 16 + 4*binary.MaxVarintLen64 + 2

	stateVersion = 0x01
)

// The kinds of messages on the channel.
const (
	stateWant    = iota + 1 // the server wants changes
	stateAsk                // the server wants changes, and a stateBegin
	stateBegin              // the server sends all changes from now on
	stateEnd                // the server sends no more changes
	stateLost               // changes are missing
	stateChanges            // the message has changes
)

// joined is the server in the hints about submissions in transactions of applications (see Join). Such a
// transaction always sends its changes.
var joined = [16]byte{15: 1}

// stateText is a message without changes.
func stateText(server [16]byte, kind byte) string {
	return base64.RawStdEncoding.EncodeToString(append([]byte{stateVersion, kind}, server[:]...))
}

// stateTexts are the messages with changes.
func stateTexts(server [16]byte, all []store.StateHint) (texts []string) {
	for len(all) > 0 {
		n := min(len(all), statesAtATime)
		b := append([]byte{stateVersion, stateChanges}, server[:]...)
		for _, s := range all[:n] {
			b = append(b, s.Execution[:]...)
			b = append(b, byte(s.From), byte(s.State))
			b = binary.AppendUvarint(b, uint64(s.Seq))
			b = binary.AppendUvarint(b, uint64(s.Generation))
			b = binary.AppendUvarint(b, uint64(s.At))
		}
		all = all[n:]
		texts = append(texts, base64.RawStdEncoding.EncodeToString(b))
	}
	return texts
}

// parseStates reads a message.
func parseStates(text string) (server [16]byte, kind byte, all []store.StateHint, err error) {
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) < 18 || b[0] != stateVersion {
		return server, 0, nil, errPayload
	}
	kind = b[1]
	copy(server[:], b[2:])
	p := parser{b: b[18:]}
	for len(p.b) > 0 && kind == stateChanges {
		s := store.StateHint{Execution: belay.ExecutionID(p.bytes(16))}
		states := p.bytes(2)
		s.From, s.State = belay.State(states[0]), belay.State(states[1])
		s.Seq, s.Generation, s.At = int64(p.uvarint()), int(p.uvarint()), machine.Time(p.uvarint())
		if s.From > belay.Cancelled || s.State < belay.Pending || s.State > belay.Cancelled || s.Seq < 1 {
			p.bad = true
		}
		all = append(all, s)
		if p.bad {
			return server, 0, nil, errPayload
		}
	}
	if len(p.b) > 0 {
		return server, 0, nil, errPayload
	}
	return server, kind, all, nil
}

// stateHints are the changes of a commit.
func stateHints(rows *machine.Rows, c *machine.Changes) []store.StateHint {
	all := make([]store.StateHint, len(c.States))
	for i, s := range c.States {
		all[i] = store.StateHint{
			Execution: s.ID, From: s.From, State: s.State, Seq: s.Seq, Generation: s.Generation, At: rows.Now,
		}
	}
	return all
}

// stateOutbox has the messages about states that are to be sent. The mutex of outbox guards it.
type stateOutbox struct {
	want    bool      // this server wants changes
	kinds   []byte    // messages without changes to send, in order, before the changes
	until   time.Time // other servers want changes until then
	begun   bool      // this server sends changes
	waiting []store.StateHint
	over    bool // changes were dropped because too many wait
	ended   bool // the messages that were taken last have a stateEnd
}

// add adds the changes of a commit, if another server wants them.
func (x *stateOutbox) add(rows *machine.Rows, c *machine.Changes) {
	if !x.begun || rows == nil {
		return
	}
	if time.Now().After(x.until) {
		x.begun, x.waiting, x.over = false, nil, false
		x.kinds = append(x.kinds, stateEnd)
		return
	}
	if len(x.waiting)+len(c.States) > mostStates {
		x.waiting, x.over = nil, true
		return
	}
	x.waiting = append(x.waiting, stateHints(rows, c)...)
}

// asked notes that another server wants changes. It reports whether there is something to send.
func (x *stateOutbox) asked(kind byte, now time.Time) bool {
	x.until = now.Add(stateLease)
	if x.begun && kind == stateWant {
		return false
	}
	x.begun = true
	x.kinds = append(x.kinds, stateBegin)
	return true
}

// take returns the messages to send and removes them.
func (x *stateOutbox) take(server [16]byte) (texts []string) {
	kinds := x.kinds
	if x.over {
		kinds = append(kinds, stateLost)
	}
	for _, kind := range kinds {
		texts = append(texts, stateText(server, kind))
	}
	texts = append(texts, stateTexts(server, x.waiting)...)
	x.ended = slices.Contains(x.kinds, stateEnd)
	x.kinds, x.waiting, x.over = nil, nil, false
	return texts
}

// unsent notes that the messages that were taken last were not sent. A server that listens
// nevertheless would believe that it gets all changes; the next messages say that it does not.
func (x *stateOutbox) unsent() {
	if !x.begun && !x.ended {
		return
	}
	if !slices.Contains(x.kinds, stateBegin) { // otherwise a server has asked again meanwhile
		x.begun, x.waiting, x.over = false, nil, false
	}
	x.kinds = append([]byte{stateEnd}, x.kinds...)
}

// failed queues the messages again that may not have arrived.
func (x *stateOutbox) failed() {
	x.kinds = []byte{stateEnd}
	if x.begun {
		x.kinds = []byte{stateBegin, stateLost}
	}
	if x.want {
		x.kinds = append(x.kinds, stateAsk)
	}
}

// WantStates implements store.StateHinter.
func (s *Store) WantStates(want bool) {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	s.outbox.states.want = want
	s.outbox.askLocked(stateAsk)
}

// ask sends a request for changes, if this server wants them.
func (n *outbox) ask(kind byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.askLocked(kind)
}

func (n *outbox) askLocked(kind byte) {
	if n.on && n.states.want {
		n.states.kinds = append(n.states.kinds, kind)
		n.nudgeLocked()
	}
}

// senders are the servers that send changes to this server, as far as its listening connection knows.
type senders struct {
	outbox *outbox
	begun  map[[16]byte]bool
	met    map[[16]byte]bool // servers from which a message has arrived
}

func newSenders(n *outbox) *senders {
	return &senders{n, map[[16]byte]bool{joined: true}, make(map[[16]byte]bool)}
}

// missing reports whether changes of states are missing, because a hint is about a commit of a server
// that does not send them.
func (x *senders) missing(server [16]byte, h store.Hint) bool {
	x.meet(server)
	return !x.begun[server] && !(h.Ended.None() && h.Changed.None())
}

// meet asks for changes when the first message of a server has arrived, because the server may have
// begun after the last request.
func (x *senders) meet(server [16]byte) {
	if !x.met[server] {
		x.met[server] = true
		if server != joined {
			x.outbox.ask(stateAsk)
		}
	}
}

// receive handles a message of another server. It returns what the engine must know.
func (x *senders) receive(server [16]byte, kind byte, all []store.StateHint) (h store.Hint) {
	x.meet(server)
	switch kind {
	case stateWant, stateAsk:
		x.outbox.mu.Lock()
		defer x.outbox.mu.Unlock()
		if x.outbox.states.asked(kind, time.Now()) {
			x.outbox.nudgeLocked()
		}
	case stateBegin:
		// The server has sent no changes of its earlier commits.
		h.StatesLost = !x.begun[server]
		x.begun[server] = true
	case stateEnd:
		delete(x.begun, server)
	case stateChanges:
		h.States, h.StatesLost = all, !x.begun[server]
	default:
		h.StatesLost = true
	}
	return h
}
