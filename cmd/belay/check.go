package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/secret"
	"github.com/belaydev/belay/internal/socket"
)

// checkJobs refuses what would keep this process from running jobs as the configuration
// wants it, and starts nothing. Elsewhere says that agents are left to workers.
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
	_, err := wallsOf(c, sight{})
	all = append(all, err, checkUsers(c.Agent), socket.Check(c.DataDir()))
	if dir := c.Agent.WorkspaceDir; dir != "" {
		all = append(all, socket.Check(dir))
	}
	return errors.Join(all...)
}

// checkUsers refuses users that jobs cannot have.
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

// checkSecrets refuses files with secrets that others can change or read, and gives what
// is to be known of those that are taken.
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
	look("agent.git_crypt_key", c.Agent.CryptKey)
	look("agent.git_credentials", c.Agent.GitCredentials)
	look("--key-file", a.keyFile)
	for _, name := range c.Agent.Env {
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
			"%s has mode %#o: others can change what is configured; close it with: chmod go-w %s", c.File,
			info.Mode().Perm(), c.File)})
	case info.Mode().Perm()&0o044 != 0 && (len(c.Agent.Logins) > 0 || config.HasPassword(c.Store)):
		warnings = append(warnings, fmt.Sprintf(
			"%s has mode %#o and holds credentials: others on this machine can read them", c.File, info.Mode().Perm()))
	}
	return warnings, errors.Join(all...)
}

// checkServe refuses what belay serve would refuse, and starts nothing. What is in a
// database is not looked at.
func (a *app) checkServe(ctx context.Context, c *config.Config) (warnings []string, err error) {
	warnings, err = a.checkSecrets(c)
	all := []error{err, checkJobs(c, !c.Agent.Local), checkListen(ctx, c)}
	if c.TLS() {
		if _, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey); err != nil {
			all = append(all, fmt.Errorf("read the certificate: %w", err))
		}
	}
	return warnings, errors.Join(all...)
}

// checkWorker refuses what belay worker would refuse, and starts nothing.
func (a *app) checkWorker(c *config.Config) (warnings []string, err error) {
	secrets := *c
	secrets.TLSKey = "" // which is the server's
	warnings, err = a.checkSecrets(&secrets)
	return warnings, errors.Join(err, checkJobs(c, false))
}

// checkListen refuses an address that there is not, or that is open to others while there
// is no key.
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
			Message: "others can reach this address, and there is no key yet; make one with: " +
				"belay keys create --name NAME --scope read,submit,worker --data " +
				screen.Words([]string{c.DataDir()}) +
				", or say --insecure-no-auth"}
	}
	return nil
}

// warn says what is to be known of a configuration.
func warn(log *slog.Logger, warnings []string) {
	for _, w := range warnings {
		log.Warn("a secret is open", "why", w)
	}
}
