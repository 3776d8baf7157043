package socket

import (
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/belaydev/belay/internal/peer"
)

// Options are the options of a Server.
type Options struct {
	// Version is the version of the program. Purpose says in one line what the process does.
	// Version and Purpose are for people to read.
	Version, Purpose string
	// Yields makes the server accept requests to give way: it sends the name of the requesting
	// process on Asked. Without Yields the server refuses such requests.
	Yields bool
	// Judge refuses processes of jobs; a nil Judge refuses none.
	Judge *peer.Judge
	// Log receives the messages for operators.
	Log *slog.Logger
}

// Server serves an engine on the socket of its data directory. Its process must have the lock of
// the directory from before Open until after Close.
type Server struct {
	dir   string
	o     Options
	hello Hello
	asked chan string // the name of the process that requests the engine; nil without Yields

	stopping chan struct{} // closed by Stop
	stop     sync.Once
	next     string // set before stopping is closed

	http   *http.Server
	socket net.Listener
	made   os.FileInfo // the data of the socket's file after Open had made it
	remove sync.Once
	served chan struct{} // closed when http.Serve has returned
	busy   busy          // the connections that have requests in progress
}

// Open makes the socket of a directory. The caller must then call either Serve, which makes the
// server answer, or Close.
func Open(dir string, o Options) (*Server, error) {
	l, err := Listen(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		dir: dir, o: o, hello: Hello{Protocol: Protocol, Version: o.Version, PID: os.Getpid(), Purpose: o.Purpose},
		stopping: make(chan struct{}), socket: l, served: make(chan struct{}),
	}
	s.made, _ = os.Lstat(filepath.Join(dir, Name)) // if made is nil, Remove does nothing
	if o.Yields {
		s.asked = make(chan string, 1)
	}
	return s, nil
}

// Asked receives the name of a process that requests that this one give way; nil without
// Options.Yields.
func (s *Server) Asked() <-chan string { return s.asked }

// Stopping is closed when the server begins to stop.
func (s *Server) Stopping() <-chan struct{} { return s.stopping }

// Serve begins to answer requests: HELLO and requests to give way itself, and all other requests by
// api.
func (s *Server) Serve(api http.Handler) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /datadir/hello", s.sayHello)
	mux.HandleFunc("POST /datadir/yield", s.yield)
	mux.Handle("/", api)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler: refuseJobs(mux), ConnContext: judgeConnections(s.o.Judge), Protocols: &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000},
		ReadHeaderTimeout: 10 * time.Second, ConnState: s.busy.note, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(),
			slog.LevelInfo),
	}
	go func() {
		defer close(s.served)
		err := s.http.Serve(s.socket)
		select {
		case <-s.stopping:
		default:
			s.o.Log.Error("the socket of the data directory is not served any more", "error", err)
		}
	}()
}

// Stop makes the server send [Goodbye] to each client and refuse new connections. next is the name
// of the process that runs the engine next, or "" if it is not known. After Stop the caller must
// stop the engine, so that waiting calls are answered, and then call Close.
func (s *Server) Stop(next string) {
	s.stop.Do(func() {
		s.next = next
		close(s.stopping)
		_ = s.socket.Close() // new connections are refused from here on
	})
}

// answering is how long Close waits for the last answers to be sent.
const answering = 2 * time.Second

// Close waits until the last answers are sent, for two seconds at most, and closes all connections.
// The file of the socket stays; see Remove.
func (s *Server) Close() {
	s.Stop("")
	if s.http == nil {
		return
	}
	timer := time.NewTimer(answering)
	defer timer.Stop()
	select {
	case <-s.busy.over():
	case <-timer.C: // a client does not read its answer
	}
	_ = s.http.Close()
	<-s.served
}

// Remove removes the socket from the directory if it is still the socket that Open made. The caller
// must still have the lock, because without the lock another process may make its socket at the
// same time. A second call of Remove does nothing, because the lock may belong to another process
// by then.
func (s *Server) Remove() {
	s.remove.Do(func() {
		path := filepath.Join(s.dir, Name)
		if now, err := os.Lstat(path); err == nil && s.made != nil && os.SameFile(s.made, now) {
			_ = os.Remove(path)
		}
	})
}
