package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

// book implements Sessions for a test, and keeps the results of probes.
type book struct {
	mu      sync.Mutex
	workers map[belay.WorkerID]belay.Worker
	reads   int
	results []string
}

func (b *book) Living(_ context.Context, ids []belay.WorkerID) ([]belay.Worker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	var all []belay.Worker
	for _, id := range ids {
		if w, ok := b.workers[id]; ok {
			all = append(all, w)
		}
	}
	return all, nil
}

func (b *book) Probed(_ context.Context, id belay.WorkerID, failure string) (belay.WorkerState, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results = append(b.results, strings.TrimSpace(b.workers[id].Name+" "+failure))
	return 0, nil
}

// take returns the results since the last call, in order.
func (b *book) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := strings.Join(b.results, ", ")
	b.results = nil
	return all
}

// add adds a worker with a TTL of 15 s.
func (b *book) add(n int, health string) belay.WorkerID {
	id := belay.WorkerID{byte(n >> 8), byte(n)}
	b.workers[id] = belay.Worker{WorkerSpec: belay.WorkerSpec{
		ID: id, Name: fmt.Sprintf("w%d", n), Health: health, TTL: belay.Duration(15 * time.Second),
	}}
	return id
}

func started(t *testing.T, ask func(context.Context, netip.AddrPort) (string, error)) (*Prober, *book) {
	t.Helper()
	p := New(30*time.Second, Rules{}, slog.New(slog.DiscardHandler))
	b := &book{workers: make(map[belay.WorkerID]belay.Worker)}
	p.ask = ask
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx, b)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return p, b
}

var host = netip.MustParseAddr("10.0.0.7")

// Rule: a worker is probed when the server first hears from it and then once per interval, while it
// sends heartbeats to this server; after a failure it is probed again soon. A worker without an
// address, or at an address that the rules refuse, is not probed.
func TestAWorkerIsProbedOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := started(t, func(_ context.Context, to netip.AddrPort) (string, error) {
			switch to.String() {
			case "10.0.0.7:9001":
				return "", nil
			case "10.0.0.7:9002":
				return "refused", nil
			}
			return "", errors.New("this address must not be probed")
		})
		well, ill := b.add(1, ":9001"), b.add(2, "10.0.0.7:9002")
		others := []belay.WorkerID{b.add(3, ""), b.add(4, "10.0.0.8:9004"), {9}}
		beat := func(ids ...belay.WorkerID) {
			for _, id := range ids {
				p.Heard(id, host)
			}
		}
		beat(append(others, well, ill)...)
		time.Sleep(2 * time.Second)
		if got := b.take(); got != "w1, w2 refused" && got != "w2 refused, w1" {
			t.Errorf("at first: %s", got)
		}
		for range 9 {
			time.Sleep(3 * time.Second)
			beat(well, ill)
		}
		if got := b.take(); got != "w2 refused"+strings.Repeat(", w2 refused", 4) {
			t.Errorf("within the interval: %s", got)
		}
		time.Sleep(3 * time.Second)
		if got := b.take(); got != "w1, w2 refused" && got != "w2 refused, w1" {
			t.Errorf("after the interval: %s", got)
		}
		if b.reads > 2 {
			t.Errorf("the store was read %d times", b.reads)
		}
		for range 12 { // only well sends heartbeats: the worker ill now uses another server
			time.Sleep(5 * time.Second)
			beat(well)
		}
		if got := b.take(); !strings.HasSuffix(got, "w1, w1") || strings.Count(got, "w2") > 3 {
			t.Errorf("of a worker that has left: %s", got)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.heard) != 1 {
			t.Errorf("%d sessions are remembered", len(p.heard))
		}
	})
}

// Rule: the probes in flight are bounded, for one host and in total, and workers on one host that do
// not answer do not delay the probes of another host.
func TestSlowWorkersDelayNoOtherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		inFlight, highest := 0, 0
		p, b := started(t, func(ctx context.Context, to netip.AddrPort) (string, error) {
			if to.Addr() != host {
				return "", nil
			}
			mu.Lock()
			inFlight++
			highest = max(highest, inFlight)
			mu.Unlock()
			select {
			case <-time.After(timeLimit):
			case <-ctx.Done():
			}
			mu.Lock()
			inFlight--
			mu.Unlock()
			return "no answer", nil
		})
		for n := range 5000 {
			p.Heard(b.add(n, ":9001"), host)
		}
		time.Sleep(2 * time.Second)
		p.Heard(b.add(5000, ":9001"), netip.MustParseAddr("10.0.0.9"))
		time.Sleep(3 * time.Second)
		if got := b.take(); !strings.Contains(got, "w5000") {
			t.Errorf("the other host was not probed among %d results", strings.Count(got, ",")+1)
		}
		mu.Lock()
		defer mu.Unlock()
		if highest != mostOfHost {
			t.Errorf("%d probes of one host were in flight", highest)
		}
	})
}
