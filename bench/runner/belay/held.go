package belay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/worker"
)

// For overload: the number of workers with a short TTL, and the number of executions that each
// owns. These executions run until the trial is over.
const (
	holders  = 10
	heldEach = 10
	heldTTL  = 3 * time.Second
)

// holding is the state of the workers that own executions during the whole trial.
type holding struct {
	crews   []*crew
	ends    []func() error
	running atomic.Int64
	all     chan struct{} // closed when all held executions run
	release chan struct{} // closed to end the held executions

	mu    sync.Mutex
	beats []time.Duration
}

// beating is a Backend that measures how long each heartbeat takes.
type beating struct {
	belay.Backend
	of *holding
}

func (b *beating) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	begin := time.Now()
	r, err := b.Backend.Heartbeat(ctx, h)
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.of.beats = append(b.of.beats, time.Since(begin))
	return r, err
}

// holdAll starts the workers and waits until they own all executions that run during the whole
// trial.
func holdAll(ctx context.Context, connect func(context.Context) (belay.Backend, func() error, error)) (*holding,
	error) {
	h := &holding{all: make(chan struct{}), release: make(chan struct{})}
	for range holders {
		b, end, err := connect(ctx)
		if err != nil {
			return nil, err
		}
		h.ends = append(h.ends, end)
		w := worker.New(&beating{b, h}, worker.Options{Concurrency: heldEach, TTL: heldTTL, Log: quiet()})
		worker.Register(w, "held", h.hold)
		h.crews = append(h.crews, run(ctx, w))
	}
	select {
	case <-h.all:
		return h, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("%d of %d held executions run", h.running.Load(), holders*heldEach)
	}
}

func (h *holding) hold(ctx context.Context, _ struct{}) (string, error) {
	if h.running.Add(1) == holders*heldEach {
		close(h.all)
	}
	select {
	case <-h.release:
		return "", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// end ends the executions that run during the whole trial, stops their workers, and returns the times
// of the heartbeats.
func (h *holding) end() (*trial.Times, error) {
	close(h.release)
	var err error
	for _, c := range h.crews {
		err = errors.Join(err, c.stopWorking())
	}
	for _, end := range h.ends {
		err = errors.Join(err, end())
	}
	return trial.TimesOf(h.beats), err
}
