package config_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay/internal/config"
)

var update = flag.Bool("update", false, "write the table of keys into docs/configuration.md")

const (
	page  = "../../docs/configuration.md"
	begin = "<!-- keys: begin -->\n"
	end   = "<!-- keys: end -->"
)

// Rule: the table of keys in docs/configuration.md is up to date.
// To write it anew: go test ./internal/config -run Page -update
func TestThePageHasTheTable(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	if diff := cmp.Diff(config.Table(), table); diff != "" && !*update {
		t.Errorf("%s is out of date; go test ./internal/config -run Page -update writes it\n%s", page, diff)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+config.Table()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
