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
	read   [2]os.FileInfo // the files that were read last
	looked time.Time      // when current last checked the files
	reason string         // the reported error of the last try to read the files; empty if they could be read
}

// lookEvery is the shortest time between two checks of the files.
const lookEvery = time.Second

// current returns the certificate. It reads the files again if they have changed, or if they could
// not be read the last time: a corrected file mode changes no modification time. A missing file is
// no error, because a file can be missing for a moment while it is replaced.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= lookEvery {
		c.looked = now
		if files, err := c.files(); err == nil && (c.reason != "" || !same(files, c.read)) {
			c.reloadLocked()
		}
	}
	return c.pair
}

// reloadLocked reads the files again. It reports an error once, until the error is another one or
// the files have been read.
func (c *certificate) reloadLocked() {
	err := c.loadLocked()
	if err == nil {
		c.reason = ""
		return
	}
	if reason := err.Error(); reason != c.reason {
		c.reason = reason
		c.failed(err)
	}
}

func (c *certificate) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loadLocked()
}

func (c *certificate) loadLocked() error {
	files, err := c.files()
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
	c.pair, c.read = &pair, files
	return nil
}

func (c *certificate) files() (files [2]os.FileInfo, err error) {
	for i, path := range []string{c.cert, c.key} {
		if files[i], err = os.Stat(path); err != nil {
			return files, err
		}
	}
	return files, nil
}

// same reports whether two looks at the files found the same unchanged files.
func same(a, b [2]os.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}
