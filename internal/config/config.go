package config

import (
	"log/slog"
	"strings"
	"time"
)

// Config is what a server does. The zero value is none; see Default.
type Config struct {
	Listen         string
	Store          string // sqlite:DIR or postgres://…; "" for that of Data
	Data           string
	TLSCert        string
	TLSKey         string
	InsecureNoAuth bool
	Hosts          []string
	Retention      time.Duration // 0 keeps everything
	Grace          time.Duration
	Concurrency    int
	Log            Log
	Limits         Limits
	Agent          Agent

	// File is the path of the file that was read; "" for none.
	File string

	values map[string]Value // how each key came to be what it is
}

// Log says what is logged, and how.
type Log struct {
	Level  slog.Level
	Format string // text or json
}

// Limits bound what one client can cost.
type Limits struct {
	Headers       int64 // bytes
	Rate          int   // requests a second; 0 for no limit
	Burst         int   // requests
	Connections   int
	Streams       int // of one HTTP/2 connection
	Waiting       int // requests of one caller; 0 for no limit
	HeaderTimeout time.Duration
	ReadTimeout   time.Duration
	IdleTimeout   time.Duration
}

// Agent is the agent service, a command that prompts are handed to, and what holds
// jobs of all kinds.
type Agent struct {
	Command       []string
	ResumeCommand []string // none for Command again
	Preset        string   // none, or one of internal/agent's
	Permissions   string   // of a preset: auto, all or edits
	Output        string   // auto, plain or stream-json
	Repo          string
	Repos         []string // others that may be asked for; none allows what is public over https
	// Logins are the credentials that stood in Repo and Repos, by the URL without them.
	Logins         map[string]Login
	GitCredentials string        // a file
	Prepare        time.Duration // of a workspace
	Env            []string
	Timeout        time.Duration
	Grace          time.Duration
	ChatTimeout    time.Duration
	Concurrency    int
	QueueDepth     int
	JobTTL         time.Duration
	FetchDebounce  time.Duration
	WorkspaceDir   string // "" for that below the data directory
	Attempts       int
	DeadLetters    bool
	OnLost         string // requeue or fail
	Local          bool
	Save           time.Duration // 0 for never
	KeepHome       bool
	Users          string // auto, none or FIRST-LAST
	Seal           bool
	CryptKey       string // a file
	Processes      int    // 0 for no limit, as with those below
	CPU            int    // cores
	Memory         int64  // bytes
	Disk           int64  // bytes
	Files          int
	Hidden         []string // paths
	Readable       []string // paths
	Egress         []string // none restricts nothing; the word "none" allows nothing
}

// Agents reports whether the agent service is configured.
func (c *Config) Agents() bool { return len(c.Agent.Command) > 0 || c.Agent.Preset != noPreset }

// noPreset is the preset that is none.
const noPreset = "none"

// Default is the configuration that nobody has said anything about.
func Default() *Config {
	return &Config{
		Listen:    "127.0.0.1:7420",
		Data:      "belay-data",
		Retention: 30 * 24 * time.Hour,
		Grace:     30 * time.Second,
		Log:       Log{Level: slog.LevelInfo, Format: "text"},
		Limits: Limits{
			Headers: 64 << 10, Rate: 10_000, Burst: 20_000, Connections: 4096, Streams: 1000, Waiting: 2000,
			HeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		},
		Agent: Agent{
			Preset: noPreset, Permissions: "auto", Output: "auto", Timeout: 15 * time.Minute, Grace: 10 * time.Second,
			ChatTimeout: 15 * time.Minute,
			Concurrency: 10, QueueDepth: 100, JobTTL: time.Hour, FetchDebounce: 30 * time.Second, Attempts: 1,
			OnLost: "requeue",
			Local:  true, Save: time.Minute, KeepHome: true, Users: "auto", Seal: true, Processes: 1024,
			Memory:  4 << 30,
			Disk:    10 << 30,
			Prepare: 10 * time.Minute, Files: 1_000_000,
		},
		values: make(map[string]Value),
	}
}

// Shared reports whether the store is a database that servers share.
func (c *Config) Shared() bool { return isDatabase(c.Store) }

// StoreURL is the store, in the data directory unless another is named. It may
// hold a password; see Shown.
func (c *Config) StoreURL() string {
	if c.Store == "" {
		return sqlitePrefix + c.Data
	}
	return c.Store
}

// DataDir is the data directory: that of the store, if it has one. With a
// database it holds what this process works on only.
func (c *Config) DataDir() string {
	if dir, ok := strings.CutPrefix(c.Store, sqlitePrefix); ok {
		return dir
	}
	return c.Data
}

// TLS reports whether the server speaks TLS.
func (c *Config) TLS() bool { return c.TLSCert != "" }
