package engine

import (
	"runtime"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// call is a command on its way.
type call struct {
	command machine.Command
	class   class
	ends    bool // a run
	reply   chan *machine.Reply
	sent    time.Time // when this server received it
	queued  time.Time // when it was last put into the queue
	held    time.Time // when it first had to wait for somebody else's rows
}

func newCall(cmd machine.Command) *call {
	_, ends := cmd.(*machine.Settle)
	return &call{command: cmd, class: classOf(cmd), ends: ends, reply: make(chan *machine.Reply, 1)}
}

// judges lets a few at a time look through large payloads: while many did, heartbeats
// would wait for a processor.
type judges chan struct{}

// largePayload is one that takes a millisecond or so to look through.
const largePayload = 64 << 10

func newJudges() judges { return make(judges, max(1, runtime.GOMAXPROCS(0)-1)) }

// judge has a command judged, as far as that needs no rows.
func (j judges) judge(cmd machine.Command) {
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

// received tells a sign of life how long this server has had it.
func (k *call) received(now time.Time) {
	switch c := k.command.(type) {
	case *machine.Heartbeat:
		c.Waited = now.Sub(k.sent)
	case *machine.Renew:
		c.Waited = now.Sub(k.sent)
	}
}

// hands counts the signs of life of each session that this server has received and
// not answered yet.
type hands map[belay.WorkerID]*hand

type hand struct {
	n     int
	empty chan struct{} // closed when all were answered
}

func (h hands) take(k *call) {
	id := sessionOf(k.command)
	if id.IsZero() {
		return
	}
	if h[id] == nil {
		h[id] = &hand{empty: make(chan struct{})}
	}
	h[id].n++
}

func (h hands) answer(k *call) {
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
