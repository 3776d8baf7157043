package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/secret"
	"github.com/belaydev/belay/internal/secretref"
	"github.com/belaydev/belay/internal/socket"
)

// checkJobs returns the errors of a configuration that would prevent this process from running
// jobs. It starts nothing. elsewhere says that workers on other machines run the agents.
func checkJobs(c *config.Config, elsewhere bool) error {
	var all []error
	if c.Agents() {
		_, err := agentSetup(c, elsewhere)
		all = append(all, err)
	}
	repos := repositories(c)
	if err := repos.CheckNamed(); err != nil {
		all = append(all, fmt.Errorf("agent.repos: %w", err))
	}
	if logins := credentials(c); logins != nil {
		_, _, _, err := logins("https://localhost/any")
		all = append(all, err)
	}
	_, err := wallsOf(c, visibility{})
	all = append(all, err, checkUsers(c.Agent), socket.Check(c.DataDir()))
	if dir := c.Agent.WorkspaceDir; dir != "" {
		all = append(all, socket.Check(dir))
	}
	return errors.Join(append(all, checkRequests(c))...)
}

// checkUsers refuses a range of system users that this process cannot give to jobs.
func checkUsers(a config.Agent) error {
	if a.Users == "auto" || a.Users == "none" {
		return nil
	}
	users, err := usersOf(a.Users)
	if err != nil {
		return err
	}
	journal, err := os.MkdirTemp("", "belay-check-")
	if err != nil {
		return err
	}
	_, err = process.OpenPool(journal, users)
	return errors.Join(err, os.RemoveAll(journal))
}

// checkSecrets refuses files with secrets that other users can change or read. A warning describes
// a file that is accepted although other users can read it.
func (a *app) checkSecrets(c *config.Config) (warnings []string, err error) {
	var all []error
	look := func(what, path string) {
		if path == "" {
			return
		}
		warning, err := secret.Check(path)
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", what, err))
		}
		if warning != "" {
			warnings = append(warnings, what+": "+warning)
		}
	}
	look("tls_key", c.TLSKey)
	look("broker.password_file", c.Broker.PasswordFile)
	look("agent.git_crypt_key", c.Agent.CryptKey)
	look("agent.git_credentials", c.Agent.GitCredentials)
	look("agent.push_credentials", c.Agent.PushCredentials)
	look("--key-file", a.keyFile)
	if s, err := secretref.Parse(c.Secrets); err == nil {
		for _, path := range s.Files() {
			if _, err := os.Stat(path); err == nil { // a file that is not there yet may come later
				look("secrets.allow", path)
			}
		}
	}
	for _, name := range slices.Concat(c.Agent.Env, c.Agent.PushEnv) {
		look(name+"_FILE", os.Getenv(name+"_FILE"))
	}
	if c.File == "" {
		return warnings, errors.Join(all...)
	}
	info, serr := os.Stat(c.File)
	switch {
	case serr != nil:
	case info.Mode().Perm()&0o022 != 0:
		all = append(all, &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
			"%s has mode %#o: other users can change the configuration; close it with: chmod go-w %s", c.File,
			info.Mode().Perm(), c.File)})
	case info.Mode().Perm()&0o044 != 0 && (len(c.Agent.Logins) > 0 ||
		config.HasPassword(c.Store) || config.HasPassword(c.Broker.URL)):
		warnings = append(warnings, fmt.Sprintf(
			"%s has mode %#o and contains credentials: other users of this machine can read them", c.File,
			info.Mode().Perm()))
	}
	return warnings, errors.Join(all...)
}

// checkServe returns the errors with which belay serve would refuse to start. It starts nothing and
// does not connect to a database.
func (a *app) checkServe(ctx context.Context, c *config.Config) (warnings []string, err error) {
	warnings, err = a.checkSecrets(c)
	all := []error{err, checkJobs(c, !c.Agent.Local), checkListen(ctx, c), checkBroker(c)}
	if c.TLS() {
		if _, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey); err != nil {
			all = append(all, fmt.Errorf("read the certificate: %w", err))
		}
	}
	return warnings, errors.Join(all...)
}

// checkWorker returns the errors with which belay worker would refuse to start. It starts nothing.
func (a *app) checkWorker(c *config.Config) (warnings []string, err error) {
	secrets := *c
	secrets.TLSKey = "" // only a server reads the key of its TLS certificate
	warnings, err = a.checkSecrets(&secrets)
	return warnings, errors.Join(err, checkJobs(c, false))
}

// checkListen returns an error if the host name of the configured address cannot be resolved, or if
// other machines can reach the address while the store has no API key.
func checkListen(ctx context.Context, c *config.Config) error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil || c.InsecureNoAuth {
		return err
	}
	beyond := host == ""
	if host != "" {
		all, err := net.DefaultResolver.LookupIPAddr(ctx, host)
		if err != nil {
			return &belay.Error{
				Code: belay.CodeInvalid, Op: "listen on " + c.Listen, Message: "there is no such address", Err: err,
			}
		}
		for _, at := range all {
			beyond = beyond || !at.IP.IsLoopback()
		}
	}
	if !beyond || c.Shared() {
		return nil
	}
	r, err := (&app{data: c.DataDir()}).openReader(ctx)
	has := false
	if err == nil {
		defer r.Close()
		has, err = r.HasKeys(ctx)
	}
	if err != nil && belay.CodeOf(err) != belay.CodeNotFound {
		return err
	}
	if !has {
		return &belay.Error{Code: belay.CodeConflict, Op: "listen on " + c.Listen,
			Message: "other machines can reach this address, and there is no API key yet; make a key with: " +
				"belay keys create --name NAME --scope read,submit,worker --data " +
				screen.Words([]string{c.DataDir()}) +
				", or allow access without a key with --insecure-no-auth"}
	}
	return nil
}

// warn logs the warnings of checkSecrets.
func warn(log *slog.Logger, warnings []string) {
	for _, w := range warnings {
		log.Warn("other users can read a secret", "why", w)
	}
}
