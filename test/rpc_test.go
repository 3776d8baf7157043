package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/rpc"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// Environment variables that name the files of a program that the method role starts.
const (
	socketEnv  = "BLACKBOX_SOCKET"
	releaseEnv = "BLACKBOX_RELEASE"
)

var quiet = slog.New(slog.DiscardHandler)

// Reply carries a result or an error over the socket.
type Reply[T any] struct {
	Value   T
	Code    belay.Code
	Cause   belay.Cause
	Message string
}

func (r *Reply[T]) set(v T, err error) error {
	r.Value = v
	var e *belay.Error
	if errors.As(err, &e) {
		r.Code, r.Cause, r.Message = e.Code, e.Cause, e.Message
	} else if err != nil {
		r.Code, r.Message = belay.CodeInternal, err.Error()
	}
	return nil
}

// Served exposes a Backend behind a socket: the methods that workers need, and Submit.
type Served struct{ b belay.Backend }

func (s *Served) OpenWorker(w belay.WorkerSpec, r *Reply[belay.Session]) error {
	return r.set(s.b.OpenWorker(context.Background(), w))
}

func (s *Served) Claim(c belay.ClaimRequest, r *Reply[belay.ClaimReply]) error {
	return r.set(s.b.Claim(context.Background(), c))
}

func (s *Served) Heartbeat(h belay.Heartbeat, r *Reply[belay.HeartbeatReply]) error {
	return r.set(s.b.Heartbeat(context.Background(), h))
}

func (s *Served) Drain(id belay.WorkerID, r *Reply[bool]) error {
	return r.set(true, s.b.Drain(context.Background(), id))
}

func (s *Served) CloseWorker(id belay.WorkerID, r *Reply[bool]) error {
	return r.set(true, s.b.CloseWorker(context.Background(), id))
}

func (s *Served) Save(c belay.Save, r *Reply[int64]) error {
	return r.set(s.b.Save(context.Background(), c))
}

func (s *Served) Settle(c belay.Settlement, r *Reply[bool]) error {
	return r.set(true, s.b.Settle(context.Background(), c))
}

func (s *Served) Submit(c belay.Submission, r *Reply[belay.ExecutionID]) error {
	out, err := s.b.Submit(context.Background(), c)
	if err != nil {
		return r.set(belay.ExecutionID{}, err)
	}
	return r.set(out[0].ID, out[0].Err)
}

// serve serves a Backend on a unix socket until the listener is closed.
func serve(b belay.Backend, socket string) (net.Listener, error) {
	server := rpc.NewServer()
	if err := server.RegisterName("Belay", &Served{b}); err != nil {
		return nil, err
	}
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the listener is closed
			}
			go server.ServeConn(c)
		}
	}()
	return l, nil
}

// engineProcess is a program that contains only an engine on the data directory, for workers in
// other processes.
func engineProcess() error {
	b, err := embedded.Open(context.Background(), "sqlite:"+os.Getenv("BELAY_DATA"))
	if err != nil {
		return err
	}
	l, err := serve(b, os.Getenv(socketEnv))
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "ready")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	return errors.Join(l.Close(), b.Close())
}

// remote is the client of a Backend behind a socket. When an engine process has ended, it connects
// to the next one.
type remote struct {
	belay.Backend // the tests call none of the Backend's other methods
	socket        string

	mu     sync.Mutex
	client *rpc.Client
}

func (b *remote) dial() (*rpc.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client == nil {
		c, err := rpc.Dial("unix", b.socket)
		if err != nil {
			return nil, err
		}
		b.client = c
	}
	return b.client, nil
}

func (b *remote) drop(c *rpc.Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client == c {
		_ = c.Close()
		b.client = nil
	}
}

func ask[T any](ctx context.Context, b *remote, method string, args any) (T, error) {
	var none T
	away := func(err error) error {
		return &belay.Error{Code: belay.CodeUnavailable, Op: method, Message: "the engine cannot be reached", Err: err}
	}
	client, err := b.dial()
	if err != nil {
		return none, away(err)
	}
	r := new(Reply[T])
	call := client.Go("Belay."+method, args, r, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return none, away(context.Cause(ctx))
	}
	if call.Error != nil {
		b.drop(client)
		return none, away(call.Error)
	}
	if r.Code != "" {
		return none, &belay.Error{Code: r.Code, Cause: r.Cause, Op: method, Message: r.Message}
	}
	return r.Value, nil
}

func (b *remote) OpenWorker(ctx context.Context, w belay.WorkerSpec) (belay.Session, error) {
	return ask[belay.Session](ctx, b, "OpenWorker", w)
}

func (b *remote) Claim(ctx context.Context, c belay.ClaimRequest) (belay.ClaimReply, error) {
	return ask[belay.ClaimReply](ctx, b, "Claim", c)
}

func (b *remote) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	return ask[belay.HeartbeatReply](ctx, b, "Heartbeat", h)
}

func (b *remote) Drain(ctx context.Context, id belay.WorkerID) error {
	_, err := ask[bool](ctx, b, "Drain", id)
	return err
}

func (b *remote) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	_, err := ask[bool](ctx, b, "CloseWorker", id)
	return err
}

func (b *remote) Save(ctx context.Context, s belay.Save) (int64, error) {
	return ask[int64](ctx, b, "Save", s)
}

func (b *remote) Settle(ctx context.Context, s belay.Settlement) error {
	_, err := ask[bool](ctx, b, "Settle", s)
	return err
}

func (b *remote) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	id, err := ask[belay.ExecutionID](ctx, b, "Submit", s[0])
	if err != nil {
		return nil, err
	}
	return []belay.Submitted{{ID: id}}, nil
}
