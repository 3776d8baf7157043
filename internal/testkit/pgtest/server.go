package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Options say how to run a server. A server with the zero Options keeps every write that it
// acknowledges.
type Options struct {
	// NoSync turns fsync off, for tests that neither crash the server nor measure it.
	NoSync bool
	// Settings are further settings, as in postgresql.conf.
	Settings map[string]string
}

// Server is a running PostgreSQL.
type Server struct {
	bin     string
	dir     string
	port    int
	outside *url.URL // the server that BELAY_TEST_POSTGRES names, which tests must not stop

	mu    sync.Mutex // only one command to the shell runs at a time
	shell *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	pid   int // process id of the postmaster, 0 while the server is stopped

	databases atomic.Int64
	templates sync.Map // from the name of a template to a *sync.Once
}

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared returns the server that all tests of this binary share. The first call of Shared starts the
// server, which stops when the test process ends.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = open(Options{}) })
	if shared.err != nil {
		without(t, shared.err)
	}
	return shared.server
}

// Start returns a server for this test alone, which the test may stop and kill. The server stops
// when the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if os.Getenv(envURL) != "" {
		t.Skip("the server of " + envURL + " must not be stopped by a test")
	}
	s, err := open(o)
	if err != nil {
		without(t, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(o Options) (*Server, error) {
	bin, err := binaries()
	if text := os.Getenv(envURL); text != "" {
		u, bad := url.Parse(text)
		if bad != nil {
			return nil, errors.New(envURL + " is not a URL")
		}
		return &Server{bin: bin, outside: u}, err
	}
	if err != nil {
		return nil, err
	}
	attr, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(place(attr.Credential), "pgtest-")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir}
	if err := s.create(o, attr); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.Resume(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// place returns the directory in which the server's directory is made: "" for the directory of
// temporary files, or /tmp if the server's user cannot reach that directory, as may happen in a test
// that runs as root.
func place(c *syscall.Credential) string {
	for at := os.TempDir(); c != nil && at != filepath.Dir(at); at = filepath.Dir(at) {
		if info, err := os.Stat(at); err != nil || info.Mode()&0o001 == 0 {
			return "/tmp"
		}
	}
	return ""
}

// create makes the data directory and starts the shell in it.
func (s *Server) create(o Options, attr *syscall.SysProcAttr) error {
	if c := attr.Credential; c != nil {
		if err := os.Chown(s.dir, int(c.Uid), int(c.Gid)); err != nil {
			return err
		}
	}
	initdb := exec.CommandContext(context.Background(), s.Binary("initdb"), "--pgdata=data", "--username=postgres",
		"--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir, initdb.SysProcAttr = s.dir, attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	s.port = port
	conf, err := os.OpenFile(filepath.Join(s.dir, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString(o.text(s.dir, port))
	if err := errors.Join(err, conf.Close()); err != nil {
		return err
	}
	return s.supervise(attr)
}

// text returns the settings in the format of postgresql.conf.
func (o Options) text(dir string, port int) string {
	all := map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(port), "unix_socket_directories": dir,
		"max_connections": "200", "fsync": "on", "timezone": "UTC", "log_line_prefix": "%m [%p] ",
	}
	if o.NoSync {
		all["fsync"] = "off"
	}
	for k, v := range o.Settings {
		all[k] = v
	}
	var b strings.Builder
	for k, v := range all {
		fmt.Fprintf(&b, "\n%s = '%s'", k, strings.ReplaceAll(v, "'", "''"))
	}
	return b.String() + "\n"
}

// freePort finds a port on which no process listens.
func freePort() (int, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	a, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(fmt.Errorf("listening at %v", l.Addr()), l.Close())
	}
	return a.Port, l.Close()
}

// URL returns the URL of a database of the server, through the server's socket.
func (s *Server) URL(database string) string {
	if s.outside != nil {
		u := *s.outside
		u.Path = "/" + database
		return u.String()
	}
	q := url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.port)}, "user": {"postgres"}}
	return "postgres:///" + database + "?" + q.Encode()
}

// TCP returns the URL of a database of the server through the loopback, so that a test can put a
// proxy in between.
func (s *Server) TCP(database string) string {
	if s.outside != nil {
		return s.URL(database)
	}
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

// Address returns the address on which the server listens on the loopback.
func (s *Server) Address() string {
	if s.outside != nil {
		return s.outside.Host
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// Binary returns the path of one of PostgreSQL's programs, in the version of the server.
func (s *Server) Binary(name string) string { return filepath.Join(s.bin, name) }

// Log returns the content of the server's log.
func (s *Server) Log() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}
