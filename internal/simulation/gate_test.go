package simulation

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// fate is the decision of the driver (the goroutine that runs the simulation) about a waiting call.
type fate uint8

const (
	goes    fate = iota // the call is carried out, and its caller gets the answer
	fails               // the call is not carried out; its caller gets the error that the outcome is unknown
	unheard             // the call is carried out; its caller gets the error that the outcome is unknown
	dies                // the caller's process has ended
)

func (f fate) String() string { return [...]string{"goes", "fails", "unheard", "dies"}[f] }

// place says where a call has stopped on its way to the store and back. It is unrelated to the
// places of Belay's gates.
type place uint8

const (
	atBatch   place = iota // a batch waits before its committer takes the queued commands
	atStore                // a call waits between an engine and the store
	onRequest              // a call waits on the way from a worker or client to a node
	onReply                // a reply waits on the way back to a worker or client
)

func (p place) String() string { return [...]string{"batch", "store", "request", "reply"}[p] }

// ticket is a call that has stopped at the gate, where it waits for the decision of the simulation.
type ticket struct {
	place place
	// name distinguishes the calls that wait at the same time, and is the same in every run of a
	// seed.
	name string
	life *life // for a batch and at the store: the life of the node that makes the call
	link *link // for a request and a reply: the link that carries the call
	// onWire says that the request had left its process before the process was stopped.
	onWire bool

	since time.Duration // the time at which the call stopped at the gate
	until time.Duration // the driver must not let the call go before this time
	fate  chan fate
}

// gate stops every call until the driver (the goroutine that runs the simulation) lets it go.
// Before the driver lets the next call go, the effects of the last call are complete and all
// goroutines wait, so the driver alone decides the order of events.
type gate struct {
	began   time.Time
	mu      sync.Mutex
	held    []*ticket // sorted by name
	arrived chan struct{}
	// twins counts the names that two waiting calls had at the same time. The seed does not decide
	// which of two such calls goes first, so the simulation is not reproducible.
	twins map[string]int
}

func newGate() *gate {
	return &gate{began: time.Now(), arrived: make(chan struct{}, 1), twins: make(map[string]int)}
}

func (g *gate) now() time.Duration { return time.Since(g.began) }

// pass blocks until the simulation's driver decides what happens to the call (its fate), or ctx
// ends.
func (g *gate) pass(ctx context.Context, t *ticket) fate {
	t.fate = make(chan fate, 1)
	g.mu.Lock()
	t.since = g.now()
	i, twin := slices.BinarySearchFunc(g.held, t, byName)
	if twin {
		g.twins[t.name]++
	}
	g.held = slices.Insert(g.held, i, t)
	g.mu.Unlock()
	select {
	case g.arrived <- struct{}{}:
	default:
	}
	select {
	case f := <-t.fate:
		return f
	case <-ctx.Done():
		g.remove(t)
		return dies
	}
}

func byName(a, b *ticket) int {
	return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.name, b.name))
}

// let removes the call t from the gate and sends it the driver's decision f. The goroutine that
// waits in pass then gets f. If t no longer waits at the gate, let does nothing.
func (g *gate) let(t *ticket, f fate) {
	if g.remove(t) {
		t.fate <- f
	}
}

func (g *gate) remove(t *ticket) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.held, t)
	if i >= 0 {
		g.held = slices.Delete(g.held, i, i+1)
	}
	return i >= 0
}

// those returns the waiting calls for which the function wanted returns true, sorted by name.
func (g *gate) those(wanted func(*ticket) bool) []*ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*ticket
	for _, t := range g.held {
		if wanted(t) {
			out = append(out, t)
		}
	}
	return out
}

// errUnknown returns the error of a call that may have been carried out or not.
func errUnknown(op string) error {
	return &belay.Error{Code: belay.CodeUnavailable, Op: op, Message: "no answer came; it may have happened or not"}
}

// errGone is the error of a call whose process has ended. No code receives it.
var errGone error = &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: "this process is gone"}

type actorKey struct{}

// withActor returns a context that names the actor of a call, so that each call to the store has
// the actor in its name.
func withActor(actor string) context.Context {
	return context.WithValue(context.Background(), actorKey{}, actor)
}

func actorOf(ctx context.Context) string {
	s, _ := ctx.Value(actorKey{}).(string)
	return s
}
