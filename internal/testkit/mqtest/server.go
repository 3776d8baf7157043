package mqtest

import (
	"bufio"
	"context"
	"crypto/rand"
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
	"testing"
)

// The user with all permissions, which RabbitMQ makes when it starts for the first time.
const user, password = "guest", "guest"

// Options say how to run a server.
type Options struct {
	// Settings are further settings, as in rabbitmq.conf.
	Settings map[string]string
}

// Server is a running RabbitMQ.
type Server struct {
	programs programs
	dir      string
	ports    ports
	outside  *url.URL // the server that BELAY_TEST_RABBITMQ names, which tests must not stop

	mu    sync.Mutex // only one command to the shell runs at a time
	shell *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	pid   int // process id of the server, 0 while the server is stopped

	names atomic.Int64
}

// ports are the ports on which a server and its epmd listen: one for clients, one for other Erlang nodes.
type ports struct{ client, dist, epmd int }

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared returns the server that all tests of this binary share. The first call of Shared starts the
// server, which stops when the test process ends. Tests must not stop it.
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

// tries is how often a server is started with other ports, because another process may take a port
// after it was found to be free.
const tries = 3

// Open starts a server outside of tests. The caller closes it.
func Open() (*Server, error) { return open(Options{}) }

func open(o Options) (*Server, error) {
	if text := os.Getenv(envURL); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			return nil, errors.New(envURL + " is not a URL")
		}
		return &Server{outside: u}, nil
	}
	p, err := find()
	if err != nil {
		return nil, err
	}
	var failures []error
	for range tries {
		s := &Server{programs: p}
		if err = s.start(o); err == nil {
			return s, nil
		}
		failures = append(failures, err, s.Close())
		if !errors.Is(err, errPort) {
			break
		}
	}
	return nil, errors.Join(failures...)
}

// start makes the server's directory, starts the shell in it, and lets the shell start the server.
func (s *Server) start(o Options) error {
	dir, err := os.MkdirTemp("", "mqtest-")
	if err != nil {
		return err
	}
	s.dir = dir
	for _, port := range []*int{&s.ports.client, &s.ports.dist, &s.ports.epmd} {
		if *port, err = freePort(); err != nil {
			return err
		}
	}
	for _, name := range []string{"home", "data", "log"} {
		if err := os.Mkdir(s.path(name), 0o700); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"plugins": "[].\n", "rabbitmq.conf": o.text(s.ports.client),
		// A program that knows the cookie may do anything as the user of the test.
		"home/.erlang.cookie": rand.Text(),
	} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o400); err != nil {
			return err
		}
	}
	if err := s.supervise(); err != nil {
		return err
	}
	return s.Resume()
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// text returns the settings in the format of rabbitmq.conf.
func (o Options) text(port int) string {
	all := map[string]string{
		"listeners.tcp.default":             "127.0.0.1:" + strconv.Itoa(port),
		"loopback_users":                    "none",
		"log.console":                       "true",
		"log.console.level":                 "info",
		"raft.wal_max_size_bytes":           "8000000", // the default makes a file of 512 MB
		"disk_free_limit.absolute":          "10MB",
		"vm_memory_high_watermark.relative": "0.4",
	}
	for k, v := range o.Settings {
		all[k] = v
	}
	var b strings.Builder
	for k, v := range all {
		fmt.Fprintf(&b, "%s = %s\n", k, v)
	}
	return b.String()
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

// node is the name of the server as an Erlang node.
func (s *Server) node() string { return "belay" + strconv.Itoa(s.ports.client) + "@localhost" }

// environment returns the environment of the server's programs. It has nothing of the test's own
// settings of Erlang and RabbitMQ.
func (s *Server) environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "RABBITMQ_") && !strings.HasPrefix(e, "ERL_") && !strings.HasPrefix(e, "HOME=") {
			env = append(env, e)
		}
	}
	const loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
	return append(env,
		"HOME="+s.path("home"),
		"LANG=C.UTF-8", "LC_ALL=C.UTF-8",
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_EPMD_PORT="+strconv.Itoa(s.ports.epmd),
		"RABBITMQ_NODENAME="+s.node(),
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT="+strconv.Itoa(s.ports.client),
		"RABBITMQ_DIST_PORT="+strconv.Itoa(s.ports.dist),
		"RABBITMQ_MNESIA_BASE="+s.path("data"),
		"RABBITMQ_GENERATED_CONFIG_DIR="+s.path("data"),
		"RABBITMQ_LOG_BASE="+s.path("log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_ENABLED_PLUGINS_FILE="+s.path("plugins"),
		"RABBITMQ_CONFIG_FILE="+s.path("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+s.path("advanced.config"), // does not exist, nor does the next file
		"RABBITMQ_CONF_ENV_FILE="+s.path("rabbitmq-env.conf"),
		"RABBITMQ_PID_FILE="+s.path("data/pid"),
		"RABBITMQ_ALLOW_INPUT=1", // the script becomes the server, so that the shell knows the server's process id
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+loopback+" +S 2:2 +A 4",
	)
}

// Outside reports whether the server is one that BELAY_TEST_RABBITMQ names.
func (s *Server) Outside() bool { return s.outside != nil }

// URL returns the URL of a virtual host of the server, for a user with all permissions. For a server
// that BELAY_TEST_RABBITMQ names, it returns that URL.
func (s *Server) URL(vhost string) string {
	if s.outside != nil {
		return s.outside.String()
	}
	return s.urlOf(vhost, url.UserPassword(user, password))
}

func (s *Server) urlOf(vhost string, u *url.Userinfo) string {
	return "amqp://" + u.String() + "@" + s.Address() + "/" + url.PathEscape(vhost)
}

// Address returns the address on which the server listens on the loopback.
func (s *Server) Address() string {
	if s.outside != nil {
		return s.outside.Host
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.client))
}

// Log returns the content of the server's log.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.path("log.txt"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}
