package config

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"time"
)

// Broker is the configuration of the message broker, RabbitMQ.
type Broker struct {
	URL string // "" for no broker; it may contain a password, see Shown
	// PasswordFile is the path of a file with the password of the URL's user; "" for none.
	PasswordFile string
	Queues       []string
	Prefix       string
	MessageTTL   time.Duration
}

// String shows the URL without its password.
func (b Broker) String() string { return Shown(b.URL) }

// Format shows the URL without its password, with every verb of package fmt.
func (b Broker) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, b.String()) }

// MarshalText keeps the password out of encoders.
func (b Broker) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// LogValue keeps the password out of logs.
func (b Broker) LogValue() slog.Value { return slog.StringValue(b.String()) }

// brokerKeys are the keys of the message broker.
var brokerKeys = []Key{
	{Name: "broker.url", Doc: "The URL of RabbitMQ, amqp://USER:PASSWORD@HOST:5672/VHOST, or amqps:// for TLS. In user, " +
		"password and virtual host, each character other than letters, digits and -._~ is written as %XX. With a " +
		"password, put it into BELAY_BROKER_URL or the file; a flag with a password is refused. belay worker uses it too.",
		of: func(c *Config) kind { return amqp{&c.Broker.URL} }},
	{Name: "broker.password_file", Doc: "A file with the password for broker.url, whose URL then has a user and no " +
		"password. The process reads it when it starts.",
		of: func(c *Config) kind {
			return text{&c.Broker.PasswordFile, "a file, such as /etc/belay/broker-password"}
		}},
	{Name: "broker.queues", Doc: "The queues whose executions this server announces to workers through RabbitMQ; set " +
		"them alike on all servers of a database. Workers claim the executions of all other queues, and a worker " +
		"without a connection to RabbitMQ claims those of these queues too.",
		of: func(c *Config) kind { return list{&c.Broker.Queues, `names, such as ["default", "emails"]`} }},
	{Name: "broker.prefix", Doc: "The first part of the names of all queues and exchanges that Belay declares in " +
		"RabbitMQ. Servers of one database have the same prefix, and those of two databases must not.",
		of: func(c *Config) kind { return text{&c.Broker.Prefix, "letters, digits, - and _, such as belay"} }},
	{Name: "broker.worker_queue_ttl", Doc: "How long a message waits in the queue of its worker. After that time the " +
		"execution goes to another worker, or fails if its on_expired says so.",
		of: func(c *Config) kind { return duration{&c.Broker.MessageTTL, time.Second, 24 * time.Hour} }},
}

// amqp is the kind of a value that is the URL of RabbitMQ. The server checks the rest of it.
type amqp struct{ to *string }

func (k amqp) set(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Hostname() == "" {
		return false
	}
	*k.to = s
	return true
}
func (amqp) want() string   { return "a URL such as amqp://belay@mq.example.org:5672/belay" }
func (k amqp) show() string { return Shown(*k.to) }
func (amqp) word() string   { return "text" }
func (amqp) tags() []string { return []string{"!!str"} }
