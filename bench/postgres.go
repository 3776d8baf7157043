package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// postgres is the private server that all contenders share, with PostgreSQL's default settings.
type postgres struct {
	*pgtest.Server
	host *host
}

// host implements testing.TB, because package pgtest expects that a test starts its servers.
type host struct {
	testing.TB
	err     error
	cleanup []func()
}

func (h *host) Helper()          {}
func (h *host) Cleanup(f func()) { h.cleanup = append(h.cleanup, f) }
func (h *host) Error(v ...any)   { h.err = errors.Join(h.err, errors.New(fmt.Sprint(v...))) }
func (h *host) Skip(v ...any)    { h.Fatal(v...) }
func (h *host) Fatal(v ...any) {
	h.Error(v...)
	runtime.Goexit()
}

// startPostgres starts a server, or uses the server that BELAY_TEST_POSTGRES names.
func startPostgres() (*postgres, error) {
	p := &postgres{host: &host{}}
	started := make(chan struct{})
	go func() {
		defer close(started)
		p.Server = pgtest.Shared(p.host)
	}()
	<-started
	if p.host.err != nil {
		return nil, p.host.err
	}
	return p, nil
}

func (p *postgres) close() {
	for _, f := range p.host.cleanup {
		f()
	}
}

func (p *postgres) url(name string) string { return p.TCP(name) }

func (p *postgres) tools() string { return filepath.Dir(p.Binary("psql")) }

// pid returns the pid of the postmaster, or 0 if the server runs on another machine.
func (p *postgres) pid() int {
	text, err := p.Query("postgres", "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)")
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil ||
		strings.TrimSpace(string(name)) != "postgres" {
		return 0
	}
	return pid
}

// create makes an empty database. It runs a checkpoint first, so that the trial does not pay for
// the writes of other trials.
func (p *postgres) create(name string) (drop func(), err error) {
	for _, q := range []string{"CHECKPOINT", "CREATE DATABASE " + name + " TEMPLATE template0"} {
		if _, err := p.Query("postgres", q); err != nil {
			return nil, err
		}
	}
	return func() {
		if _, err := p.Query("postgres", "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			say("%v", err)
		}
	}, nil
}

// settings returns the server's settings that affect the results.
func (b *bed) settings() []string {
	if b.postgres == nil {
		return nil
	}
	const query = `
		SELECT string_agg(name || ' ' || current_setting(name), ', ' ORDER BY name)
		FROM pg_settings
		WHERE name IN ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'wal_sync_method')`
	text, err := b.postgres.Query("postgres", query)
	if err != nil {
		text = err.Error()
	}
	return []string{"PostgreSQL: " + strings.TrimSpace(text)}
}
