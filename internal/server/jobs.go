package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/peer"
)

// Jobs describes the jobs that can send requests to a server. The server refuses every request of a
// job without a key.
type Jobs struct {
	// Judge tells processes of jobs on this machine from other processes; nil if no jobs run on
	// this machine.
	Judge *peer.Judge
	// Demand says why every caller needs a key, also on loopback. Messages put it after
	// "every caller needs a key: ". It is empty if callers on loopback need no key.
	Demand string
}

// jobs calls Options.Jobs. With insecure_no_auth it returns no restrictions, because every caller
// may do everything then.
func (s *Server) jobs(ctx context.Context) (Jobs, error) {
	if s.opt.Jobs == nil {
		return Jobs{}, nil
	}
	jobs, err := s.opt.Jobs(ctx)
	if err == nil && s.cfg.InsecureNoAuth {
		jobs = Jobs{}
	}
	return jobs, err
}

// checkWorker refuses the registration of a worker that has no key and runs jobs of other people.
func (s *Server) checkWorker(spec *belay.WorkerSpec) error {
	if s.opt.RunsForOthers == nil || !s.opt.RunsForOthers(spec) {
		return nil
	}
	return &belay.Error{
		Code: belay.CodeForbidden,
		Message: "a worker that runs jobs of other people needs a key, so that its jobs, which have no key, cannot do " +
			"what the worker does: make one with: " +
			s.keysCreate("worker", "worker") + ", and give it to the worker with --key-file",
	}
}

// demand returns the message for callers without a key. why is the reason why every caller needs a
// key; if it is empty, callers may need no key, and the message is empty.
func (s *Server) demand(why string) string {
	if why == "" {
		return ""
	}
	return "every caller needs a key: " + why + "; make one with: " + s.keysCreate("me", "admin") +
		" (or set insecure_no_auth, which lets jobs do everything on this server)"
}

// keysCreate returns the command line that makes a key for this server.
func (s *Server) keysCreate(name, scope string) string {
	where := "--data " + shellWord(s.cfg.DataDir())
	if s.cfg.Shared() {
		where = "--store " + shellWord(config.Shown(s.cfg.Store))
	}
	return "belay keys create --name " + name + " --scope " + scope + " " + where
}

// shellWord quotes a word for a shell, if that is necessary.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// verdictKey is the key under which the context of a request has the verdict whether the connection
// comes from a job.
type verdictKey struct{}

// judgeConnections returns a function that finds out, in a goroutine of its own, whether a new
// connection comes from a job. It puts a function that waits for this verdict into the context of
// the connection's requests.
func judgeConnections(j *peer.Judge) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		verdict := sync.OnceValue(func() error { return j.TCP(c) })
		go func() { _ = verdict() }()
		return context.WithValue(ctx, verdictKey{}, verdict)
	}
}

// checkCaller refuses a request unless the kernel has shown that its caller does not belong to a
// job.
func (s *Server) checkCaller(r *http.Request) error {
	verdict, ok := r.Context().Value(verdictKey{}).(func() error)
	if !ok {
		return errors.New("the connection was not judged")
	}
	err := verdict()
	if err == nil {
		return nil
	}
	what := "jobs run on this machine, and the server cannot tell whether this request is from a job"
	if errors.Is(err, peer.ErrJob) {
		what = "a job may do nothing on this server without a key"
	}
	return &belay.Error{
		Code:    belay.CodeForbidden,
		Message: fmt.Sprintf("%s (%v); make a key with: %s", what, err, s.keysCreate("NAME", "read,submit")),
	}
}
