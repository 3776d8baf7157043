package client

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/belaydev/belay/internal/uid"
)

// DefaultPatience is how long a Client repeats a call unless the option Patience sets another
// duration.
const DefaultPatience = 10 * time.Second

// Option is an option of Dial. Dial works without options.
type Option func(*settings)

type settings struct {
	key       string
	userAgent string
	tls       *tls.Config
	dialer    func(context.Context) (net.Conn, error)
	patience  time.Duration
	log       *slog.Logger
	http1     bool
	lazy      bool
	ids       func() [16]byte
}

func defaults() settings {
	return settings{
		userAgent: "belay", patience: DefaultPatience, log: slog.Default(), ids: uid.New,
	}
}

// Key sets the secret of the API key with which the program identifies itself: bly_….
func Key(secret string) Option { return func(s *settings) { s.key = secret } }

// TLS sets the TLS configuration for https: the certificates to trust, and the client's own
// certificate.
func TLS(c *tls.Config) Option { return func(s *settings) { s.tls = c } }

// UserAgent sets the name of the program for the server's log.
func UserAgent(name string) Option { return func(s *settings) { s.userAgent = name } }

// Patience sets how long after its first failure the Client repeats a call that is safe to repeat.
// With 0, it repeats no call. The default is DefaultPatience.
func Patience(d time.Duration) Option { return func(s *settings) { s.patience = d } }

// Logger sets the logger for messages to operators. The default is slog.Default().
func Logger(l *slog.Logger) Option { return func(s *settings) { s.log = l } }

// Dialer sets the function that opens connections. The URL still selects the protocol: HTTP/2 with
// or without TLS.
func Dialer(dial func(context.Context) (net.Conn, error)) Option {
	return func(s *settings) { s.dialer = dial }
}

// HTTP1 makes the Client use HTTP/1.1, for a proxy that does not let HTTP/2 through. Each
// concurrent call then has a connection of its own.
func HTTP1() Option { return func(s *settings) { s.http1 = true } }

// Lazy makes Dial return without checking that the server answers. The first call then connects.
func Lazy() Option { return func(s *settings) { s.lazy = true } }
