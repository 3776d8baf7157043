package simulation

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// node is a server: an engine on the store that all nodes share. When the node crashes or stops, its
// memory is lost.
type node struct {
	w     *world
	name  string
	lives int
	life  *life // nil while the node is down
}

// life is one life of a node: from its start to its crash or stop.
type life struct {
	node   *node
	name   string
	engine *engine.Engine
	store  *gated
	dead   atomic.Bool
	// batchWaits and beatsWait say that a batch of commands, and a batch of heartbeats and renewals
	// only, wait for the simulation to let them go.
	batchWaits, beatsWait atomic.Bool

	closed       chan struct{}
	ids, secrets atomic.Uint64
	// commitFate is the fate of the commit that follows a batch (whether it fails, for example), if
	// the simulation's driver has decided both fates together. The driver writes it while the
	// committer waits at the gate, and the committer reads it afterwards.
	commitFate *fate
	// heed passes a hint about another node's commit to the node; nil if the node does not listen.
	// late has the delayed hints, which the node gets together with the next hint. heed and late
	// are used only while all goroutines wait.
	heed func(store.Hint)
	late store.Hint

	mu    sync.Mutex
	names map[string]bool // the names that goroutines use at the moment; see unique
}

// start starts the node, which begins a new life.
func (n *node) start() {
	n.lives++
	x := &life{node: n, name: n.name, closed: make(chan struct{}), names: make(map[string]bool)}
	x.store = &gated{Store: n.w.store, w: n.w, life: x}
	random := n.w.random(fmt.Sprintf("%s life %d", n.name, n.lives))
	opt := engine.Options{
		SlowPoll: n.w.plan.slowPoll, HintPoll: n.w.plan.hintPoll, Retention: n.w.plan.retention,
		Log:    slog.New(slog.DiscardHandler),
		IDs:    func() [16]byte { return n.w.id(x.name, x.ids.Add(1)) },
		Random: func(b []byte) { n.w.fill(b, x.name+" secrets", x.secrets.Add(1)) },
		Jitter: random.Float64,
		Gather: x.gather, Order: n.w.order(n.lives), Settle: x.settle,
		Committers: n.w.plan.committers, Pulse: n.w.plan.pulse,
	}
	if n.w.plan.mailboxes {
		opt.Courier = deafCourier{}
	}
	if n.w.plan.proves {
		opt.Self = belay.Process{Host: "host", PID: 1}
		opt.Dead = n.w.provenDead
	}
	if n.w.plan.hints {
		x.engine = engine.New(hinting{x.store}, opt)
	} else {
		x.engine = engine.New(x.store, opt)
	}
	n.life = x
	n.w.lives = append(n.w.lives, x)
}

// crash ends the node's life at once, and the node's memory is lost. For each of the node's calls
// to the store that are in flight, the function executed decides whether the store still carries
// the call out.
func (n *node) crash(executed func() bool) {
	x := n.life
	n.life = nil
	x.dead.Store(true)
	for _, t := range n.w.gate.those(func(t *ticket) bool { return t.life == x && t.link == nil }) {
		f := dies
		if t.place == atStore && executed() {
			f = unheard
			if t.place == atStore && strings.Contains(t.name, " commit") {
				n.w.history.fault("node died in a commit")
			}
		}
		n.w.gate.let(t, f)
	}
	go func() {
		defer close(x.closed)
		_ = x.engine.Close()
	}()
}

// stop stops the node gracefully.
func (n *node) stop() {
	x := n.life
	n.life = nil
	go func() {
		defer close(x.closed)
		_ = x.engine.Close()
	}()
}

// gather blocks a committer at the gate of the simulation, so that all commands of the next batch can
// arrive before the driver lets the batch go. Only one committer waits there at a time. A second
// committer would wait or not, depending on whether the commands arrived before or after its last
// commit was complete, and the Go scheduler decides that.
func (x *life) gather(urgent bool) bool {
	if x.dead.Load() {
		return true
	}
	name, waits := x.name, &x.batchWaits
	if urgent {
		name, waits = name+" pulse", &x.beatsWait
	}
	if !waits.CompareAndSwap(false, true) {
		return false
	}
	x.store.w.gate.pass(context.Background(), &ticket{place: atBatch, name: name, life: x})
	waits.Store(false)
	return true
}

// settle lets the scheduler of the life go on when the seed decides so.
func (x *life) settle() {
	if !x.dead.Load() {
		x.store.w.gate.pass(context.Background(), &ticket{place: atBatch, name: x.name + " schedule", life: x})
	}
}

// unique returns a name that no other goroutine of this node gets until the caller calls free.
// Committers that wait at the same time get numbered names, in the order in which they arrived.
func (x *life) unique(base string) (name string, free func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	name = base
	for n := 2; x.names[name]; n++ {
		name = fmt.Sprint(base, " ", n)
	}
	x.names[name] = true
	return name, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.names, name)
	}
}

// planned returns the fate of a commit (whether it fails, for example), if the simulation's driver
// decided it together with the fate of the commit's batch.
func (x *life) planned(op string) *fate {
	if op != "commit" {
		return nil
	}
	f := x.commitFate
	x.commitFate = nil
	return f
}

// order returns a comparison that sorts the commands of a batch by a hash, in the same order in every
// run of a seed.
func (w *world) order(salt int) func(a, b machine.Command) int {
	rank := func(c machine.Command) (uint64, string) {
		s := identity(c)
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, w.seed, salt, s)
		return h.Sum64(), s
	}
	return func(a, b machine.Command) int {
		ra, sa := rank(a)
		rb, sb := rank(b)
		return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(sa, sb))
	}
}

