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

// Clock is a clock that also counts the time during which the machine sleeps. Boottime returns the
// time since a fixed moment, which may be any moment.
type Clock interface{ Boottime() time.Duration }

// Options configure a worker. The zero value has good defaults.
type Options struct {
	// Concurrency is the maximum number of functions that run at a time; 0 means
	// DefaultConcurrency. In addition, the same number of runs may be waiting for the store to save
	// the results of their functions.
	Concurrency int
	// Queues are the queues from which the worker claims; none means "default". Queues with work of
	// the same priority take turns, whatever the number of executions in each queue.
	Queues []string
	// Labels are the labels of the worker. Only workers that have the label of an execution (see
	// belay.WorkerLabel) claim that execution.
	Labels map[string]string
	// Name is the name of the worker for people; "" means the host's name and the process id.
	Name string
	// Version is the version of the program for people.
	Version string

	// TTL is how long the session is valid after a heartbeat. After a crash of the worker, other
	// workers continue its executions after at most this time. 0 means belay.DefaultTTL; the
	// minimum is belay.MinTTL.
	TTL time.Duration
	// Heartbeat is the interval between heartbeats; 0 means a third of the TTL. With a longer
	// interval, one lost heartbeat may cost the session. The minimum is belay.MinHeartbeat.
	Heartbeat time.Duration
	// Grace is the grace period of a graceful shutdown: how long running functions may continue
	// after the worker was stopped. 0 means DefaultGrace; a negative value means that their
	// contexts end at once.
	Grace time.Duration
	// Unwind is how long functions may take to return after Grace is over and their contexts have
	// ended; 0 means DefaultUnwind. If a function has not returned by then, Run returns an error
	// and does not close the session. The leases then expire after the TTL, so that no other worker
	// begins an execution while its function may still run.
	Unwind time.Duration
	// MaxFreeze is how long runs may stay frozen while the store cannot be reached, before the
	// worker ends the runs; 0 means DefaultMaxFreeze, and a negative value means that the worker
	// ends frozen runs at once.
	MaxFreeze time.Duration
	// Linger is how long a run keeps its slot while all its branches wait, before the run suspends,
	// if the worker has free slots; 0 means DefaultLinger, and a negative value means that the run
	// suspends at once. A run also suspends at once if no wait can end within this time.
	Linger time.Duration

	// Broker is the URL of the RabbitMQ through which servers dispatch some of their queues, as in
	// amqp://user:password@host:5672/vhost, or amqps:// for TLS. The worker learns from messages which
	// executions are scheduled to it, and accepts them at the server. Empty, or while the worker cannot reach
	// RabbitMQ, it claims all its executions.
	Broker string

	// Health answers health probes for the worker; nil for none. The server to which the worker connects
	// gives it no new work while the probes fail. If the engine runs in the worker's process, no server
	// probes the worker.
	Health *Health

	// Log gets messages for operators; nil means slog.Default().
	Log *slog.Logger

	// Process identifies this process, so that an engine on the same host can prove that the
	// process has ended. If it is zero, the worker determines it, on systems where that is
	// possible.
	Process belay.Process
	// Clock is the clock of the fence (see the package comment); nil means CLOCK_BOOTTIME.
	Clock Clock
	// IDs returns 16 unpredictable bytes, different in each call, for ids and jitter; nil means
	// crypto/rand.
	IDs func() [16]byte
}

type boottime struct{}

func (boottime) Boottime() time.Duration { return host.Boottime() }

// alarm returns an alarm that fires by the clock of the fence.
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

// or returns d if it is positive, the default if d is 0, and 0 if d is negative.
func or(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return max(d, 0)
}
