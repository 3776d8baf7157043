package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// database is an HTTP handler that answers like the real database of vulnerabilities.
func database(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/index/db.json.gz" {
		http.NotFound(w, r)
		return
	}
	z := gzip.NewWriter(w)
	_, _ = io.WriteString(z, `{"modified":"2026-11-20T00:00:00Z"}`)
	_ = z.Close()
}

// tool writes a script that replaces govulncheck: the script prints its arguments, runs the given
// commands and exits with the given code.
func tool(t *testing.T, code int, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "govulncheck")
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\necho \"ran $*\"\n%s\nexit %d\n", script, code),
		0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// Rule: the check fails if there is a vulnerability. If the database cannot be reached, one line
// says so and the check passes. Every other failure fails the check.
func TestCheck(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(database))
	defer up.Close()
	down := httptest.NewServer(nil)
	down.Close()
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<h1>Log in</h1>")
	}))
	defer portal.Close()
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	defer hanging.Close()

	for name, tt := range map[string]struct {
		db, tool string
		said     string // the whole output; if "", the output is not checked
		fails    string
	}{
		"nothing found": {up.URL + "/", tool(t, 0, ""), "ran -db " + up.URL + " ./...\n", ""},
		"found":         {up.URL, tool(t, 3, ""), "", "vulnerabilities were found"},
		"failed":        {up.URL, tool(t, 1, ""), "", "exit status 1"},
		"no tool":       {up.URL, "/nowhere/govulncheck", "", "no such file"},
		"a file":        {"file:///nowhere", tool(t, 1, ""), "", "exit status 1"},
		"closed network": {down.URL, tool(t, 3, ""), "vulnerabilities: NOT CHECKED, since the database " + down.URL +
			" cannot be reached (dial tcp " + down.Listener.Addr().String() +
			": connect: connection refused); GOVULNDB names another copy of it\n", ""},
		"another page":  {portal.URL, tool(t, 3, ""), "(the page there is no database of vulnerabilities)", ""},
		"an error page": {broken.URL, tool(t, 3, ""), "(the database answers 404 Not Found)", ""},
		"no answer":     {hanging.URL, tool(t, 3, ""), "(no answer within 200ms)", ""},
		"no address":    {"nonsense", tool(t, 3, ""), "NOT CHECKED", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			patience := time.Minute // a busy machine may answer late
			if tt.db == hanging.URL {
				patience = 200 * time.Millisecond
			}
			err := check(t.Context(), &out, patience, tt.db, tt.tool, []string{"./..."})
			if tt.fails == "" && err != nil || tt.fails != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("error %v, want %q", err, tt.fails)
			}
			if tt.said != "" && (!strings.Contains(out.String(), tt.said) || strings.Count(out.String(), "\n") != 1) {
				t.Errorf("the output is %q, want %q", out.String(), tt.said)
			}
		})
	}
}

// Rule: the check also passes if the database becomes unreachable while govulncheck runs.
func TestTheDatabaseGoesAway(t *testing.T) {
	gone := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gone {
			http.Error(w, "gone", http.StatusBadGateway)
			return
		}
		gone = true
		database(w, r)
	}))
	defer server.Close()
	var out strings.Builder
	if err := check(t.Context(), &out, patience, server.URL, tool(t, 1, ""), nil); err != nil ||
		!strings.Contains(out.String(), "NOT CHECKED") {
		t.Errorf("%v, %q", err, out.String())
	}
}
