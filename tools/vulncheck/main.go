// Command vulncheck runs govulncheck if the database of vulnerabilities can be reached. Otherwise
// it prints one line that nothing was checked, so that a machine without this network can still run
// every other check.
//
//	vulncheck GOVULNCHECK [PATTERN...]
//
// GOVULNCHECK is the path of govulncheck; the patterns name packages, as for go build. The
// environment variable GOVULNDB is the address of another copy of the database, https:// or
// file://. The exit status is 1 if the code can reach a vulnerability, or if govulncheck failed for
// a reason other than its database.
package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// standard is the database of the Go project.
const standard = "https://vuln.go.dev"

// patience is how long the database may take to answer. Without a network an error usually comes at
// once, but if the network drops packets, the check takes this long.
const patience = 5 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: vulncheck GOVULNCHECK [PATTERN...]")
		os.Exit(2)
	}
	db := os.Getenv("GOVULNDB")
	if db == "" {
		db = standard
	}
	if err := check(context.Background(), os.Stdout, patience, db, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func check(ctx context.Context, out io.Writer, patience time.Duration, db, tool string, patterns []string) error {
	db = strings.TrimSuffix(db, "/")
	if err := reach(ctx, patience, db); err != nil {
		return unchecked(out, db, err)
	}
	cmd := exec.CommandContext(ctx, tool, append([]string{"-db", db}, patterns...)...)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if err == nil {
		return nil
	}
	const found = 3
	if end := (*exec.ExitError)(nil); errors.As(err, &end) && end.ExitCode() == found {
		return errors.New("vulnerabilities were found: use the versions that fix them")
	}
	if gone := reach(ctx, patience, db); gone != nil {
		return unchecked(out, db, gone)
	}
	return fmt.Errorf("run %s: %w", tool, err)
}

func unchecked(out io.Writer, db string, why error) error {
	_, err := fmt.Fprintf(out, "vulnerabilities: NOT CHECKED, since the database %s cannot be reached (%v); "+
		"GOVULNDB names another copy of it\n", db, why)
	return err
}

// reach checks that the database of vulnerabilities can be reached: it reads the time of the
// database's last change. A page that a network shows in place of the database (captive portal)
// does not have this time.
func reach(ctx context.Context, patience time.Duration, db string) error {
	if strings.HasPrefix(db, "file:") {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, db+"/index/db.json.gz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errors.Unwrap(err) // without the address, which the message contains already
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the database answers %s", resp.Status)
	}
	var index struct{ Modified time.Time }
	body, err := gzip.NewReader(resp.Body)
	if err == nil {
		err = json.NewDecoder(body).Decode(&index)
	}
	if err != nil || index.Modified.IsZero() {
		return errors.New("the page there is no database of vulnerabilities")
	}
	return nil
}
