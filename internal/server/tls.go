package server

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/secret"
)

// tls makes the TLS configuration. The certificate's files are read again when they change.
func (s *Server) tls() (*tls.Config, error) {
	c := &certificate{cert: s.cfg.TLSCert, key: s.cfg.TLSKey, failed: func(err error) {
		s.log.Error("the new certificate cannot be used; the old one stays", "error", err)
	}, now: time.Now}
	if err := c.load(); err != nil {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Op: "read the certificate", Message: fmt.Sprintf("%s with %s", c.cert, c.key),
			Err: err,
		}
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
	}, nil
}

// certificate is a certificate and its key, whose files may be replaced while the server runs.
type certificate struct {
	cert, key string
	failed    func(error) // called when renewed files cannot be used
	now       func() time.Time

	mu     sync.Mutex
	pair   *tls.Certificate
	stamp  [2]time.Time // modification times of the files that were read last
	looked time.Time    // when current last checked the files
}

// lookEvery is the shortest time between two checks of the files.
const lookEvery = time.Second

// current returns the certificate. It reads the files again if they have changed.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= lookEvery {
		c.looked = now
		if stamp, err := c.stamps(); err == nil && stamp != c.stamp {
			if err := c.loadLocked(); err != nil {
				c.stamp = stamp // so that the error is reported once for each change
				c.failed(err)
			}
		}
	}
	return c.pair
}

func (c *certificate) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loadLocked()
}

func (c *certificate) loadLocked() error {
	stamp, err := c.stamps()
	if err != nil {
		return err
	}
	if _, err := secret.Check(c.key); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.pair, c.stamp = &pair, stamp
	return nil
}

func (c *certificate) stamps() (stamp [2]time.Time, err error) {
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return stamp, err
		}
		stamp[i] = info.ModTime()
	}
	return stamp, nil
}
