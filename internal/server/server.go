package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/definition/runner"
	"github.com/belaydev/belay/internal/definition/tasks"
	"github.com/belaydev/belay/internal/dispatch"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/probe"
	"github.com/belaydev/belay/internal/queuetrigger"
	"github.com/belaydev/belay/internal/telemetry"
	"github.com/belaydev/belay/internal/trace"
	"github.com/belaydev/belay/internal/webui"
)

// Engine has the calls of the engine that a server needs. An embedded.Backend implements Engine.
type Engine interface {
	belay.Backend
	httpapi.Keys
	telemetry.Source
	// Failed is closed when the store has failed for good, and Failure then says why.
	Failed() <-chan struct{}
	Failure() error
	// Crowded returns an error, with the reason, if the engine takes no new work at the moment.
	Crowded() error
	// ReadyAmong returns those of the workflows of which an execution is due.
	ReadyAmong(ctx context.Context, workflows ...string) ([]string, error)
	telemetry.Living
	probe.Sessions
	dispatch.Engine
	WebhooksChanged() <-chan struct{}
}

// Options of a server.
type Options struct {
	// Version and Commit name the build of the program.
	Version, Commit string
	// Log gets the messages for operators; nil means slog.Default().
	Log *slog.Logger
	// Ready, unless nil, is called once the server answers.
	Ready func(Listening)
	// Services run beside the server. Their context ends when the server begins to stop; they may
	// then take the rest of the grace period to finish. A service that returns before the server
	// begins to stop ends the server.
	Services []func(context.Context) error
	// Secrets finds the secrets of webhooks; nil means that there are none.
	Secrets httpapi.Secrets
	// Post dispatches executions through RabbitMQ; nil if workers claim all executions. See Post.
	Post *dispatch.Post
	// Triggers consumes the queues of webhooks of the scheme amqp; nil without a RabbitMQ. See Triggers.
	Triggers *queuetrigger.Service
	// Exchanges publishes to exchanges of RabbitMQ; nil without a RabbitMQ. /readyz tells its state.
	Exchanges *broker.Exchanges
	// Traces sends traces of executions to a collector; nil if the environment asks for none. See Traces.
	Traces *trace.Tracer
	// Builtins are the workflows that the server runs itself, besides bulks and documents.
	Builtins []Builtin
	// Agents are the options of the API for agents; nil if the server does not offer this API.
	Agents *agentapi.Options
	// Admit maps the name of a workflow to a check of submissions. The server calls the check
	// before it stores a submission of this workflow. The workflows of documents and of the agents
	// need no entry: the server and the service of Agents check their submissions.
	Admit map[string]func(*belay.Submission) error
	// Jobs describes the jobs that can reach the server. It is called once, before the server
	// listens; nil means that there are no jobs.
	Jobs func(context.Context) (Jobs, error)
	// RunsForOthers reports whether a worker runs jobs that other people submit. Such a worker
	// needs a key, unless it connects over the socket of the data directory. If RunsForOthers is
	// nil, no worker needs a key for this reason.
	RunsForOthers func(*belay.WorkerSpec) bool
}

// Listening is the address of a server that answers.
type Listening struct {
	URL string // http://HOST:PORT
	// Open says that callers need no key.
	Open bool
}

// Server serves one engine.
type Server struct {
	cfg     *config.Config
	opt     Options
	log     *slog.Logger
	metrics *telemetry.Metrics
	recent  *telemetry.Recent

	reading  *httpapi.Reading // shared by all listeners
	hooks    *httpapi.Hooks   // shared by all listeners
	prober   *probe.Prober    // shared by all listeners; nil if the configuration turns health probes off
	stopping chan struct{}    // closed when the server begins to stop
	stop     sync.Once
	alarms   map[string]alarm // the alarms of the built-in workflows, by their names

	// agents is the service of agents. The port and the socket share it, because its queue depth
	// must count the jobs from both together.
	agents *agentapi.Service
	// tasks shows the tasks of documents, on all listeners.
	tasks tasks.Viewer
	made  sync.Once
}

// New makes a server. Run opens its port.
func New(cfg *config.Config, o Options) *Server {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Server{
		cfg: cfg, opt: o, log: o.Log, metrics: telemetry.New(o.Version, o.Commit),
		recent: telemetry.NewRecent(time.Now), reading: httpapi.NewReading(),
		hooks:    httpapi.NewHooks(),
		stopping: make(chan struct{}), alarms: map[string]alarm{
			belay.BulkWorkflow: newAlarm(), runner.Workflow: newAlarm(),
		},
	}
	for _, w := range o.Builtins {
		s.alarms[w.Workflow] = newAlarm()
	}
	if cfg.HealthInterval > 0 {
		s.prober = probe.New(cfg.HealthInterval, probe.Rules{Allow: cfg.HealthAllow}, o.Log)
	}
	return s
}

