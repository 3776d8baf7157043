package simulation

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// fate is what becomes of a call at the gate.
type fate uint8

const (
	goes    fate = iota // carried out and answered
	fails               // not carried out; the caller is told that it may have been
	unheard             // carried out; the caller is told that it may have been
	dies                // whoever called is gone
)

func (f fate) String() string { return [...]string{"goes", "fails", "unheard", "dies"}[f] }

// place is where a call is held.
type place uint8

const (
	atBatch   place = iota // a committer is about to take what has queued
	atStore                // between an engine and the store
	onRequest              // on the way from a worker or client to a node
	onReply                // on the way back
)

func (p place) String() string { return [...]string{"batch", "store", "request", "reply"}[p] }

// ticket is a call held at the gate.
type ticket struct {
	place place
	// name tells the tickets apart that are held together, the same in every
	// run of a seed.
	name string
	life *life // of the node whose call it is, at the batch and at the store
	link *link // over which it comes, on the way
	// onWire says that it has left a process that was stopped since.
	onWire bool

	since time.Duration // held
	until time.Duration // not to be let go before
	fate  chan fate
}

// gate holds every call until the driver lets it go. What a call sets off comes
// to rest before the next one goes, so that the order in which things happen is
// the driver's choice and nobody else's.
type gate struct {
	began   time.Time
	mu      sync.Mutex
	held    []*ticket // by name
	arrived chan struct{}
	// twins are names that two held calls had at a time: which of them goes
	// first is not the driver's choice.
	twins map[string]int
}

func newGate() *gate {
	return &gate{began: time.Now(), arrived: make(chan struct{}, 1), twins: make(map[string]int)}
}

func (g *gate) now() time.Duration { return time.Since(g.began) }

// pass blocks until the driver decides, or ctx ends.
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

// let has a held call go to its fate.
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

// those are the held calls for which a condition holds, by name.
func (g *gate) those(holds func(*ticket) bool) []*ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*ticket
	for _, t := range g.held {
		if holds(t) {
			out = append(out, t)
		}
	}
	return out
}

// errUnknown is what a call is told whose fate nobody knows.
func errUnknown(op string) error {
	return &belay.Error{Code: belay.CodeUnavailable, Op: op, Message: "no answer came; it may have happened or not"}
}

// errGone is what a process is told that is gone: nobody hears it.
var errGone error = &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: "this process is gone"}

type actorKey struct{}

// withActor says in whose name a call is carried out, so that what it asks of
// the store has a name of its own.
func withActor(actor string) context.Context {
	return context.WithValue(context.Background(), actorKey{}, actor)
}

func actorOf(ctx context.Context) string {
	s, _ := ctx.Value(actorKey{}).(string)
	return s
}
