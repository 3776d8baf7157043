package config

import (
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Config is the configuration of a server. The zero value is not valid; see Default.
type Config struct {
	Listen         string
	Store          string // sqlite:DIR or postgres://…; "" for the data directory Data
	Data           string
	TLSCert        string
	TLSKey         string
	InsecureNoAuth bool
	Hosts          []string
	Origins        []string      // the origins whose pages may read and write; empty for no page of another site
	Retention      time.Duration // 0 keeps everything
	// LetterRetention is the retention of executions with an open dead letter; 0 keeps them.
	LetterRetention time.Duration
	Grace           time.Duration
	Concurrency     int
	CheckInterval   time.Duration
	HealthInterval  time.Duration  // the time between two health probes of a worker; 0 for no probes
	HealthAllow     []netip.Prefix // networks in which a health address may differ from the worker's own address
	Worker          Worker
	Defaults        Defaults
	Log             Log
	Limits          Limits
	Agent           Agent
	HTTP            HTTP
	Broker          Broker
	Secrets         []string // the rules of package secretref

	// File is the path of the file that was read; "" for none.
	File string

	values map[string]Value // the source of each key's value, by the name of the key
}

// Worker is the configuration of the sessions of the workers in this process. A field that is 0 has
// the default of package worker.
type Worker struct{ TTL, Heartbeat time.Duration }

// Defaults are the values of policy fields that submissions leave out.
type Defaults struct {
	MaxAttempts                                             int
	BackoffBase, BackoffCap, StartTimeout, ScheduledTimeout time.Duration
	OnNoWorker                                              string // wait or fail
}

// Policy returns the configured defaults that differ from Belay's own defaults.
func (d Defaults) Policy() belay.Policy {
	p := belay.Policy{StartTimeout: belay.Duration(d.StartTimeout)}
	if d.MaxAttempts != belay.DefaultMaxAttempts {
		p.MaxAttempts = d.MaxAttempts
	}
	for _, x := range []struct {
		to          *belay.Duration
		d, standard belay.Duration
	}{
		{&p.BackoffBase, belay.Duration(d.BackoffBase), belay.DefaultBackoffBase},
		{&p.BackoffCap, belay.Duration(d.BackoffCap), belay.DefaultBackoffCap},
		{&p.ScheduledTimeout, belay.Duration(d.ScheduledTimeout), belay.DefaultScheduled},
	} {
		if x.d != x.standard {
			*x.to = x.d
		}
	}
	if w := belay.OnNoWorker(d.OnNoWorker); w != belay.WaitForWorker {
		p.OnNoWorker = w
	}
	return p
}

// Log is the configuration of the log.
type Log struct {
	Level  slog.Level
	Format string // text or json
}

// Limits bound the resources that one client can use.
type Limits struct {
	Headers       int64 // bytes
	Rate          int   // requests a second; 0 for no limit
	Burst         int   // requests
	Connections   int
	Streams       int // requests in flight on one HTTP/2 connection
	Waiting       int // long polls and streams of one caller; 0 for no limit
	HeaderTimeout time.Duration
	ReadTimeout   time.Duration
	IdleTimeout   time.Duration
}

// Agent is the configuration of the agent service, which runs a command on prompts, and of the
// sandbox of all jobs.
type Agent struct {
	Command       []string
	ResumeCommand []string // empty to run Command again
	ReplyCommand  []string // empty to run Command with the message
	Preset        string   // none, or the name of a preset of internal/agent
	Permissions   string   // the permissions that a preset gives to its agent: auto, all or edits
	Output        string   // auto, plain or stream-json
	Repo          string
	Repos         []string // other repositories that jobs may request; empty allows public repositories over https
	// Logins are the credentials from the URLs in Repo and Repos. The key of each login is its URL
	// without the credentials.
	Logins         map[string]Login
	GitCredentials string // a file
	Push           bool
	// PushBranches are the branches that callers may push to; PushCredentials is a file. PushOpen is
	// the command that runs after a push, and PushEnv names the variables that only it gets.
	PushBranches    []string
	PushCredentials string
	PushOpen        []string
	PushEnv         []string
	Prepare         time.Duration // the longest time for making a workspace
	Env             []string
	Timeout         time.Duration
	Grace           time.Duration
	ChatTimeout     time.Duration
	Concurrency     int
	QueueDepth      int
	JobTTL          time.Duration
	FetchDebounce   time.Duration
	WorkspaceDir    string // "" for workspaces below the data directory
	Attempts        int
	DeadLetters     bool
	OnLost          string // requeue or fail
	Local           bool
	Save            time.Duration // 0 for never
	Prices          []string      // of models
	MaxTokens       int           // 0 for no limit
	MaxUSD          int           // 0 for no limit
	KeepHome        bool
	Users           string // auto, none or FIRST-LAST
	Seal            bool
	CryptKey        string // a file
	Processes       int    // 0 for no limit, as in the other limits below
	CPU             int    // cores
	Memory          int64  // bytes
	Disk            int64  // bytes
	Files           int
	Hidden          []string // paths
	Readable        []string // paths
	Egress          []string // empty restricts nothing; the single word "none" allows nothing
}

// Agents reports whether the agent service is configured.
func (c *Config) Agents() bool { return len(c.Agent.Command) > 0 || c.Agent.Preset != noPreset }

// noPreset is the value of Agent.Preset that stands for no preset.
const noPreset = "none"

// Default returns the configuration that applies if nothing is set.
func Default() *Config {
	return &Config{
		Listen:        "127.0.0.1:7420",
		Data:          "belay-data",
		Retention:     30 * 24 * time.Hour,
		Grace:         30 * time.Second,
		CheckInterval: 30 * time.Second, HealthInterval: 30 * time.Second,
		Defaults: Defaults{
			MaxAttempts: belay.DefaultMaxAttempts, BackoffBase: belay.DefaultBackoffBase.D(),
			BackoffCap: belay.DefaultBackoffCap.D(), ScheduledTimeout: belay.DefaultScheduled.D(),
			OnNoWorker: string(belay.WaitForWorker),
		},
		Log: Log{Level: slog.LevelInfo, Format: "text"},
		Limits: Limits{
			Headers: 64 << 10, Rate: 10_000, Burst: 20_000, Connections: 4096, Streams: 1000, Waiting: 2000,
			HeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		},
		Agent: Agent{
			Preset: noPreset, Permissions: "auto", Output: "auto", Timeout: 15 * time.Minute, Grace: 10 * time.Second,
			ChatTimeout: 15 * time.Minute,
			Concurrency: 10, QueueDepth: 100, JobTTL: time.Hour, FetchDebounce: 30 * time.Second, Attempts: 1,
			OnLost: "requeue", PushBranches: []string{"belay/*"},
			Local: true, Save: time.Minute, KeepHome: true, Users: "auto", Seal: true, Processes: 1024,
			Memory:  4 << 30,
			Disk:    10 << 30,
			Prepare: 10 * time.Minute, Files: 1_000_000,
		},
		HTTP:   HTTP{Concurrency: 20, Egress: []string{"public"}},
		Broker: Broker{Prefix: "belay", MessageTTL: 240 * time.Second},
		values: make(map[string]Value),
	}
}

// Shared reports whether the store is a PostgreSQL database, which several servers may share.
func (c *Config) Shared() bool { return isDatabase(c.Store) }

// StoreURL is the URL of the store: the data directory, unless Store is set. It may contain a
// password; see Shown.
func (c *Config) StoreURL() string {
	if c.Store == "" {
		return sqlitePrefix + c.Data
	}
	return c.Store
}

// DataDir is the data directory: the directory in Store, or else Data. If the store is a database,
// the data directory has only the workspaces of this process.
func (c *Config) DataDir() string {
	if dir, ok := strings.CutPrefix(c.Store, sqlitePrefix); ok {
		return dir
	}
	return c.Data
}

// TLS reports whether the server speaks TLS.
func (c *Config) TLS() bool { return c.TLSCert != "" }