// identity returns a text that distinguishes a command from the other commands of a batch. The text
// leaves out random values that depend on the order of goroutines.
func identity(c machine.Command) string {
	switch c := c.(type) {
	case *machine.Submit:
		return fmt.Sprintf("submit %x %s", c.ID, c.IdempotencyKey)
	case *machine.Act:
		return fmt.Sprintf("act %x %s %x", c.Execution, c.Action, c.Op)
	case *machine.Deliver:
		return fmt.Sprintf("deliver %x %x", c.Execution, c.Op)
	case *machine.Open:
		return "open " + c.Name
	case *machine.Claim:
		return fmt.Sprintf("claim %x %d %t", c.Worker, c.Number, c.Assign)
	case *machine.Accept:
		return fmt.Sprintf("accept %x %x %d", c.Worker, c.Execution, c.Token)
	case *machine.Mailbox:
		return fmt.Sprintf("mailbox %x %q", c.Worker, c.Queue)
	case *machine.Undeliver:
		return fmt.Sprintf("undeliver %x %d", c.Execution, c.Token)
	case *machine.Heartbeat:
		return fmt.Sprintf("heartbeat %x %d", c.Worker, c.ClaimSeen)
	case *machine.Cordon:
		return fmt.Sprintf("cordon %x %v %s %s", c.Worker, c.Off, c.Actor, c.Reason)
	case *machine.Probe:
		return fmt.Sprintf("probe %x %q", c.Worker, c.Error)
	case *machine.Drain:
		return fmt.Sprintf("drain %x", c.Worker)
	case *machine.End:
		return fmt.Sprintf("end %x", c.Worker)
	case *machine.Expire:
		return fmt.Sprintf("expire %x", c.Worker)
	case *machine.Save:
		return fmt.Sprintf("save %x %d %s %s", c.Lease.Execution, c.Lease.Token, c.Kind, c.Key)
	case *machine.Settle:
		return fmt.Sprintf("settle %x %d %s", c.Lease.Execution, c.Lease.Token, c.Outcome)
	case *machine.Append:
		return fmt.Sprintf("append %x %d %s %d", c.Lease.Execution, c.Lease.Token, c.Name, c.N)
	case *machine.CallTarget:
		return fmt.Sprintf("target %x %d %s %s %s", c.Lease.Execution, c.Lease.Token, c.Target, c.Step, c.Outcome)
	case *machine.Lock:
		return fmt.Sprintf("lock %x %x", c.Execution, c.ID)
	case *machine.Renew:
		return fmt.Sprintf("renew %x %x %d", c.Execution, c.Worker, c.Token)
	case *machine.Vacate:
		return fmt.Sprintf("vacate %x", c.Worker)
	case *machine.Lose:
		return fmt.Sprintf("lose %x %d", c.Execution, c.Token)
	case *machine.Release:
		return fmt.Sprintf("release %x %d", c.Execution, c.Token)
	case *machine.Tick:
		return fmt.Sprintf("tick %x", c.Execution)
	case *machine.Progress:
		return fmt.Sprintf("progress %x %d", c.Execution, c.Token)
	case *machine.NoWorker:
		return fmt.Sprintf("no worker %x", c.Execution)
	case *machine.CancelChild:
		return fmt.Sprintf("cancel child %x", c.Execution)
	case *machine.EditLetter:
		return fmt.Sprintf("edit letter %x %d %x", c.Execution, c.Generation, c.Op)
	case *machine.PutSchedule:
		return fmt.Sprintf("put schedule %s %x", c.Name, c.Op)
	case *machine.ChangeSchedule:
		return fmt.Sprintf("change schedule %s %s %x", c.Name, c.Action, c.Op)
	case *machine.Fire:
		s := fmt.Sprintf("fire %s %d %d %s", c.Name, c.Edit, c.From, c.Action)
		if c.From == 0 {
			s += fmt.Sprintf(" %x %d", c.Slots[0].Op, c.Slots[0].Slot)
		}
		return s
	case *machine.PutWebhook:
		return fmt.Sprintf("put webhook %s %x", c.Name, c.Op)
	case *machine.ChangeWebhook:
		return fmt.Sprintf("change webhook %s %s %x", c.Name, c.Action, c.Op)
	case *machine.Receive:
		return fmt.Sprintf("receive %s %d %s %s %x", c.Event.Webhook, c.Edit, c.Event.ID, c.Event.By, c.Op)
	case *machine.PutTarget:
		return fmt.Sprintf("put target %s %x", c.Name, c.Op)
	case *machine.ChangeTarget:
		return fmt.Sprintf("change target %s %s %x", c.Name, c.Action, c.Op)
	case *machine.TestTarget:
		return fmt.Sprintf("test target %s %x", c.Name, c.Op)
	case *machine.RaiseAlerts:
		return fmt.Sprintf("raise alerts %d", c.Version)
	case *machine.Unspend:
		return fmt.Sprintf("unspend %x", c.Execution)
	case *machine.CancelReplaced:
		return fmt.Sprintf("cancel replaced %s %x", c.Gate, c.Execution)
	case *machine.SetGate:
		return fmt.Sprintf("set gate %s %s %x", c.Gate, c.Action, c.Op)
	case *machine.SignOut:
		return fmt.Sprintf("sign out %x %d", c.Key, c.Until)
	case *machine.Admit:
		return fmt.Sprintf("admit %s %d", c.Gate, c.Heads)
	case *machine.Outcome:
		return fmt.Sprintf("outcome %s %t %t", c.Target, c.Failed, c.Probe)
	default:
		return fmt.Sprintf("%T", c)
	}
}
