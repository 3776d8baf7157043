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

// Options say how a Server serves.
type Options struct {
	// Version is that of the program and Purpose says in one line what the process
	// is, both for people.
	Version, Purpose string
	// Yields has the server name on Asked each process that asks it to give way. Without
	// Yields the server refuses them.
	Yields bool
	// Judge refuses processes of jobs; a nil Judge refuses none.
	Judge *peer.Judge
	// Log receives what an operator should know.
	Log *slog.Logger
}

// Server serves an engine on the socket of its data directory. The process that
// has it also has the lock of the directory, from before Open until after Close.
type Server struct {
	dir   string
	o     Options
	hello Hello
	asked chan string // the process that asked this one to give way; nil if it does not

	stopping chan struct{} // closed by Stop
	stop     sync.Once
	next     string // set before stopping is closed

	http   *http.Server
	socket net.Listener
	made   os.FileInfo // of the socket
	remove sync.Once
	served chan struct{} // closed when http has returned
	busy   busy          // connections with requests on them
}

// Open makes the socket of a directory. Nothing is answered there before Serve, which
// must follow, or Close.
func Open(dir string, o Options) (*Server, error) {
	l, err := Listen(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		dir: dir, o: o, hello: Hello{Protocol: Protocol, Version: o.Version, PID: os.Getpid(), Purpose: o.Purpose},
		stopping: make(chan struct{}), socket: l, served: make(chan struct{}),
	}
	s.made, _ = os.Lstat(filepath.Join(dir, Name)) // without it Remove does nothing
	if o.Yields {
		s.asked = make(chan string, 1)
	}
	return s, nil
}

// Asked tells which process asks this one to give way; it is nil if it never does.
func (s *Server) Asked() <-chan string { return s.asked }

// Stopping is closed when the server begins to stop.
func (s *Server) Stopping() <-chan struct{} { return s.stopping }

// Serve begins to serve the API, beside HELLO.
func (s *Server) Serve(api http.Handler) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /datadir/hello", s.sayHello)
	mux.HandleFunc("POST /datadir/yield", s.yield)
	mux.Handle("/", api)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler: refuseGuests(mux), ConnContext: note(s.o.Judge), Protocols: &protocols,
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

// Stop says good-bye and refuses new connections. next is the process that hosts
// next, "" if that is not known. Stop the engine after it, so that the calls that wait
// for something are answered, and then Close.
func (s *Server) Stop(next string) {
	s.stop.Do(func() {
		s.next = next
		close(s.stopping)
		_ = s.socket.Close() // refuses from here on
	})
}

// answering is how long, once the engine has stopped, the answers may take to be
// sent.
const answering = 2 * time.Second

// Close sends what was answered, for two seconds at most, and closes all connections.
// The socket stays where it is, see Remove.
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

// Remove removes the socket from the directory, if it is still the one that was made
// here. The caller still has the lock, without which no process makes another socket. A second
// call does nothing: by then another process may have the lock.
func (s *Server) Remove() {
	s.remove.Do(func() {
		path := filepath.Join(s.dir, Name)
		if now, err := os.Lstat(path); err == nil && s.made != nil && os.SameFile(s.made, now) {
			_ = os.Remove(path)
		}
	})
}
