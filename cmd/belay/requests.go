package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/httptask"
	"github.com/belaydev/belay/internal/reach"
	"github.com/belaydev/belay/internal/secretref"
	"github.com/belaydev/belay/internal/server"
	"github.com/belaydev/belay/worker"
)

// caller makes the caller of HTTP requests that the configuration describes. backend returns the
// Backend to whose executions the requests belong.
func caller(c *config.Config, backend func() belay.Backend, log *slog.Logger) (*httptask.Caller, error) {
	policy, err := reach.Parse(c.HTTP.Egress)
	if err != nil {
		return nil, &belay.Error{Code: belay.CodeInvalid, Message: "http.egress: " + err.Error()}
	}
	secrets, err := secretsOf(c, log)
	if err != nil {
		return nil, err
	}
	h := &httptask.Caller{
		Dialer:  reach.Dialer{Policy: policy, Closed: ownAddress(c.Listen)},
		Secrets: secrets, Agent: "belay/" + version,
		Owners: func(ctx context.Context, parent belay.ExecutionID) ([]string, error) {
			return owners(ctx, backend(), parent)
		},
	}
	if c.HTTP.Proxy != "" {
		if h.Proxy, err = url.Parse(c.HTTP.Proxy); err != nil {
			return nil, errors.New("http.proxy is not a URL") // the URL may contain a password
		}
	}
	return h, nil
}

// secretsOf returns the secrets to which tasks may refer.
func secretsOf(c *config.Config, log *slog.Logger) (*secretref.Store, error) {
	s, err := secretref.Parse(c.Secrets)
	if err != nil {
		return nil, &belay.Error{Code: belay.CodeInvalid, Message: "secrets.allow: " + err.Error()}
	}
	s.Git, s.Log = credentials(c), log
	return s, nil
}

// owners returns the workflow of the execution that started a task. A worker whose key may not read
// executions gets none, so that only rules for the task's own workflow apply.
func owners(ctx context.Context, b belay.Backend, parent belay.ExecutionID) ([]string, error) {
	x, err := b.Execution(ctx, parent)
	switch {
	case err == nil:
		return []string{x.Workflow}, nil
	case belay.CodeOf(err) == belay.CodeForbidden || belay.CodeOf(err) == belay.CodeNotFound:
		return nil, nil
	}
	return nil, err
}

// webhookSecrets finds the secrets of webhooks. A rule allows a secret to all webhooks by the name webhook, or to one
// by the name webhook:NAME.
func webhookSecrets(c *config.Config, log *slog.Logger) (func(webhook, name string) (string, error), error) {
	s, err := secretsOf(c, log)
	if err != nil {
		return nil, err
	}
	return func(webhook, name string) (string, error) {
		return s.Scope("webhook:"+webhook, "webhook").Value(name)
	}, nil
}

// addRequests adds the workflow of HTTP requests to the workflows that the server runs itself.
func (s *serving) addRequests(o *server.Options) error {
	if s.cfg.HTTP.Concurrency == 0 {
		return nil
	}
	h, err := caller(s.cfg, func() belay.Backend { return s.backend }, s.log)
	if err != nil {
		return err
	}
	o.Builtins = append(o.Builtins, server.Builtin{
		Workflow: httptask.Workflow, Concurrency: s.cfg.HTTP.Concurrency, Run: h.RunAny,
		Grace: s.cfg.Grace * 2 / 3,
	})
	return nil
}

// admitRequest checks a submission of an HTTP request. The server has a worker for requests only while
// there are requests, so a policy that fails without a worker would be wrong.
func (s *serving) admitRequest(x *belay.Submission) error {
	if s.cfg.HTTP.Concurrency > 0 && forOwnWorker(x) && !x.External {
		x.Policy.OnNoWorker = belay.WaitForWorker
	}
	return httptask.CheckInput(x.Input)
}

// requests makes a worker that sends HTTP requests; most is the greatest number of requests at the same
// time.
func (b *builtins) requests(most int) (*worker.Worker, error) {
	h, err := caller(b.cfg, func() belay.Backend { return b.backend }, b.log)
	if err != nil {
		return nil, err
	}
	w := b.worker("requests of "+b.name, most)
	worker.Register(w, httptask.Workflow, h.Run)
	return w, nil
}

// checkRequests returns the errors of the configuration of HTTP requests and of secrets. It sends and
// reads nothing.
func checkRequests(c *config.Config) error {
	h, err := caller(c, nil, slog.Default())
	if err != nil {
		return err
	}
	for _, path := range h.Secrets.Files() {
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf(
				"secrets.allow: %s is a symbolic link; name the file to which it leads", path)}
		}
	}
	return nil
}
