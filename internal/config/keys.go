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
}

// keys is the one table. A key is added by a line here and a field in Config.
var keys = []Key{
	{"listen", "Where to listen, as HOST:PORT. Beyond loopback only with keys, or with insecure_no_auth.",
		func(c *Config) kind { return address{&c.Listen} }},
	{"store", "Where the state is kept. sqlite:DIR keeps all in that data directory; that of data, unless set. postgres://USER@HOST/DATABASE is shared by any number of servers; its password comes from PGPASSWORD or PGPASSFILE, or stands here, but not in the flag.",
		func(c *Config) kind { return store{&c.Store} }},
	{"data", "The data directory.",
		func(c *Config) kind { return text{&c.Data, "a directory, such as /var/lib/belay"} }},
	{"tls_cert", "The file with the certificate, and those that sign it; needs tls_key. Read again when it changes.",
		func(c *Config) kind { return text{&c.TLSCert, "a file, such as /etc/belay/cert.pem"} }},
	{"tls_key", "The file with the certificate's private key.",
		func(c *Config) kind { return text{&c.TLSKey, "a file, such as /etc/belay/key.pem"} }},
	{"insecure_no_auth", "Listen beyond loopback without keys: whoever reaches the port may do everything.",
		func(c *Config) kind { return boolean{&c.InsecureNoAuth} }},
	{"hosts", "Names under which the server answers, beside its own on a loopback address, where it answers under no other.",
		func(c *Config) kind { return list{&c.Hosts, "names, such as belay.example.org"} }},
	{"retention", "How long an execution is kept after its end; 0 keeps all.",
		func(c *Config) kind { return duration{&c.Retention, 0, maxDuration} }},
	{"grace", "How long a stop may take: requests and runs in flight may finish within it.",
		func(c *Config) kind { return duration{&c.Grace, 0, time.Hour} }},
	{"concurrency", "How many executions of built-in kinds this process runs itself; 0 for none.",
		func(c *Config) kind { return number{&c.Concurrency, 0, 10_000} }},
	{"log.level", "What is logged: debug, info, warn or error, and what is worse.",
		func(c *Config) kind { return level{&c.Log.Level} }},
	{"log.format", "How it is logged: text, or json.",
		func(c *Config) kind { return choice{&c.Log.Format, []string{"text", "json"}} }},
	{"limits.headers", "The largest request header.",
		func(c *Config) kind { return size{&c.Limits.Headers, 4 << 10, 1 << 20} }},
	{"limits.rate", "Requests a second of one key, or of one address where there are no keys; 0 for no limit.",
		func(c *Config) kind { return number{&c.Limits.Rate, 0, 1_000_000} }},
	{"limits.burst", "Requests at once, of those that the rate allows.",
		func(c *Config) kind { return number{&c.Limits.Burst, 1, 1_000_000} }},
	{"limits.connections", "Connections at the same time; more wait to be accepted.",
		func(c *Config) kind { return number{&c.Limits.Connections, 1, 1_000_000} }},
	{"limits.streams", "Requests at the same time on one HTTP/2 connection.",
		func(c *Config) kind { return number{&c.Limits.Streams, 10, 100_000} }},
	{"limits.header_timeout", "How long the header of a request may take to arrive.",
		func(c *Config) kind { return duration{&c.Limits.HeaderTimeout, 10 * time.Millisecond, time.Hour} }},
	{"limits.read_timeout", "How long the body of a request may take to arrive.",
		func(c *Config) kind { return duration{&c.Limits.ReadTimeout, 10 * time.Millisecond, time.Hour} }},
	{"limits.idle_timeout", "How long a connection may stay open without a request.",
		func(c *Config) kind { return duration{&c.Limits.IdleTimeout, 10 * time.Millisecond, 24 * time.Hour} }},
}

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
