package config

import (
	"strings"
	"time"
)

// Key is one thing that can be set.
type Key struct {
	// Name is what the file calls it; a dot stands for a section.
	Name string
	// Doc says in one sentence what it does.
	Doc string

	of func(*Config) kind
	// also is a variable by which the agent service was known before; it
	// counts where agents are configured and Env is not set.
	also string
}

// keys is the one table. A key is added by a line here and a field in Config.
var keys = append([]Key{
	{Name: "listen", Doc: "Where to listen, as HOST:PORT. Beyond loopback only with keys, or with insecure_no_auth.",
		of: func(c *Config) kind { return address{&c.Listen} }},
	{Name: "store", Doc: "Where the state is kept. sqlite:DIR keeps all in that data directory; that of data, " +
		"unless set. postgres://USER@HOST/DATABASE is shared by any number of servers; its password comes from " +
		"PGPASSWORD or PGPASSFILE, or stands here, but not in the flag.",
		of: func(c *Config) kind { return store{&c.Store} }},
	{Name: "data", Doc: "The data directory.",
		of: func(c *Config) kind { return text{&c.Data, "a directory, such as /var/lib/belay"} }},
	{Name: "tls_cert", Doc: "The file with the certificate, and those that sign it; needs tls_key. Read again " +
		"when it changes.",
		of: func(c *Config) kind { return text{&c.TLSCert, "a file, such as /etc/belay/cert.pem"} }},
	{Name: "tls_key", Doc: "The file with the certificate's private key.",
		of: func(c *Config) kind { return text{&c.TLSKey, "a file, such as /etc/belay/key.pem"} }},
	{Name: "insecure_no_auth", Doc: "Ask for no keys, beyond loopback either: whoever reaches the port may do " +
		"everything, jobs included.",
		of: func(c *Config) kind { return boolean{&c.InsecureNoAuth} }},
	{Name: "hosts", Doc: "Names under which the server answers, beside its own on a loopback address, where it " +
		"answers under no other.",
		of: func(c *Config) kind { return list{&c.Hosts, "names, such as belay.example.org"} }},
	{Name: "retention", Doc: "How long an execution is kept after its end; 0 keeps all.",
		of: func(c *Config) kind { return duration{&c.Retention, 0, maxDuration} }},
	{Name: "grace", Doc: "How long a stop may take: requests and runs in flight may finish within it.",
		of: func(c *Config) kind { return duration{&c.Grace, 0, time.Hour} }},
	{Name: "concurrency", Doc: "How many executions of built-in kinds this process runs itself; 0 for none.",
		of: func(c *Config) kind { return number{&c.Concurrency, 0, 10_000} }},
	{Name: "log.level", Doc: "What is logged: debug, info, warn or error, and what is worse.",
		of: func(c *Config) kind { return level{&c.Log.Level} }},
	{Name: "log.format", Doc: "How it is logged: text, or json.",
		of: func(c *Config) kind { return choice{&c.Log.Format, []string{"text", "json"}} }},
	{Name: "limits.headers", Doc: "The largest request header.",
		of: func(c *Config) kind { return size{&c.Limits.Headers, 4 << 10, 1 << 20} }},
	{Name: "limits.rate", Doc: "Requests a second of one key, or of one address where there are no keys; 0 for no " +
		"limit.",
		of: func(c *Config) kind { return number{&c.Limits.Rate, 0, 1_000_000} }},
	{Name: "limits.burst", Doc: "Requests at once, of those that the rate allows.",
		of: func(c *Config) kind { return number{&c.Limits.Burst, 1, 1_000_000} }},
	{Name: "limits.connections", Doc: "Connections at the same time; more wait to be accepted.",
		of: func(c *Config) kind { return number{&c.Limits.Connections, 1, 1_000_000} }},
	{Name: "limits.streams", Doc: "Requests at the same time on one HTTP/2 connection.",
		of: func(c *Config) kind { return number{&c.Limits.Streams, 10, 100_000} }},
	{Name: "limits.waiting", Doc: "Requests of one key, or of one address where there are no keys, that wait or " +
		"stream at the same time; more are refused, 0 for no limit.",
		of: func(c *Config) kind { return number{&c.Limits.Waiting, 0, 1_000_000} }},
	{Name: "limits.header_timeout", Doc: "How long the header of a request may take to arrive.",
		of: func(c *Config) kind { return duration{&c.Limits.HeaderTimeout, 10 * time.Millisecond, time.Hour} }},
	{Name: "limits.read_timeout", Doc: "How long the body of a request may take to arrive.",
		of: func(c *Config) kind { return duration{&c.Limits.ReadTimeout, 10 * time.Millisecond, time.Hour} }},
	{Name: "limits.idle_timeout", Doc: "How long a connection may stay open without a request.",
		of: func(c *Config) kind { return duration{&c.Limits.IdleTimeout, 10 * time.Millisecond, 24 * time.Hour} }},
}, agentKeys...)

// Keys are all there is to set, in the order of the documentation.
func Keys() []Key { return keys }

const envPrefix = "BELAY_"

// Env is the environment variable of the key: BELAY_LOG_LEVEL.
func (k Key) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Flag is the flag of the key, without its dashes: log-level.
func (k Key) Flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.Name)
}

// Type is what a value is, in one word: text, duration, size, number, bool, list.
func (k Key) Type() string { return k.of(Default()).word() }

// Default is the value that counts unless another is set.
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

// sections are the keys of the file that hold other keys.
func sections() []string {
	var all []string
	for _, k := range keys {
		if s, _, ok := strings.Cut(k.Name, "."); ok && (len(all) == 0 || all[len(all)-1] != s) {
			all = append(all, s)
		}
	}
	return all
}
