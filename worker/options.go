package worker

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/run"
)

// Defaults of Options.
const (
	DefaultConcurrency = 10
	DefaultGrace       = 30 * time.Second
	DefaultUnwind      = 5 * time.Second
	DefaultMaxFreeze   = 5 * time.Minute
	DefaultLinger      = time.Second
)

// Clock reads a clock that counts the time the machine sleeps, from any origin.
type Clock interface{ Boottime() time.Duration }

// Options tell a worker how to work. The zero value is what most want.
type Options struct {
	// Concurrency is how many functions run at a time; 0 means
	// DefaultConcurrency. The ends of as many others may be on their way to
	// the store.
	Concurrency int
	// Queues are those to take from; none means "default". Of several those that have
	// work of one priority take turns, however much waits in each.
	Queues []string
	// Labels are what executions may ask for with belay.WorkerLabel.
	Labels map[string]string
	// Name is for people; "" means the host's name and the process id.
	Name string
	// Version is that of the program, for people.
	Version string

	// TTL is how long the session lives after a heartbeat, and so how long it
	// takes until the work of a worker that died goes on elsewhere. 0 means
	// belay.DefaultTTL; at least belay.MinTTL.
	TTL time.Duration
	// Heartbeat is how often it is sent; 0 means a third of the TTL, and more
	// than that is unwise. At least belay.MinHeartbeat.
	Heartbeat time.Duration
	// Grace is how long running work may go on after the worker was told to
	// stop; 0 means DefaultGrace, below 0 means not at all.
	Grace time.Duration
	// Unwind is how long functions may take to return once their context has
	// ended, after the grace; 0 means DefaultUnwind. What has not returned by
	// then is given up: Run returns an error, and the leases of the worker are left
	// to run out, so that nobody begins an execution beside a function that goes on.
	Unwind time.Duration
	// MaxFreeze is how long work may stay frozen while the store cannot be
	// reached, before it is ended; 0 means DefaultMaxFreeze, below 0 means not
	// at all.
	MaxFreeze time.Duration
	// Linger is how long a run all of which waits keeps its worker before it
	// suspends, if the worker has other slots free; 0 means DefaultLinger,
	// below 0 means not at all. A wait known to last longer suspends at once.
	Linger time.Duration

	// Log receives what an operator should know; nil means slog.Default().
	Log *slog.Logger

	// Process identifies this process, so that its death can be proven on its
	// host; zero means that it is found out where that is possible.
	Process belay.Process
	// Clock is the clock of the fence; nil means CLOCK_BOOTTIME.
	Clock Clock
	// IDs gives 16 unpredictable bytes that do not repeat, for ids and jitter;
	// nil means crypto/rand.
	IDs func() [16]byte
}

type boottime struct{}

func (boottime) Boottime() time.Duration { return host.Boottime() }

// alarm makes an alarm by the clock of the fence.
func (w *Worker) alarm(fire func()) run.Alarm { return host.NewAlarm(w.o.Clock.Boottime, fire) }

func random() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

func (o Options) withDefaults() Options {
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			name = "worker"
		}
		o.Name = fmt.Sprintf("%s/%d", name, os.Getpid())
	}
	o.Grace = or(o.Grace, DefaultGrace)
	o.Unwind = or(o.Unwind, DefaultUnwind)
	o.MaxFreeze = or(o.MaxFreeze, DefaultMaxFreeze)
	o.Linger = or(o.Linger, DefaultLinger)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Process == (belay.Process{}) {
		if p, err := host.Self(); err == nil {
			o.Process = belay.Process(p)
		}
	}
	if o.Clock == nil {
		o.Clock = boottime{}
	}
	if o.IDs == nil {
		o.IDs = random
	}
	return o
}

// or is d, what is meant by 0, or 0 for what is below.
func or(d, zero time.Duration) time.Duration {
	if d == 0 {
		return zero
	}
	return max(d, 0)
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