// Engine returns the options with which the program must open the engine for this server.
func (s *Server) Engine() []embedded.Option {
	retention := s.cfg.Retention
	if retention == 0 {
		retention = -1 // for ever
	}
	all := []embedded.Option{
		embedded.Logger(s.log), embedded.Retention(retention), embedded.Observe(s.observe),
		embedded.DeadLetterRetention(s.cfg.LetterRetention),
		embedded.Defaults(s.cfg.Defaults.Policy()), embedded.CheckInterval(s.cfg.CheckInterval),
	}
	if s.opt.Post != nil {
		all = append(all, embedded.Courier(s.opt.Post))
	}
	if s.opt.Traces != nil {
		all = append(all, embedded.RunTrace(s.opt.Traces.RunTrace))
	}
	return all
}

// Local returns the handler for the unix socket of the data directory. It has the same routes as
// the port. Its callers are processes of this user and need no key.
func (s *Server) Local(b *embedded.Backend, stopping <-chan struct{}) http.Handler {
	o := s.api(b, stopping)
	o.InsecureNoAuth, o.Hosts, o.Origins = true, nil, nil
	return httpapi.New(b, o)
}

// api returns the options of the HTTP API that are the same for the port and for the socket.
func (s *Server) api(b Engine, stopping <-chan struct{}) httpapi.Options {
	rate := httpapi.Rate{PerSecond: float64(s.cfg.Limits.Rate), Burst: s.cfg.Limits.Burst}
	if rate.PerSecond == 0 {
		rate.PerSecond = -1
	}
	admit := map[string]httpapi.Admission{runner.Workflow: admitDocument}
	for name, judge := range s.opt.Admit {
		admit[name] = func(_ context.Context, x *belay.Submission) (func(belay.ExecutionID), error) {
			return func(belay.ExecutionID) {}, judge(x)
		}
	}
	var agents []httpapi.Route
	if s.opt.Agents != nil {
		s.made.Do(func() {
			o := *s.opt.Agents
			o.Reading = s.reading
			s.agents = agentapi.New(b, o)
		})
		agents, admit[agentapi.Workflow] = s.agents.Routes(stopping), s.agents.Admit
	}
	var prober httpapi.Prober
	if s.prober != nil {
		prober = s.prober
	}
	var queues httpapi.Queues
	if s.opt.Triggers != nil {
		queues = s.opt.Triggers
	}
	documents := &tasks.Service{Viewer: &s.tasks, Backend: b}
	return httpapi.Options{
		Prober: prober,
		Keys:   b, Log: s.log, Metrics: s.metrics.Handler(), Version: s.opt.Version, Rate: rate,
		Waiting: s.cfg.Limits.Waiting, Reading: s.reading, Extra: agents, Admit: admit, Language: language{},
		Pages: webui.New(httpapi.Admitting(b, admit), webui.Options{
			Version: s.opt.Version, Log: s.log, Tasks: documents.Tasks, Graph: plan, Input: inputOf, Narrate: narrate,
			Activity: s.activity, Conversations: s.conversations(),
		}),
		Forms: forms(), Visit: visit,
		Documents: documents,
		Crowded:   b.Crowded,
		Ready:     func(ctx context.Context) ([]string, error) { return s.ready(ctx, b) },
		Queues:    queues,
		Hooks:     s.hooks, Secrets: s.opt.Secrets, Deliveries: s.metrics.Delivery,
		Requests: s.metrics.Request, Origins: s.cfg.Origins, BodyTimeout: s.cfg.Limits.ReadTimeout, Stopping: stopping,
	}
}

// ready reports whether the server takes work: the server is not stopping, its store can be read
// and written, and its engine works. The notes are warnings for operators.
func (s *Server) ready(ctx context.Context, b Engine) (notes []string, err error) {
	select {
	case <-s.stopping:
		return nil, errors.New("the server is stopping")
	default:
	}
	v := b.Vitals()
	if err := cmp.Or(b.Failure(), v.Trouble()); err != nil {
		return nil, err
	}
	if _, err := b.HasKeys(ctx); err != nil {
		return nil, err
	}
	return append(v.Notes(time.Now()), s.brokerNotes()...), nil
}

