// Package desk is the way from a process of a job to the worker that runs the job: a Unix socket in
// the job's directory for temporary files. Through it an agent asks a person, stores its changes
// now, and reports what it does.
//
// Each connection carries one request: a JSON object of at most [maxRequest] bytes, and the answer
// of the worker, another JSON object. Everything that a job sends is hostile. A job can only reach
// its own worker process, and there only the methods of [Handler].
package desk

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Variable is the name of the environment variable with the path of the socket.
const Variable = "BELAY_DESK"

const (
	// maxRequest and maxAnswer are the maximum sizes of a request and of an answer, in bytes.
	maxRequest = 64 << 10
	maxAnswer  = 512 << 10 // an answer of a person has at most 64 KiB, and a character of it at most 6 bytes as JSON
	// maxCallers is how many connections one job may have at the same time.
	maxCallers = 16
	// patience is the time limit for reading a request and for writing an answer.
	patience = 10 * time.Second
)

// The actions of a request.
const (
	ask        = "ask"
	checkpoint = "checkpoint"
	report     = "report"
)

// request is what a process of a job sends.
type request struct {
	Do   string `json:"do"`
	Text string `json:"text,omitempty"`
}

// answer is what the worker sends back.
type answer struct {
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// Handler carries out the requests of one job. Its methods may be called by several goroutines. An
// error is sent to the job, so it must contain nothing that the job may not see.
type Handler interface {
	// Ask returns the answer of a person to a question. If the answer is not known yet, Ask blocks
	// until ctx ends; the job's processes end meanwhile.
	Ask(ctx context.Context, question string) (string, error)
	// Checkpoint stores the present changes of the job with its execution.
	Checkpoint(ctx context.Context) error
	// Report publishes a line about what the agent does.
	Report(text string) error
}

// Desk serves the requests of one job.
type Desk struct {
	path     string
	listener *net.UnixListener
	handler  Handler
	member   func(ctx context.Context, pid int) bool
	stop     context.CancelFunc
	callers  sync.WaitGroup
}

// Open opens the socket in the directory dir, of which the user owner gets the socket. No process of
// that user may run yet, because it could replace files of dir. member reports whether a process belongs to the job:
// without PID namespaces, all jobs may run as one user, and each of them can connect to the sockets of the others.
func Open(dir string, owner int, h Handler, member func(ctx context.Context, pid int) bool) (*Desk, error) {
	d := &Desk{path: Path(dir), handler: h, member: member}
	err := through(d.path, func(short string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false) // the workspace is removed as a whole, and the path is short-lived
		d.listener = l
		return nil
	})
	if err == nil {
		err = errors.Join(os.Chmod(d.path, 0o600), os.Lchown(d.path, owner, -1))
	}
	if err != nil {
		if d.listener != nil {
			err = errors.Join(err, d.listener.Close())
		}
		return nil, fmt.Errorf("open the socket of a job: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	go d.serve(ctx)
	return d, nil
}

// Path returns the path of the socket in the directory dir.
func Path(dir string) string { return filepath.Join(dir, "belay.sock") }

// Path returns the path of the socket.
func (d *Desk) Path() string { return d.path }

// Close closes the socket and waits until no request is in progress.
func (d *Desk) Close() error {
	d.stop()
	err := d.listener.Close()
	d.callers.Wait()
	return err
}

func (d *Desk) serve(ctx context.Context) {
	places := make(chan struct{}, maxCallers)
	for {
		conn, err := d.listener.AcceptUnix()
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		d.callers.Go(func() {
			defer func() { <-places }()
			d.receive(ctx, conn)
		})
	}
}

// receive answers the request of one connection.
func (d *Desk) receive(ctx context.Context, conn *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	var r request
	var a answer
	line, err := bufio.NewReaderSize(io.LimitReader(conn, maxRequest), maxRequest).ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if pid := peerOf(conn); pid <= 0 || !d.member(ctx, pid) {
		return
	}
	if err != nil {
		a.Error = fmt.Sprintf("a request is one line of JSON of at most %d bytes", maxRequest)
	} else {
		_ = conn.SetReadDeadline(time.Time{})
		a = d.carryOut(ctx, r)
	}
	if raw, err := json.Marshal(a); err == nil && ctx.Err() == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		_, _ = conn.Write(append(raw, '\n'))
	}
}

func (d *Desk) carryOut(ctx context.Context, r request) (a answer) {
	var err error
	switch r.Do {
	case ask:
		a.Text, err = d.handler.Ask(ctx, r.Text)
	case checkpoint:
		err = d.handler.Checkpoint(ctx)
	case report:
		err = d.handler.Report(r.Text)
	default:
		err = fmt.Errorf("there is no action %q", r.Do)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// Ask asks a person through the socket at path. It returns when the answer is known.
func Ask(ctx context.Context, path, question string) (string, error) {
	return call(ctx, path, request{ask, question})
}

// Checkpoint stores the changes of the job.
func Checkpoint(ctx context.Context, path string) error {
	_, err := call(ctx, path, request{Do: checkpoint})
	return err
}

// Report publishes a line about what the agent does.
func Report(ctx context.Context, path, text string) error {
	_, err := call(ctx, path, request{report, text})
	return err
}

func call(ctx context.Context, path string, r request) (string, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	if len(raw)+1 > maxRequest {
		return "", fmt.Errorf("the text is too long: a request has at most %d bytes", maxRequest)
	}
	var conn net.Conn
	if err := through(path, func(short string) error {
		conn, err = (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", short)
		return err
	}); err != nil {
		return "", fmt.Errorf("reach the worker of this job: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(append(raw, '\n')); err != nil {
		return "", fmt.Errorf("reach the worker of this job: %w", err)
	}
	var a answer
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&a); err != nil {
		return "", errors.Join(ctx.Err(), fmt.Errorf("the worker of this job did not answer: %w", err))
	}
	if a.Error != "" {
		return "", errors.New(a.Error)
	}
	return a.Text, nil
}
