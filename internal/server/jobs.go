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

// Jobs describes the jobs that a server has, which may do nothing on it without a key.
type Jobs struct {
	// Judge tells processes of jobs on this machine from others; nil where none run.
	Judge *peer.Judge
	// Demand says why every caller needs a key, also on loopback, in words that stand
	// after "every caller needs a key: "; empty where that is not so.
	Demand string
}

// jobs asks once which jobs there are.
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

// hire refuses a worker that has no key and runs what others submit.
func (s *Server) hire(spec *belay.WorkerSpec) error {
	if s.opt.Hired == nil || !s.opt.Hired(spec) {
		return nil
	}
	return &belay.Error{
		Code: belay.CodeForbidden,
		Message: "a worker that runs what others submit needs a key, so that its jobs, which have none, can do " +
			"less than itself: make one with: " +
			s.keysCreate("worker", "worker") + ", and name it to the worker with --key-file",
	}
}

// demand is what callers without a key are told where keys are demanded.
func (s *Server) demand(why string) string {
	if why == "" {
		return ""
	}
	return "every caller needs a key: " + why + "; make one with: " + s.keysCreate("me", "admin") +
		" (or say insecure_no_auth, and jobs can do everything here)"
}

// keysCreate is the command that makes a key for this server.
func (s *Server) keysCreate(name, scope string) string {
	where := "--data " + shellWord(s.cfg.DataDir())
	if s.cfg.Shared() {
		where = "--store " + shellWord(config.Shown(s.cfg.Store))
	}
	return "belay keys create --name " + name + " --scope " + scope + " " + where
}

// shellWord is a word as a shell takes it.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// verdictKey is the key under which a request's context has what was found out of its
// connection.
type verdictKey struct{}

// vetted has a connection looked at, beside the others, as soon as it is there.
func vetted(j *peer.Judge) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		verdict := sync.OnceValue(func() error { return j.TCP(c) })
		go func() { _ = verdict() }()
		return context.WithValue(ctx, verdictKey{}, verdict)
	}
}

// stranger refuses who cannot be shown to be no job.
func (s *Server) stranger(r *http.Request) error {
	verdict, ok := r.Context().Value(verdictKey{}).(func() error)
	if !ok {
		return errors.New("the connection was not looked at")
	}
	err := verdict()
	if err == nil {
		return nil
	}
	what := "jobs run on this machine, and it cannot be told that this request is not one's"
	if errors.Is(err, peer.ErrJob) {
		what = "jobs may do nothing here without a key"
	}
	return &belay.Error{
		Code:    belay.CodeForbidden,
		Message: fmt.Sprintf("%s (%v); make a key with: %s", what, err, s.keysCreate("NAME", "read,submit")),
	}
}
