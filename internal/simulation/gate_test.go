package simulation

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// fate is the driver's decision about a call at the gate.
type fate uint8

const (
	goes    fate = iota // carried out and answered
	fails               // not carried out; the caller learns that its outcome is unknown
	unheard             // carried out; the caller learns that its outcome is unknown
	dies                // the caller is gone
)

func (f fate) String() string { return [...]string{"goes", "fails", "unheard", "dies"}[f] }

// place is the place where a call has stopped.
type place uint8

const (
	atBatch   place = iota // a committer is about to take the queued commands
	atStore                // between an engine and the store
	onRequest              // on the way from a worker or client to a node
	onReply                // on the way back
)

func (p place) String() string { return [...]string{"batch", "store", "request", "reply"}[p] }

// ticket is a call that has stopped at the gate.
type ticket struct {
	place place
	// name distinguishes the tickets that wait at the same time, and is the same in every run of
	// a seed.
	name string
	life *life // the life of the node that makes the call, at the batch and at the store
	link *link // the link that carries the call, on the way there or back
	// onWire says that the call had left its process before the process was stopped.
	onWire bool

	since time.Duration // when it stopped at the gate
	until time.Duration // the driver must not let it go earlier
	fate  chan fate
}

// gate stops every call until the driver lets it go. Before the driver lets the next call go, all
// effects of the last one have come to rest, so the driver alone decides the order of events.
type gate struct {
	began   time.Time
	mu      sync.Mutex
	held    []*ticket // by name
	arrived chan struct{}
	// twins counts names that two waiting calls had at the same time: the seed does not decide
	// which of the two goes first.
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

// let lets a waiting call go with its fate.
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

// those lists the waiting calls that meet a condition, by name.
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

// errUnknown is the error of a call whose outcome is unknown to its caller.
func errUnknown(op string) error {
	return &belay.Error{Code: belay.CodeUnavailable, Op: op, Message: "no answer came; it may have happened or not"}
}

// errGone is the error of a call of a process that is gone; no code receives it.
var errGone error = &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: "this process is gone"}

type actorKey struct{}

// withActor notes for whom a call is made, so that the calls it makes to the store have names of
// their own.
func withActor(actor string) context.Context {
	return context.WithValue(context.Background(), actorKey{}, actor)
}

func actorOf(ctx context.Context) string {
	s, _ := ctx.Value(actorKey{}).(string)
	return s
}
