package probe

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// Sessions is the part of an engine that a Prober needs.
type Sessions interface {
	// Living lists the sessions with these ids that have not ended.
	Living(ctx context.Context, ids []belay.WorkerID) ([]belay.Worker, error)
	// Probed records the result of a probe; failure is empty if the worker is healthy. It returns the
	// new state of the session, or 0 if the state is the same as before.
	Probed(ctx context.Context, w belay.WorkerID, failure string) (belay.WorkerState, error)
}

const (
	// most is the maximum number of probes of a server that are in flight at the same time.
	most = 256
	// mostOfHost is the maximum number of probes of one address that are waiting or in flight at
	// the same time, so that workers on one host that answer slowly do not delay the probes of
	// other hosts.
	mostOfHost = 32
	// look is how often the Prober looks for workers to probe.
	look = time.Second / 4
	// first is how soon a worker is probed for the first time. After the server has opened a
	// session, the worker needs a moment until it knows the session.
	first = time.Second
	// again is how soon a worker whose probe has failed is probed again, unless the interval is shorter.
	again = 5 * time.Second
	// mostLearned is the maximum number of sessions that the Prober reads from the store at once.
	mostLearned = 1000
)

// Prober probes the workers that send their heartbeats to this server. A worker is probed for the
// first time soon after the server has received a request of its session, and then once per interval,
// or more often while its probes fail.
type Prober struct {
	rules    Rules
	interval time.Duration
	log      *slog.Logger
	ask      func(context.Context, netip.AddrPort) (string, error)

	mu    sync.Mutex
	heard map[belay.WorkerID]*session
}

// session is the session of a worker that has sent a request to this server.
type session struct {
	id    belay.WorkerID
	from  netip.Addr // the address from which the worker connects; zero if unknown
	heard time.Time
	next  time.Time // the time of the next probe
	busy  bool      // a probe is waiting or in flight

	// The following fields are set once known is true.
	known        bool
	name, health string
	ttl          time.Duration
}

// New makes a Prober; Run starts it.
func New(interval time.Duration, r Rules, log *slog.Logger) *Prober {
	return &Prober{
		rules: r, interval: interval, log: log, heard: make(map[belay.WorkerID]*session),
		ask: func(ctx context.Context, to netip.AddrPort) (string, error) { return ask(ctx, to, timeLimit) },
	}
}

// Warning says why the server will not probe a worker that gave the address health and connects from
// the address from; empty if the server will probe it.
func (p *Prober) Warning(health string, from netip.Addr) string {
	if _, err := p.rules.Target(health, from); err != nil {
		return "the server does not probe the health of this worker: " + err.Error()
	}
	return ""
}

// Heard records that the engine has accepted a request of a session, which came from the address
// from.
func (p *Prober) Heard(id belay.WorkerID, from netip.Addr) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.heard[id]
	if s == nil {
		s = &session{id: id, next: now.Add(first)}
		p.heard[id] = s
	}
	s.from, s.heard = from, now
}

// Run probes workers until ctx ends.
func (p *Prober) Run(ctx context.Context, of Sessions) {
	var probes sync.WaitGroup
	defer probes.Wait()
	free := make(chan struct{}, most)
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		p.learn(ctx, of)
		for _, d := range p.due(time.Now()) {
			select {
			case <-ctx.Done():
				return
			case free <- struct{}{}:
			}
			probes.Go(func() {
				defer func() { <-free }()
				p.probe(ctx, of, d)
			})
		}
	}
}

// learn reads sessions from the store if the Prober knows only their ids.
func (p *Prober) learn(ctx context.Context, of Sessions) {
	ids := p.unknown()
	if len(ids) == 0 {
		return
	}
	found, err := of.Living(ctx, ids)
	if err != nil {
		p.log.Debug("read the sessions of workers to probe", "error", err)
		return // the next look tries again
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range found {
		if s := p.heard[found[i].ID]; s != nil {
			s.known, s.name, s.health, s.ttl = true, found[i].Name, found[i].Health, found[i].TTL.D()
		}
	}
	for _, id := range ids {
		if s := p.heard[id]; s != nil && !s.known {
			delete(p.heard, id) // the session has ended
		}
	}
}

func (p *Prober) unknown() []belay.WorkerID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []belay.WorkerID
	for id, s := range p.heard {
		if !s.known && len(ids) < mostLearned {
			ids = append(ids, id)
		}
	}
	return ids
}

// target is a session to probe, with its address.
type target struct {
	*session
	to netip.AddrPort
}

// due returns the sessions to probe now, those that have waited longest first, and forgets the
// sessions whose workers no longer send heartbeats to this server.
func (p *Prober) due(now time.Time) []target {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []target
	ofHost := make(map[netip.Addr]int)
	for id, s := range p.heard {
		if s.known && !s.busy && now.Sub(s.heard) > s.ttl {
			delete(p.heard, id)
		}
		if !s.known || s.health == "" || !s.busy && (s.next.After(now) || now.Sub(s.heard) > s.ttl) {
			continue
		}
		to, err := p.rules.Target(s.health, s.from)
		if err != nil {
			continue
		}
		if s.busy {
			ofHost[to.Addr()]++
		} else {
			all = append(all, target{s, to})
		}
	}
	slices.SortFunc(all, func(a, b target) int {
		return cmp.Or(a.next.Compare(b.next), slices.Compare(a.id[:], b.id[:]))
	})
	all = slices.DeleteFunc(all, func(t target) bool {
		ofHost[t.to.Addr()]++
		return ofHost[t.to.Addr()] > mostOfHost
	})
	for _, t := range all {
		t.busy, t.session.next = true, now.Add(p.interval)
	}
	return all
}

// probe probes one worker and records the result.
func (p *Prober) probe(ctx context.Context, of Sessions, t target) {
	failure, err := p.ask(ctx, t.to)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		t.busy = false
		if soon := time.Now().Add(again); failure != "" && soon.Before(t.next) {
			t.next = soon
		}
	}()
	if err != nil {
		if ctx.Err() == nil {
			p.log.Warn("a worker could not be probed", "worker", t.id, "name", t.name, "address", t.to, "error", err)
		}
		return
	}
	switch state, err := of.Probed(ctx, t.id, failure); {
	case err != nil: // the session has ended, or the store cannot be written
		p.log.Debug("record the health of a worker", "worker", t.id, "error", err)
	case state == belay.WorkerUnhealthy:
		p.log.Warn("a worker is unhealthy and gets no new work", "worker", t.id, "name", t.name, "address", t.to,
			"error", failure)
	case state == belay.WorkerOpen:
		p.log.Info("a worker is healthy again", "worker", t.id, "name", t.name, "address", t.to)
	}
}