// Run serves until ctx ends, and then shuts down gracefully, or at once when atOnce ends. It
// returns nil after a stop. It returns an error if it cannot listen, or if a service or the store
// failed. Run can be called only once. The caller closes the backend.
func (s *Server) Run(ctx, atOnce context.Context, b Engine) error {
	jobs, err := s.jobs(ctx)
	if err != nil {
		return err
	}
	demand := s.demand(jobs.Demand)
	l, open, err := s.listen(ctx, b, demand)
	if err != nil {
		return err
	}
	defer l.Close() // closes the listener if Run returns before the HTTP server owns it
	defer s.stop.Do(func() { close(s.stopping) })
	s.metrics.Watch(b)
	s.metrics.Live(b)
	o := s.api(b, s.stopping)
	o.InsecureNoAuth = s.cfg.InsecureNoAuth
	o.Hosts = s.hosts(l.Addr())
	o.Demand, o.Hire = demand, s.checkWorker
	if jobs.Judge != nil {
		o.Stranger = s.checkCaller
	}
	h, err := s.http(httpapi.New(b, o))
	if err != nil {
		return err
	}
	if jobs.Judge != nil {
		h.ConnContext = judgeConnections(jobs.Judge)
	}
	services := append(slices.Clone(s.opt.Services), s.serveBuiltin(b, bulks(b, o.Admit)),
		s.serveBuiltin(b, documents(b, o.Admit)), s.lookForBuiltins(b))
	for _, w := range s.opt.Builtins {
		services = append(services, s.serveBuiltin(b, w))
	}
	if s.opt.Post != nil {
		s.metrics.Dispatch(s.opt.Post)
		services = append(services, s.dispatch(b))
	}
	if s.opt.Triggers != nil {
		s.metrics.Link("triggers", func() broker.Link { return s.opt.Triggers.State().Consume })
		services = append(services, s.consume(b, o.Admit))
	}
	if s.opt.Exchanges != nil {
		s.metrics.Link("exchanges", s.opt.Exchanges.State)
	}
	sendRest := s.sendTraces(atOnce, b)
	defer sendRest()
	ended := make(chan error, 1+len(services))
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go func() { ended <- s.serve(h, l) }()
	if s.prober != nil {
		var probes sync.WaitGroup
		probes.Go(func() { s.prober.Run(running, b) })
		defer func() {
			end()
			probes.Wait()
		}()
	}
	for _, service := range services {
		go func() { ended <- service(running) }()
	}
	if s.opt.Ready != nil {
		s.opt.Ready(Listening{URL: s.url(l.Addr()), Open: open})
	}
	select {
	case <-ctx.Done():
		return s.shutdown(atOnce, h, end, ended, len(services), b)
	case <-atOnce.Done():
		return h.Close()
	case <-b.Failed():
		_ = h.Close()
		return failure(b)
	case err := <-ended:
		if err == nil {
			err = errors.New("a service of the server has ended unexpectedly")
		}
		return errors.Join(err, h.Close())
	}
}

// serve answers requests until the listener is closed.
func (s *Server) serve(h *http.Server, l net.Listener) error {
	var err error
	if h.TLSConfig != nil {
		err = h.ServeTLS(l, "", "")
	} else {
		err = h.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", s.cfg.Listen, err)
}

// shutdown shuts the server and its services down gracefully, within the grace period.
func (s *Server) shutdown(atOnce context.Context, h *http.Server, end context.CancelFunc, ended <-chan error,
	services int, b Engine) error {
	s.log.Info("belay is stopping; interrupt it again to stop at once", "grace", s.cfg.Grace)
	s.stop.Do(func() { close(s.stopping) })
	end()
	within, cancel := context.WithTimeout(atOnce, s.cfg.Grace)
	defer cancel()
	go func() {
		select {
		case <-b.Failed(): // requests in flight cannot succeed any more
			cancel()
		case <-within.Done():
		}
	}()
	cut := h.Shutdown(within)
	var failed error
	for range 1 + services {
		select {
		case err := <-ended:
			failed = errors.Join(failed, err)
		case <-within.Done():
			cut = within.Err()
		}
	}
	if b.Failure() != nil {
		failed = errors.Join(failed, failure(b))
	}
	if cut != nil {
		_ = h.Close()
		if atOnce.Err() == nil && failed == nil {
			s.log.Warn("requests or services took longer than the grace and are cut off", "grace", s.cfg.Grace)
		}
	}
	return failed
}

// failure returns the error with which Run ends after the store has failed.
func failure(b Engine) error {
	return &belay.Error{
		Code: belay.CodeInternal, Err: b.Failure(),
		Message: "the store has failed, so the server stops; check the disk, then start the server again",
	}
}

// http makes the HTTP server of a handler, with its limits and protocols.
func (s *Server) http(handler http.Handler) (*http.Server, error) {
	limits := s.cfg.Limits
	h := &http.Server{
		Handler: handler, Protocols: new(http.Protocols),
		ReadHeaderTimeout: limits.HeaderTimeout, IdleTimeout: limits.IdleTimeout, MaxHeaderBytes: int(limits.Headers),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: limits.Streams, SendPingTimeout: pingAfter, PingTimeout: pingAfter,
			WriteByteTimeout: pingAfter,
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	h.Protocols.SetHTTP1(true)
	if !s.cfg.TLS() {
		h.Protocols.SetUnencryptedHTTP2(true)
		return h, nil
	}
	h.Protocols.SetHTTP2(true)
	var err error
	h.TLSConfig, err = s.tls()
	return h, err
}

// pingAfter is how long an HTTP/2 connection may be silent before the server sends a ping. It is
// also how long the server waits for the answer to the ping, and for a byte to be written.
const pingAfter = 15 * time.Second
