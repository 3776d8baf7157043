package broker

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/belaydev/belay"
	amqp "github.com/rabbitmq/amqp091-go"
)

// The defaults and limits of Options.
const (
	DefaultTTL            = 240 * time.Second
	DefaultPrefix         = "belay"
	DefaultConfirmTimeout = 30 * time.Second
	DefaultOutstanding    = 1024

	minTTL, maxTTL = time.Second, 24 * time.Hour
	maxPrefix      = 60
	maxOutstanding = 65536
)

// Options say how to connect to RabbitMQ.
type Options struct {
	// URL is the address of RabbitMQ with user, password and virtual host, as in
	// amqp://user:password@host:5672/vhost, or amqps:// for TLS. It is a secret: no error and no log
	// has it.
	URL string
	// TLS is the configuration for amqps, or nil for the system's certificates.
	TLS *tls.Config
	// Name is what RabbitMQ shows as the name of the connections, for example the name of the host.
	Name string
	// Prefix is the first part of the names of all queues and exchanges. Servers and workers of one
	// store must have the same prefix, and those of two stores must not. Empty means DefaultPrefix.
	Prefix string
	// TTL is how long a message waits for its worker. 0 means DefaultTTL. It should be less than the
	// scheduled_timeout of executions.
	TTL time.Duration
	// ConfirmTimeout is how long RabbitMQ may take to confirm a message. 0 means DefaultConfirmTimeout.
	ConfirmTimeout time.Duration
	// Outstanding is how many messages may wait for their confirmation at the same time. 0 means
	// DefaultOutstanding.
	Outstanding int
	// Log is where the changes of the connections are logged.
	Log *slog.Logger
	// Random returns 16 bytes, of which the last eight are unpredictable. It spreads the delays between
	// attempts to connect.
	Random func() [16]byte

	// call bounds one declaration or deletion, which RabbitMQ answers within milliseconds unless it hangs.
	// Deleting a queue that is stuck takes it five seconds.
	call  time.Duration
	later time.Duration // how long to wait before an attempt that only an operator's action can make succeed
	most  time.Duration // the longest delay between attempts to connect; tests shorten it
	// repair is how often a server declares the dead-letter exchange and queue again, in case they were
	// deleted.
	repair time.Duration
	// patience is how long a message for an exchange waits for the connection before it fails.
	patience time.Duration
	dead     []declaration // the dead-letter queues of earlier versions
}

// withDefaults checks the options and fills in the defaults. The error says what is wrong, without the
// URL.
func (o Options) withDefaults() (Options, error) {
	if err := checkURL(o.URL); err != nil {
		return o, err
	}
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	o.ConfirmTimeout = cmp.Or(o.ConfirmTimeout, DefaultConfirmTimeout)
	o.Outstanding = cmp.Or(o.Outstanding, DefaultOutstanding)
	o.call = cmp.Or(o.call, 15*time.Second)
	o.most = cmp.Or(o.most, time.Minute)
	o.later, o.repair = cmp.Or(o.later, 10*time.Second), cmp.Or(o.repair, time.Minute)
	o.patience = cmp.Or(o.patience, 2*time.Second)
	switch {
	case len(o.Prefix) > maxPrefix || !prefixes.MatchString(o.Prefix) || o.Prefix == "amq":
		return o, invalid("the prefix %q of the names in RabbitMQ must have 1 to %d letters, digits, hyphens and "+
			"underscores, must begin with a letter or digit, and must not be amq", o.Prefix, maxPrefix)
	case o.TTL < minTTL || o.TTL > maxTTL:
		return o, invalid("a message may wait %s to %s for its worker, not %s", minTTL, maxTTL, o.TTL)
	case o.ConfirmTimeout < 0:
		return o, invalid("RabbitMQ cannot confirm a message within %s", o.ConfirmTimeout)
	case o.Outstanding < 0 || o.Outstanding > maxOutstanding:
		return o, invalid("1 to %d messages may wait for their confirmation, not %d", maxOutstanding, o.Outstanding)
	}
	return o, nil
}

// prefixes matches the prefixes of names. They have no dot, which ends the prefix in a name.
var prefixes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

func invalid(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeInvalid, Op: "configure RabbitMQ", Message: fmt.Sprintf(format, args...)}
}

// checkURL refuses a text that is not the URL of a RabbitMQ. The error has no part of the text.
func checkURL(text string) error {
	const form = "it has the form amqp://USER:PASSWORD@HOST:5672/VHOST, or amqps:// for TLS; in user, password " +
		"and virtual host, each character other than letters, digits and -._~ is written as %%XX"
	if text == "" {
		return invalid("the URL of RabbitMQ is missing; " + form)
	}
	u, err := url.Parse(text)
	if err != nil {
		return invalid("the URL of RabbitMQ cannot be read; " + form)
	}
	if u.Scheme != "amqp" && u.Scheme != "amqps" || u.Host == "" {
		return invalid("the URL of RabbitMQ is not one; " + form)
	}
	if _, err := amqp.ParseURI(text); err != nil {
		return invalid("the URL of RabbitMQ cannot be used; " + form)
	}
	return nil
}

// place returns the host, the virtual host and the user of the URL, for errors and logs.
func (o Options) place() (host, vhost, user string) {
	uri, err := amqp.ParseURI(o.URL)
	if err != nil {
		return "", "", "" // New has checked the URL
	}
	return fmt.Sprintf("%s:%d", uri.Host, uri.Port), uri.Vhost, uri.Username
}

// String shows where the options lead to, without the password.
func (o Options) String() string {
	host, vhost, user := o.place()
	return fmt.Sprintf("RabbitMQ at %s, virtual host %q, user %q", host, vhost, user)
}

// Format shows the options without the password, with every verb of package fmt.
func (o Options) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, o.String()) }

// MarshalText keeps the password out of encoders.
func (o Options) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// LogValue keeps the password out of logs.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// tls returns the configuration of TLS, as the library makes it: that of the options, or the certificates that the
// parameters of the URL name.
func (o Options) tls(uri *amqp.URI) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: uri.ServerName}
	if o.TLS != nil {
		config = o.TLS.Clone()
	} else if uri.CACertFile != "" {
		text, err := os.ReadFile(uri.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificates of RabbitMQ's authority: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(text)
	}
	if o.TLS == nil && uri.CertFile != "" && uri.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(uri.CertFile, uri.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate for RabbitMQ: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	config.ServerName = cmp.Or(config.ServerName, uri.Host)
	return config, nil
}
