package client

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/belaydev/belay/internal/uid"
)

// DefaultPatience is for how long a call that is safe to repeat is repeated.
const DefaultPatience = 10 * time.Second

// Option changes how Dial dials. None is needed.
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

// Key is the secret that the server knows this program by: bly_….
func Key(secret string) Option { return func(s *settings) { s.key = secret } }

// TLS sets certificates for https: which to trust, and which to show.
func TLS(c *tls.Config) Option { return func(s *settings) { s.tls = c } }

// UserAgent names the program in the server's log.
func UserAgent(name string) Option { return func(s *settings) { s.userAgent = name } }

// Patience is for how long after a first failure a call that is safe to repeat is
// repeated; 0 repeats nothing. The default is DefaultPatience.
func Patience(d time.Duration) Option { return func(s *settings) { s.patience = d } }

// Logger sends what an operator should know to l instead of slog.Default().
func Logger(l *slog.Logger) Option { return func(s *settings) { s.log = l } }

// Dialer opens connections in place of the network's. The URL still says how the
// server is spoken to.
func Dialer(dial func(context.Context) (net.Conn, error)) Option {
	return func(s *settings) { s.dialer = dial }
}

// HTTP1 speaks HTTP/1.1, for a way that HTTP/2 does not get through. Each call
// that waits then has a connection of its own.
func HTTP1() Option { return func(s *settings) { s.http1 = true } }

// Lazy has Dial not look for the server: the first call does.
func Lazy() Option { return func(s *settings) { s.lazy = true } }
