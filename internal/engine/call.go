package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// call is a command and the channel for its reply.
type call struct {
	command      machine.Command
	class        class
	ends         bool // the command ends a run
	reply        chan *machine.Reply
	sent         time.Time // when this server received the command
	queued       time.Time // when the command was last put into the queue
	blockedSince time.Time // when the command first had to wait for locked rows
	mailbox      string    // where the messages about the executions go that the command schedules to a worker
	answered     atomic.Bool
}

func newCall(cmd machine.Command) *call {
	_, ends := cmd.(*machine.Settle)
	return &call{command: cmd, class: classOf(cmd), ends: ends, reply: make(chan *machine.Reply, 1)}
}

// payloadChecks limits how many large payloads are checked at the same time, so that a processor
// stays free for heartbeats.
type payloadChecks chan struct{}

// largePayload is the size of a payload whose check takes about a millisecond.
const largePayload = 64 << 10

func newPayloadChecks() payloadChecks { return make(payloadChecks, max(1, runtime.GOMAXPROCS(0)-1)) }

// precheck runs the checks of a command that need no rows.
func (j payloadChecks) precheck(cmd machine.Command) {
	c, ok := cmd.(machine.Judger)
	if !ok {
		return
	}
	if sizeOf(cmd) >= largePayload {
		j <- struct{}{}
		defer func() { <-j }()
	}
	c.Judge()
}

// received sets the field Waited of a heartbeat or renewal to the time since this server received
// the command.
func (k *call) received(now time.Time) {
	switch c := k.command.(type) {
	case *machine.Heartbeat:
		c.Waited = now.Sub(k.sent)
	case *machine.Renew:
		c.Waited = now.Sub(k.sent)
	}
}

// pendingBeats counts, for each session, the heartbeats and renewals that this server has received
// and not answered yet.
type pendingBeats map[belay.WorkerID]*pendingBeat

type pendingBeat struct {
	n     int
	empty chan struct{} // closed when all heartbeats and renewals of the session were answered
}

func (h pendingBeats) take(k *call) {
	id := sessionOf(k.command)
	if id.IsZero() {
		return
	}
	if h[id] == nil {
		h[id] = &pendingBeat{empty: make(chan struct{})}
	}
	h[id].n++
}

func (h pendingBeats) answer(k *call) {
	id := sessionOf(k.command)
	x := h[id]
	if x == nil {
		return
	}
	if x.n--; x.n == 0 {
		close(x.empty)
		delete(h, id)
	}
}
