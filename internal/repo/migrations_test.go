package repo

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "enter the migrations that have no hash yet in testdata/migrations.txt: "+
	"part of making a release")

// released is the file with a line "hash  path" for every released migration.
const released = "testdata/migrations.txt"

var (
	migrationPath = regexp.MustCompile(`^internal/store/[^/]+/migrations/[^/]+\.sql$`)
	migrationName = regexp.MustCompile(`^(\d{5})_[a-z0-9_]+\.sql$`)
)

// Rule: a released migration never changes, because existing databases have run it in its released
// form and would differ from new databases. A later migration corrects its errors.
//
// A migration is released when its hash is in testdata/migrations.txt. To make a release, run
//
//	go test ./internal/repo -run Migrations -update
//
// which adds the new migrations and never changes an existing line.
func TestReleasedMigrationsNeverChange(t *testing.T) {
	known := readHashes(t)
	present := map[string]string{}
	for _, name := range repoFiles(t) {
		if migrationPath.MatchString(name) {
			sum := sha256.Sum256([]byte(read(t, name)))
			present[name] = hex.EncodeToString(sum[:])
		}
	}
	for name, want := range known {
		switch got, ok := present[name]; {
		case !ok:
			t.Errorf("%s was released and is gone: put it back", name)
		case got != want:
			t.Errorf("%s was released and has changed: put it back as it was and write a new migration", name)
		}
	}
	for name, sum := range present {
		if _, ok := known[name]; ok {
			continue
		}
		if *update {
			known[name] = sum
		} else {
			t.Logf("%s is not released yet and may still change", name)
		}
	}
	if *update && !t.Failed() {
		writeHashes(t, known)
	}
}

// Rule: the migrations of a store are numbered without gaps and duplicates, so that this test fails
// before a release if two branches add the same number.
func TestMigrationsAreNumbered(t *testing.T) {
	last := map[string]int{}
	for _, name := range repoFiles(t) { // in order of their names
		if !migrationPath.MatchString(name) {
			continue
		}
		m := migrationName.FindStringSubmatch(path.Base(name))
		if m == nil {
			t.Errorf("%s: migrations are named like 00002_add_labels.sql", name)
			continue
		}
		folder := path.Dir(name)
		last[folder]++
		if want := fmt.Sprintf("%05d", last[folder]); m[1] != want {
			t.Errorf("%s: number %s, want %s", name, m[1], want)
		}
	}
}

func readHashes(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(released)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		sum, name, ok := strings.Cut(line, "  ")
		if !ok {
			t.Fatalf("%s: cannot read %q", released, line)
		}
		known[name] = sum
	}
	return known
}

func writeHashes(t *testing.T, known map[string]string) {
	t.Helper()
	lines := []string{
		"# Migrations contained in a release, which never change. Written by go test ./internal/repo -run " +
			"Migrations -update.",
	}
	var names []string
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		lines = append(lines, known[name]+"  "+name)
	}
	if err := os.WriteFile(released, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
