package config

import (
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Key is one setting of the configuration.
type Key struct {
	// Name is the name of the key in the file; a dot separates a section from a key in it.
	Name string
	// Doc describes the key in a few sentences.
	Doc string

	of func(*Config) kind // returns the field of a Config that the key sets
	// also names an environment variable for this key that the agent service had before Belay
	// replaced it. Load reads this variable if agents are configured and the variable Env is not
	// set.
	also string
}

// keys is the table of all keys. To add a key, add a line here and a field to Config.
var keys = slices.Concat([]Key{
	{Name: "listen", Doc: "The address on which the server listens, as HOST:PORT. On an address other than " +
		"loopback the server starts only if the store has an API key or insecure_no_auth is set.",
		of: func(c *Config) kind { return address{&c.Listen} }},
	{Name: "store", Doc: "The store of all state: sqlite:DIR for a data directory, or " +
		"postgres://USER@HOST/DATABASE for a database that any number of servers share; unless set, the data " +
		"directory (see the key \"data\"). Put the password of the database into PGPASSWORD or PGPASSFILE, or " +
		"into the URL if the file or BELAY_STORE has the URL; a flag with a password is refused.",
		of: func(c *Config) kind { return store{&c.Store} }},
	{Name: "data", Doc: "The data directory.",
		of: func(c *Config) kind { return text{&c.Data, "a directory, such as /var/lib/belay"} }},
	{Name: "tls_cert", Doc: "The file with the server's certificate and the certificates that sign it; needs " +
		"tls_key. The server reads the file again when it changes.",
		of: func(c *Config) kind { return text{&c.TLSCert, "a file, such as /etc/belay/cert.pem"} }},
	{Name: "tls_key", Doc: "The file with the certificate's private key.",
		of: func(c *Config) kind { return text{&c.TLSKey, "a file, such as /etc/belay/key.pem"} }},
	{Name: "insecure_no_auth", Doc: "Require no API keys, whatever the address: every caller that reaches the " +
		"port may do everything, jobs included.",
		of: func(c *Config) kind { return boolean{&c.InsecureNoAuth} }},
	{Name: "hosts", Doc: "Host names under which the server answers, in addition to the names of this machine. " +
		"Unless set, a server on an address other than loopback answers under any name.",
		of: func(c *Config) kind { return list{&c.Hosts, "names, such as belay.example.org"} }},
	{Name: "origins", Doc: "Origins of other web sites whose pages may read and write, each exactly as browsers " +
		"write it. The pages must send an API key; if the server requires no key, the pages may do everything " +
		"that a program on this machine may do.",
		of: func(c *Config) kind { return origins{list{&c.Origins, wantOrigins}} }},
	{Name: "retention", Doc: "How long an execution is kept after its end; 0 keeps executions for ever.",
		of: func(c *Config) kind { return duration{&c.Retention, 0, maxDuration} }},
	{Name: "dead_letter_retention", Doc: "How long an execution with an open dead letter is kept after its failure, " +
		"if that is longer than the retention; 0 keeps it until the dead letter is resolved.",
		of: func(c *Config) kind { return duration{&c.LetterRetention, 0, maxDuration} }},
	{Name: "grace", Doc: "The grace period of a shutdown, in which requests and runs in flight may finish.",
		of: func(c *Config) kind { return duration{&c.Grace, 0, time.Hour} }},
	{Name: "concurrency", Doc: "How many executions of the built-in workflow \"command\" this process runs at " +
		"the same time; 0 for none.",
		of: func(c *Config) kind { return number{&c.Concurrency, 0, 10_000} }},
	{Name: "timeout_check_interval", Doc: "How often the engine looks for time limits that are over although " +
		"no timer has reported them. Timers report them at once, so a look finds something only after a crash " +
		"or a lost message.",
		of: func(c *Config) kind { return duration{&c.CheckInterval, time.Second, time.Hour} }},
	{Name: "health_check_interval", Doc: "How often the server probes the health of a worker that exposes /healthz " +
		"(belay worker --health) and connects to this server. A worker whose probe fails gets no new work until a " +
		"probe succeeds; it keeps its runs. 0 turns the probes off.",
		of: func(c *Config) kind { return optional{duration{&c.HealthInterval, time.Second, time.Hour}} }},
	{Name: "health_check_allow", Doc: "Networks in which the server probes workers even if they connect from another " +
		"address, for example through a proxy. Unless set, the server probes a worker only at the address from " +
		"which the worker connects.",
		of: func(c *Config) kind { return networks{&c.HealthAllow} }},
	{Name: "worker.ttl", Doc: "How long the session of a worker in this process is valid after a heartbeat; after " +
		"that time other workers get its executions. 0 for three heartbeats, or 15s if worker.heartbeat is 0 too. " +
		"The flag --ttl of belay worker has precedence.",
		of: func(c *Config) kind { return optional{duration{&c.Worker.TTL, belay.MinTTL.D(), belay.MaxTTL.D()}} }},
	{Name: "worker.heartbeat", Doc: "The interval between the heartbeats of a worker in this process; 0 for a third " +
		"of worker.ttl. The flag --heartbeat of belay worker has precedence.",
		of: func(c *Config) kind {
			return optional{duration{&c.Worker.Heartbeat, belay.MinHeartbeat.D(), belay.MaxTTL.D()}}
		}},
	{Name: "defaults.max_attempts", Doc: "The number of failed attempts after which an execution fails, for " +
		"submissions that leave max_attempts out. This key and the other defaults apply when an execution is " +
		"submitted to this server; set them alike on all servers of a database.",
		of: func(c *Config) kind { return number{&c.Defaults.MaxAttempts, 1, 1_000_000} }},
	{Name: "defaults.backoff_base", Doc: "The delay after the first failed attempt, for submissions that leave " +
		"backoff_base out.",
		of: func(c *Config) kind { return duration{&c.Defaults.BackoffBase, time.Millisecond, maxDuration} }},
	{Name: "defaults.backoff_cap", Doc: "The longest delay between two attempts, for submissions that leave " +
		"backoff_cap out.",
		of: func(c *Config) kind { return duration{&c.Defaults.BackoffCap, time.Millisecond, maxDuration} }},
	{Name: "defaults.start_timeout", Doc: "How long an execution may be due until a worker starts it, for " +
		"submissions that leave start_timeout out; after that time it fails. 0 for no limit.",
		of: func(c *Config) kind { return duration{&c.Defaults.StartTimeout, 0, maxDuration} }},
	{Name: "defaults.scheduled_timeout", Doc: "How long the worker to which an execution is scheduled may take " +
		"to accept it, for submissions that leave scheduled_timeout out.",
		of: func(c *Config) kind { return duration{&c.Defaults.ScheduledTimeout, time.Millisecond, maxDuration} }},
	{Name: "defaults.on_no_worker", Doc: "The policy for an execution that no connected worker can take, for " +
		"submissions that leave on_no_worker out: wait, or fail.",
		of: func(c *Config) kind { return choice{&c.Defaults.OnNoWorker, []string{"wait", "fail"}} }},
	{Name: "log.level", Doc: "The level of the least severe messages that are logged: debug, info, warn or " +
		"error.",
		of: func(c *Config) kind { return level{&c.Log.Level} }},
	{Name: "log.format", Doc: "The format of the log: text, or json.",
		of: func(c *Config) kind { return choice{&c.Log.Format, []string{"text", "json"}} }},
	{Name: "limits.headers", Doc: "The largest size of the headers of a request.",
		of: func(c *Config) kind { return size{&c.Limits.Headers, 4 << 10, 1 << 20} }},
	{Name: "limits.rate", Doc: "How many requests per second one API key may make, or one address if no keys are " +
		"required; 0 for no limit.",
		of: func(c *Config) kind { return number{&c.Limits.Rate, 0, 1_000_000} }},
	{Name: "limits.burst", Doc: "How many requests a caller may make at once before limits.rate applies.",
		of: func(c *Config) kind { return number{&c.Limits.Burst, 1, 1_000_000} }},
	{Name: "limits.connections", Doc: "How many connections may be open at the same time; further connections " +
		"wait.",
		of: func(c *Config) kind { return number{&c.Limits.Connections, 1, 1_000_000} }},
	{Name: "limits.streams", Doc: "How many requests may be in flight at the same time on one HTTP/2 connection.",
		of: func(c *Config) kind { return number{&c.Limits.Streams, 10, 100_000} }},
	{Name: "limits.waiting", Doc: "How many long polls and streams one API key, or one address if no keys are " +
		"required, may have at the same time; further requests of this kind are refused; 0 for no limit.",
		of: func(c *Config) kind { return number{&c.Limits.Waiting, 0, 1_000_000} }},
	{Name: "limits.header_timeout", Doc: "How long the header of a request may take to arrive.",
		of: func(c *Config) kind { return duration{&c.Limits.HeaderTimeout, 10 * time.Millisecond, time.Hour} }},
	{Name: "limits.read_timeout", Doc: "How long the body of a request may take to arrive.",
		of: func(c *Config) kind { return duration{&c.Limits.ReadTimeout, 10 * time.Millisecond, time.Hour} }},
	{Name: "limits.idle_timeout", Doc: "How long a connection may stay open without a request.",
		of: func(c *Config) kind { return duration{&c.Limits.IdleTimeout, 10 * time.Millisecond, 24 * time.Hour} }},
}, brokerKeys, agentKeys, httpKeys)

// Keys returns all keys, in the order of the documentation.
func Keys() []Key { return keys }

const envPrefix = "BELAY_"

// Env is the environment variable of the key, such as BELAY_LOG_LEVEL.
func (k Key) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Flag is the flag of the key without the two dashes, such as log-level.
func (k Key) Flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.Name)
}

// Type names the kind of the key's values in one word: address, bool, duration, list, number, size,
// store or text.
func (k Key) Type() string { return k.of(Default()).word() }

// Default is the default value.
func (k Key) Default() string { return k.of(Default()).show() }

// IsBool reports whether a flag of the key needs no value.
func (k Key) IsBool() bool { return k.Type() == boolean{}.word() }

func find(name string) (Key, bool) {
	for _, k := range keys {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

// sections returns the names of the file's sections.
func sections() []string {
	var all []string
	for _, k := range keys {
		if s, _, ok := strings.Cut(k.Name, "."); ok && (len(all) == 0 || all[len(all)-1] != s) {
			all = append(all, s)
		}
	}
	return all
}
