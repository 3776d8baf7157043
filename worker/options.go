package worker

import (
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

// Clock is a clock that also counts the time during which the machine sleeps. Its origin may be any
// moment.
type Clock interface{ Boottime() time.Duration }

// Options configure a worker. The zero value has good defaults.
type Options struct {
	// Concurrency is how many functions run at a time; 0 means DefaultConcurrency. In addition, as
	// many runs whose functions have returned may be waiting for the store to save their end.
	Concurrency int
	// Queues are the queues to claim from; none means "default". Queues that have work of the same
	// priority take turns, whatever the depth of each queue.
	Queues []string
	// Labels are the labels of the worker. An execution with belay.WorkerLabel is only claimed by
	// workers that have that label.
	Labels map[string]string
	// Name is the name of the worker, for people; "" means the host's name and the process id.
	Name string
	// Version is the version of the program, for people.
	Version string

	// TTL is how long the session is valid after a heartbeat. After a crash of the worker it takes
	// at most this long until other workers continue its executions. 0 means belay.DefaultTTL; the
	// least is belay.MinTTL.
	TTL time.Duration
	// Heartbeat is the interval between heartbeats; 0 means a third of the TTL. A longer interval
	// risks the loss of the session after one lost heartbeat. The least is belay.MinHeartbeat.
	Heartbeat time.Duration
	// Grace is the grace period of a graceful shutdown: how long running functions may go on after
	// the worker was asked to stop. 0 means DefaultGrace, a negative value means no time.
	Grace time.Duration
	// Unwind is how long functions may take to return once their context has ended, after the
	// Grace; 0 means DefaultUnwind. If a function has not returned by then, Run returns an error
	// and does not close the session: the leases expire by time, so that no other worker begins an
	// execution while the function may still run.
	Unwind time.Duration
	// MaxFreeze is how long runs may stay frozen while the store cannot be reached, before the
	// worker ends them; 0 means DefaultMaxFreeze, a negative value means no time.
	MaxFreeze time.Duration
	// Linger is how long a run keeps its worker while all its branches wait, before it suspends, if
	// the worker has free slots; 0 means DefaultLinger, a negative value means no time. A run whose
	// wait is known to last longer suspends at once.
	Linger time.Duration

	// Log is the logger for messages to operators; nil means slog.Default().
	Log *slog.Logger

	// Process identifies this process, so that the engine on the same host can prove that the
	// process has ended. Zero means that the worker determines it, on systems where that is
	// possible.
	Process belay.Process
	// Clock is the clock of the fence (see the package comment); nil means CLOCK_BOOTTIME.
	Clock Clock
	// IDs returns 16 unpredictable bytes, different at each call, for ids and jitter; nil means
	// crypto/rand.
	IDs func() [16]byte
}

type boottime struct{}

func (boottime) Boottime() time.Duration { return host.Boottime() }

// alarm makes an alarm that fires by the clock of the fence.
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

// or is d, or zero if d is 0, or 0 if d is negative.
func or(d, zero time.Duration) time.Duration {
	if d == 0 {
		return zero
	}
	return max(d, 0)
}
