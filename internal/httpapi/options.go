package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/belaydev/belay"
)

// Keys finds the keys of callers.
type Keys interface {
	// KeyOf finds the key that has a secret. The error is CodeUnauthorized if there is no such key
	// or it was revoked.
	KeyOf(ctx context.Context, secret string) (belay.Key, error)
	// HasKeys reports whether the server has any key.
	HasKeys(ctx context.Context) (bool, error)
	// Seal finds the key with an id, and computes a code over a message that only servers with the
	// stored hash of this key can compute. The error is CodeUnauthorized if there is no such key or
	// it was revoked.
	Seal(ctx context.Context, id belay.KeyID, message []byte) (belay.Key, [32]byte, error)
	// Session is Seal for a page session that lasts until a time. The error is also CodeUnauthorized if SignOut has
	// ended the session.
	Session(ctx context.Context, id belay.KeyID, until time.Time, message []byte) (belay.Key, [32]byte, error)
	// SignOut ends the page sessions of a key that last until a time or end earlier.
	SignOut(ctx context.Context, id belay.KeyID, until time.Time) error
}

// Rate bounds how many requests one key may send, or one address if there are no keys.
type Rate struct {
	// PerSecond is the sustained rate, and Burst how many requests may come at once. Zero means
	// DefaultRate; PerSecond below zero means no bound.
	PerSecond float64
	Burst     int
}

// DefaultRate is far beyond what a well-behaved program needs: a worker sends many writes in one
// request.
var DefaultRate = Rate{PerSecond: 10_000, Burst: 20_000}

// Prober probes the health of workers at the addresses that they name when they open a session. The
// argument from is the address from which the worker connects, or the zero Addr if it is unknown.
type Prober interface {
	// Heard is called after each opened session and each heartbeat.
	Heard(w belay.WorkerID, from netip.Addr)
	// Warning says why a worker that names the address health will not be probed; empty if it will.
	Warning(health string, from netip.Addr) string
}

// Options of the API; the zero value of each field is a useful default.
type Options struct {
	// Keys finds the key of each request. Every caller is let in if Keys is nil, if InsecureNoAuth
	// is set (whatever Demand and Stranger say), or until the first key is made, so a server that
	// other hosts can reach must not start without a key. Once a key was seen, the API stays closed
	// even if the last key is revoked.
	Keys           Keys
	InsecureNoAuth bool
	// Demand is the refusal of requests without a key before the first key is made: it says why a
	// key is needed, and how to make one. If it is empty, requests need no key until the first key
	// is made.
	Demand string
	// Stranger refuses a request that came without a key while no key is needed, and says why its
	// caller is not trusted. nil trusts every caller.
	Stranger func(*http.Request) error
	// Hire is called when a worker opens a session without a key while no key is needed, except
	// over a unix socket. Its error refuses the session. nil accepts all workers.
	Hire func(*belay.WorkerSpec) error
	// Prober probes the health of workers. nil probes no worker.
	Prober Prober
	// Admit judges submissions by the name of their workflow, on every route; the submissions of a
	// workflow without an Admission are not judged.
	Admit map[string]Admission
	// Language checks and draws the documents that callers apply. nil accepts every text and draws
	// none: a process that serves only programs of its own user leaves the check to them.
	Language Language
	// Crowded returns an error if the server takes no new work at the moment; nil means that the
	// server always takes work. While Crowded returns an error, a batch whose header says that it
	// only submits is refused before its body is read.
	Crowded func() error
	// Hosts are the names, without ports, to which a request may be addressed; empty means any
	// name. The list protects against DNS rebinding: a web page whose own host name points to this
	// machine.
	Hosts []string
	// Origins are the origins whose pages may read and write, each as a browser writes it:
	// https://app.example.org. A page needs a key like every other caller. Empty means none.
	Origins []string
	// Log receives the errors inside the server; nil means slog.Default().
	Log *slog.Logger
	// Ready is called by /readyz and returns an error if the server takes no work; nil means always
	// ready. The notes are warnings for operators of a server that does take work. The answer shows
	// the message of a *belay.Error, and no other error's text.
	Ready func(context.Context) (notes []string, err error)
	// Metrics is served at /metrics, and Pages at /, /executions and /assets/, to callers with the
	// scope read. nil serves nothing there. Pages also shows the form of /login, to everybody.
	Metrics http.Handler
	Pages   http.Handler
	// Forms are the addresses to which pages send forms. Visit gives a request of the pages its visitor.
	Forms []PageForm
	Visit func(*http.Request, Visitor) *http.Request
	// Requests is called after the answer of every request with its method, the path of its route
	// (both "none" if it has no route) and the status. took is 0 for requests that may wait or
	// stream. Requests may be nil.
	Requests func(method, route string, status int, took time.Duration)
	// Hooks is shared by the APIs of one server; nil makes one for this API alone.
	Hooks *Hooks
	// Secrets finds the secrets of webhooks; nil means that there are none. Deliveries is called after each
	// delivery with the name of its webhook ("none" if there is no such webhook) and its outcome, which is that
	// of the delivery, or refused or limited. It may be nil.
	Secrets    Secrets
	Deliveries func(webhook, outcome string)
	// Queues consumes the queues of webhooks of the scheme amqp; nil means that the server has no broker.
	Queues Queues
	// Documents shows and repairs executions of documents. nil refuses these requests.
	Documents Documents
	// Extra are further routes behind the same checks.
	Extra []Route
	// Version is the version that /healthz and the OpenAPI document show.
	Version string
	// Rate bounds requests; requests over a unix socket are not counted.
	Rate Rate
	// Waiting is how many requests of one caller may wait or stream at the same time; 0 means any
	// number. Requests over a unix socket are not counted.
	Waiting int
	// Bodies is how many bytes of large request bodies are in memory at the same time; further
	// bodies wait a moment and are then refused with CodeUnavailable. 0 means 128 MiB. The server
	// needs about three times as much memory for them.
	Bodies int64
	// Reading is the memory budget for requests that read logs. Other packages that also send logs
	// to clients can use the same budget. If Reading is nil, New makes a budget for this API alone.
	Reading *Reading
	// Stopping is closed when the server begins to stop: waiting requests are answered at once.
	Stopping <-chan struct{}

	// BodyTimeout is how long a request's body may take to arrive; 0 means 30 s. WriteTimeout is
	// how long a client may take to accept one write of the answer; 0 means 10 s.
	BodyTimeout, WriteTimeout time.Duration
	// Ping is how often a stream without events sends a comment, which shows that the stream is
	// alive; 0 means 15 s.
	Ping time.Duration
	// Now is the clock of rate limits and stream tokens; nil means time.Now.
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
	if o.Documents == nil {
		o.Documents = undocumented{}
	}
	if o.Bodies == 0 {
		o.Bodies = 128 << 20
	}
	if o.Reading == nil {
		o.Reading = NewReading()
	}
	if o.Hooks == nil {
		o.Hooks = NewHooks()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
