package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// ready waits until the server answers. The server accepts connections as soon as its socket
// exists, but it refuses sessions while it recovers.
func (s *Server) ready() error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := s.answers()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer: %w\n%s", err, s.Log())
		}
		<-time.After(10 * time.Millisecond) // polls, since no event announces a new socket
	}
}

func (s *Server) answers() error {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix",
		filepath.Join(s.dir, fmt.Sprintf(".s.PGSQL.%d", s.port)))
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	_, err = s.Query("postgres", "SELECT 1")
	return err
}

// Query runs SQL on a database and returns the output of psql without headers and alignment.
func (s *Server) Query(database, sql string) (string, error) {
	cmd := exec.CommandContext(context.Background(), s.Binary("psql"), "--no-psqlrc", "--quiet", "--tuples-only",
		"--no-align",
		"--set=ON_ERROR_STOP=1", "--command="+sql, "--dbname="+s.URL(database))
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("psql: %w: %s", err, text.String())
	}
	return strings.TrimSpace(text.String()), nil
}

// Database makes an empty database and returns its URL. The database is dropped when the test ends,
// even if a client is still connected.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.database(t, "template0")
}

// From makes a database that is a copy of a template, and returns its URL. The first test that
// requests the template makes it with prepare, which must close its own connections to the
// template.
func (s *Server) From(t testing.TB, template string, prepare func(url string) error) string {
	t.Helper()
	if s.outside != nil { // on a server that does not belong to the tests, templates would never be deleted
		url := s.database(t, "template0")
		if err := prepare(url); err != nil {
			t.Fatalf("make template %s: %v", template, err)
		}
		return url
	}
	made, _ := s.templates.LoadOrStore(template, &sync.Once{})
	name := s.name("template_" + template)
	if once, ok := made.(*sync.Once); ok {
		once.Do(func() {
			_, drop := s.Query("postgres", "DROP DATABASE IF EXISTS "+name)
			_, create := s.Query("postgres", "CREATE DATABASE "+name+" TEMPLATE template0")
			err := errors.Join(drop, create)
			if err == nil {
				err = prepare(s.URL(name))
			}
			if err != nil {
				t.Errorf("make template %s: %v", template, err)
			}
		})
	}
	return s.database(t, name)
}

func (s *Server) database(t testing.TB, template string) string {
	t.Helper()
	name := s.name(fmt.Sprintf("test_%d", s.databases.Add(1)))
	if _, err := s.Query("postgres", "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.outside == nil {
			return // the database is deleted together with its server
		}
		if _, err := s.Query("postgres", "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return s.URL(name)
}

// name returns the name of a database. On a server that several test binaries share, each binary
// gets another name.
func (s *Server) name(n string) string {
	if s.outside == nil {
		return n
	}
	return fmt.Sprintf("%s_%d", n, os.Getpid())
}

// Terminate ends all other PostgreSQL backends (server processes of connections) that are connected
// to the database of a URL, and returns their number.
func (s *Server) Terminate(t testing.TB, url string) int {
	t.Helper()
	out, err := s.Query(databaseOf(url),
		"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid "+
			"<> pg_backend_pid()")
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscan(out, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// databaseOf returns the name of the database in a URL.
func databaseOf(url string) string {
	path, _, _ := strings.Cut(url, "?")
	return path[strings.LastIndexByte(path, '/')+1:]
}
