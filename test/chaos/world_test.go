package chaos

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/testkit/faultproxy"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// The size of the world (the processes of a run).
const (
	servers = 3 // on PostgreSQL; on SQLite there is one server
	workers = 6
)

// world is all processes of a run, and the history of the run.
type world struct {
	t       *testing.T
	store   string
	seed    uint64
	dir     string // the directory for logs, ledgers, and the files of commands
	starter *starter
	*history

	binary   string
	database *pgtest.Server
	url      string // the address of the database
	// the proxy between the last server and the database or, on SQLite, between the clients and the
	// server
	line    *faultproxy.Proxy
	pooler  *pooler // the pgbouncer between the last server but one and the database; nil if there is none
	disk    *disk   // the disk of the database; nil if this machine cannot have a separate disk
	servers []*server
	workers []*slot
	jobs    *jobs
	more    []string // further environment variables of the processes
}

func newWorld(t *testing.T, store string, seed uint64) *world {
	t.Helper()
	w := emptyWorld(t, store, seed)
	w.startAll()
	return w
}

// emptyWorld makes a world (all processes of one chaos test) and its directory, but starts no
// process. It builds the belay binary, unless an earlier world has already built it.
func emptyWorld(t *testing.T, store string, seed uint64) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "belay-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: store, seed: seed, dir: dir, history: newHistory(), starter: newStarter(t)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs, ledgers and the history are kept in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	if w.binary, err = binary(); err != nil {
		t.Fatal(err)
	}
	return w
}

// startAll starts all processes.
func (w *world) startAll() {
	t := w.t
	t.Helper()
	if w.store == onPostgres {
		w.database = pgtest.Start(t, pgtest.Options{})
		w.url = w.database.Database(t)
		w.disk = w.newTablespace()
		w.pooler = w.newPooler()
		w.line = w.proxy(w.database.Address(), "line")
		for i := range servers {
			w.servers = append(w.servers, w.newServer(i))
		}
	} else {
		w.servers = append(w.servers, w.newServer(0))
	}
	for _, s := range w.servers {
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range workers {
		w.workers = append(w.workers, w.newSlot(i))
	}
	w.jobs = w.newJobs()
}

// binary builds the real belay in buildDir when it is called first, and returns its path.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "belay")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../cmd/belay")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build belay: %w\n%s", err, out)
	}
	return path, nil
})

// proxy starts a proxy in front of an address, which runs until the test ends.
func (w *world) proxy(target, name string) *faultproxy.Proxy {
	w.t.Helper()
	p, err := faultproxy.Listen(target, w.seed+hash(name))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Close() })
	return p
}

func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// dice returns a source of random numbers that the seed and a name determine.
func dice(seed uint64, name string) *rand.Rand {
	return rand.New(rand.NewPCG(seed, hash(name)))
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

// environment returns the environment of the processes, which contains no variables of the
// developer except for PATH.
func (w *world) environment(more ...string) []string {
	return slices.Concat([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8",
	}, w.more, more)
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// server is a belay serve. It keeps its address over a restart.
type server struct {
	w      *world
	name   string
	addr   string
	store  string // the address of the database; empty for a data directory
	data   string
	before []string   // a command line that runs the server, such as strace
	args   []string   // additional arguments of the server
	mu     sync.Mutex // only one fault of this server at a time
	proc   *process
	client *client.Client // a client that repeats a call until a server answers it
	hasty  *client.Client // a client that does not retry, so that a call without an answer has an unknown result
	plain  *http.Client
}

func (w *world) newServer(i int) *server {
	w.t.Helper()
	s := &server{w: w, name: fmt.Sprintf("server%d", i), addr: freeAddress(w.t), store: w.url, data: w.path("data")}
	at := s.url() // the address that clients use
	switch {
	case w.store == onSQLite:
		w.line = w.proxy(s.addr, "line")
		at = "http://" + w.line.Addr()
	case i == servers-2 && w.pooler != nil:
		s.store = strings.Replace(w.database.TCP(w.name()), w.database.Address(), w.pooler.addr, 1)
	case i == servers-1 && w.line != nil: // this server connects to the database through the proxy
		s.store = strings.Replace(w.database.TCP(w.name()), w.database.Address(), w.line.Addr(), 1)
	}
	dial := func(o ...client.Option) *client.Client {
		c, err := client.Dial(w.t.Context(), at, append(o, client.Lazy(), client.Logger(quiet))...)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = c.Close() })
		return c
	}
	s.client, s.hasty = dial(), dial(client.Patience(0))
	s.plain = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	return s
}

func (s *server) url() string { return "http://" + s.addr }

// freeAddress returns an address on which no process listens. Its port lies below the range from
// which the kernel takes the ports of outgoing connections.
func freeAddress(t *testing.T) string {
	t.Helper()
	var c net.ListenConfig
	for range 100 {
		l, err := c.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// start starts the server. It repeats the start until the server answers or ctx ends, because a
// server does not start without its database.
func (s *server) start(ctx context.Context) error {
	for {
		line := slices.Concat(s.before, []string{
			s.w.binary, "serve", "--insecure-no-auth", "--listen", s.addr, "--data", s.data,
		}, s.args)
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Dir, cmd.Env = s.w.dir, s.w.environment("BELAY_STORE="+s.store)
		p, err := s.w.starter.start(cmd, s.w.path(s.name+".log"))
		if err != nil {
			return err
		}
		s.proc = p
		for !p.ended() {
			if s.answers(ctx) {
				return nil
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				p.end(0)
				return err
			}
		}
		s.w.fault("server that did not find its database")
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (s *server) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, _, err := s.get(ctx, "/readyz")
	return err == nil && status == http.StatusOK
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
