package repo

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// direct lists the direct dependencies of the product, with the reason for each. For tasks outside
// Belay's purpose a well-maintained library is better than code in this repository, unless the
// standard library or a few dozen lines are enough.
var direct = map[string]string{
	"modernc.org/sqlite":                                              "SQLite without cgo",
	"github.com/jackc/pgx/v5":                                         "PostgreSQL",
	"github.com/rabbitmq/amqp091-go":                                  "RabbitMQ (AMQP 0-9-1); only its connection, without its recovery",
	"github.com/pressly/goose/v3":                                     "migrations, embedded",
	"github.com/spf13/cobra":                                          "command line: help and completion",
	"github.com/spf13/pflag":                                          "the flags of a cobra command, for its help and for suggestions",
	"github.com/google/uuid":                                          "UUIDv7",
	"github.com/danielgtaylor/huma/v2":                                "HTTP: validation, problems and OpenAPI 3.1 from Go types",
	"github.com/prometheus/client_golang":                             "metrics",
	"go.yaml.in/yaml/v3":                                              "belay.yaml and documents, strict, with line numbers",
	"github.com/expr-lang/expr":                                       "the expressions of documents, typed and with a budget",
	"github.com/netresearch/go-cron":                                  "the cron expressions of schedules; only its parser and its calendar in UTC",
	"github.com/modelcontextprotocol/go-sdk":                          "the tools of agents: the Model Context Protocol over stdio",
	"golang.org/x/time":                                               "rate limits",
	"golang.org/x/sys":                                                "process supervision, clocks that count suspend",
	"github.com/google/go-cmp":                                        "tests: differences a person can read",
	"go.opentelemetry.io/otel":                                        "traces",
	"go.opentelemetry.io/otel/sdk":                                    "traces: resources, samplers and batches",
	"go.opentelemetry.io/otel/trace":                                  "traces: the types of spans",
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": "traces: OTLP over HTTP, which needs no gRPC",
	"go.opentelemetry.io/proto/otlp":                                  "tests: a collector that decodes OTLP",
	"google.golang.org/protobuf":                                      "tests: likewise",
	"github.com/chromedp/chromedp":                                    "tests: pages in a real browser",
	"github.com/chromedp/cdproto":                                     "tests: the events of that browser",
	"github.com/santhosh-tekuri/jsonschema/v6": "the inputs of documents; tests: responses held against the OpenAPI " +
		"document",
	"pgregory.net/rapid": "tests: state machines sent to two stores",
}

// refused lists versions that must not be used, with the reason.
var refused = map[string]string{
	"modernc.org/sqlite v1.61.0": "retracted in v1.61.1: use that version",
}

// goMod is the part of the output of go mod edit -json that the tests of this file use.
type goMod struct {
	Require []struct {
		Path     string
		Version  string
		Indirect bool
	}
	Replace []struct {
		Old, New struct{ Path string }
	}
}

func (m goMod) version(path string) string {
	for _, r := range m.Require {
		if r.Path == path {
			return r.Version
		}
	}
	return ""
}

func goModAt(t *testing.T, path string) goMod {
	t.Helper()
	var m goMod
	out := goCommand(t, "mod", "edit", "-json", path)
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return m
}

func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// Rule: the product has few direct dependencies on purpose, and each has a reason in the table.
func TestDependenciesAreChosen(t *testing.T) {
	m := goModAt(t, "go.mod")
	for _, r := range m.Require {
		if !r.Indirect && direct[r.Path] == "" {
			t.Errorf("go.mod requires %s directly: enter it in internal/repo/pins_test.go with the reason, or do "+
				"without", r.Path)
		}
		if strings.Contains(r.Path, "golangci") {
			t.Errorf("go.mod requires %s: build tools live in tools/go.mod", r.Path)
		}
		if why := refused[r.Path+" "+r.Version]; why != "" {
			t.Errorf("go.mod requires %s %s, which is refused: %s", r.Path, r.Version, why)
		}
	}
	for path := range direct {
		if m.version(path) == "" {
			t.Errorf("internal/repo/pins_test.go allows %s, which go.mod does not require: take the entry out", path)
		}
	}
	for _, r := range m.Replace {
		if strings.HasPrefix(r.New.Path, ".") || strings.HasPrefix(r.New.Path, "/") {
			t.Errorf("go.mod replaces %s by the folder %s: users of the module would not get it", r.Old.Path,
				r.New.Path)
		}
	}
}

// Rule: modernc.org/libc has the version for which modernc.org/sqlite was translated from C. A
// combination with another version of libc is untested, and such a combination has corrupted memory
// before.
func TestLibcMatchesSQLite(t *testing.T) {
	const sqlite, libc = "modernc.org/sqlite", "modernc.org/libc"
	m := goModAt(t, "go.mod")
	if m.version(sqlite) == "" {
		t.Fatalf("go.mod does not require %s", sqlite)
	}
	want := goModAt(t, goCommand(t, "list", "-m", "-f", "{{.GoMod}}", sqlite)).version(libc)
	if got := m.version(libc); got != want {
		t.Errorf("go.mod has %s %s, and %s %s is made for %s: set exactly that version", libc, got, sqlite,
			m.version(sqlite), want)
	}
}
