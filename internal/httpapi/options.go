package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/belaydev/belay"
)

// Keys proves who asks.
type Keys interface {
	// KeyOf finds the living key of a secret; CodeUnauthorized if there is
	// none.
	KeyOf(ctx context.Context, secret string) (belay.Key, error)
	// HasKeys reports whether there is a key at all.
	HasKeys(ctx context.Context) (bool, error)
}

// Rate bounds how many requests one key, or one address where there are no keys,
// may make.
type Rate struct {
	// PerSecond is the lasting rate and Burst what may come at once. Zero
	// means DefaultRate; PerSecond below zero means no bound.
	PerSecond float64
	Burst     int
}

// DefaultRate is far beyond what a program in order asks for: a worker gathers
// what it has to say into one request.
var DefaultRate = Rate{PerSecond: 10_000, Burst: 20_000}

// Options of the API; the zero value of each field has a meaning.
type Options struct {
	// Keys proves who asks; nil leaves the API open to everybody, and so does
	// InsecureNoAuth, whatever Demand and Stranger say. While there is no key it is open as well: whoever serves
	// it beyond this host must not start without one. Once a key was seen the
	// API stays closed, even if the last one is revoked.
	Keys           Keys
	InsecureNoAuth bool
	// Demand says why every request needs a key although there is none yet, and how
	// one is made; empty lets everybody in until there is one.
	Demand string
	// Stranger refuses a request that came without a key, where none is needed, and
	// says why: its caller is not trusted. nil trusts everybody.
	Stranger func(*http.Request) error
	// Hire refuses the session of a worker whose request came without a key, where none
	// is needed, and not over a unix socket; nil takes all.
	Hire func(*belay.WorkerSpec) error
	// Admit judges submissions by the name of their workflow, whatever route they come
	// by; one without is taken as it is.
	Admit map[string]Admission
	// Crowded says why new work is refused at the moment; nil takes it always. A batch
	// that says it submits only is refused so before its body is read.
	Crowded func() error
	// Hosts are the names, without ports, that a request may be addressed to;
	// empty means any. It keeps web pages that point a name of their own at
	// this machine from speaking to it.
	Hosts []string
	// Origins are those whose pages may read and write, each as a browser writes it: https://app.example.org. A page
	// needs a key as every other caller does. Empty means none.
	Origins []string
	// Log gets what went wrong inside; nil means slog.Default().
	Log *slog.Logger
	// Ready is asked by /readyz; nil means always ready. Notes are worth knowing though
	// the server takes work. Of an error the message of a *belay.Error is shown, and
	// nothing else.
	Ready func(context.Context) (notes []string, err error)
	// Metrics is served at /metrics, and Pages at /, /executions and /assets/,
	// to those with the scope read. nil serves neither.
	Metrics http.Handler
	Pages   http.Handler
	// Requests gets every request when its answer is over: its method and the path of its route, both "none" where
	// no route took it, and the status. took is 0 for requests that may wait or stream. nil is told nothing.
	Requests func(method, route string, status int, took time.Duration)
	// Extra are further routes behind the same checks.
	Extra []Route
	// Version is told by /healthz and the OpenAPI document.
	Version string
	// Rate bounds requests; those over a unix socket are not counted.
	Rate Rate
	// Waiting is how many requests of one caller may wait or stream at the same time; 0
	// for any number. Those over a unix socket are not counted.
	Waiting int
	// Bodies is how many bytes of large request bodies are held at the same
	// time; others wait a moment and are then refused with CodeUnavailable. 0
	// means 128 MiB. What the server needs for them is about three times that.
	Bodies int64
	// Reading is the room of readers of logs, which others may share; nil makes one.
	Reading *Reading
	// Stopping is closed when the server begins to stop: what waits answers
	// at once.
	Stopping <-chan struct{}

	// BodyTimeout is how long a request's body may take to arrive, and
	// WriteTimeout how long a client may take to accept what is written to it
	// at a time. 0 means 30 s and 10 s.
	BodyTimeout, WriteTimeout time.Duration
	// Ping is how often a stream of events without any says that it is alive;
	// 0 means 15 s.
	Ping time.Duration
	// Now is the clock of rate limits; nil means time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Rate.PerSecond == 0 {
		o.Rate = DefaultRate
	}
	if o.BodyTimeout == 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.Ping == 0 {
		o.Ping = 15 * time.Second
	}
	if o.Bodies == 0 {
		o.Bodies = 128 << 20
	}
	if o.Reading == nil {
		o.Reading = NewReading()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
