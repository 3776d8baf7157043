package repo

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// layer lists the imports that a package may have, apart from its tests: down lists packages of this
// module, and modules lists modules from outside.
type layer struct {
	down    []string
	modules []string
}

// layers is the architecture of the module. The table begins with the lowest layer. A package may import only the
// packages that its row lists, and the rows of these packages stand earlier in the table.
//
// Guarantees depend on this order. Tests can cover the rules in internal/machine exhaustively,
// because these rules and the packages that they import cannot reach a clock or a disk. A store
// cannot decide a transition by itself, because it cannot import the engine. Workflows run on any
// Backend, because the SDK imports only the root package.
//
// A new package gets a row here. If it needs an import that its row does not allow, first check
// whether the code is in the right package; an import of a higher layer is never allowed.
var layers = map[string]layer{
	// The types, the error codes and the Backend interface, which all packages share. This package
	// imports the standard library only.
	".": {},

	// The rules that decide each change of state. They have no side effects: see purity_test.go.
	"internal/machine": {down: []string{"."}},

	// The times of schedules.
	"internal/trigger": {
		down: []string{".", "internal/machine"}, modules: []string{"github.com/netresearch/go-cron"},
	},

	// The checkers of the promises, for tests. They use only data that clients can read, and do not
	// import the rules.
	"internal/testkit/promise": {down: []string{"."}},

	// The store: its interface, its implementations, and the suite that checks that they behave
	// the same.
	"internal/store": {down: []string{".", "internal/machine"}},
	"internal/store/memory": {
		down: []string{".", "internal/machine", "internal/store"},
	},
	// The columns and rows that the two SQL stores share.
	"internal/store/table": {down: []string{".", "internal/machine", "internal/store"}},
	"internal/store/sqlite": {
		down:    []string{".", "internal/machine", "internal/store", "internal/store/table"},
		modules: []string{"modernc.org/sqlite", "github.com/pressly/goose/v3", "golang.org/x/sys"},
	},
	"internal/store/postgres": {
		down:    []string{".", "internal/machine", "internal/store", "internal/store/table"},
		modules: []string{"github.com/jackc/pgx/v5", "github.com/pressly/goose/v3"},
	},
	// A private PostgreSQL server for tests, started from the programs installed on this machine.
	"internal/testkit/pgtest": {modules: []string{"golang.org/x/sys"}},
	// A private RabbitMQ server for tests, likewise.
	"internal/testkit/mqtest": {},
	"internal/store/storetest": {
		down: []string{
			".", "internal/machine", "internal/testkit/promise", "internal/store", "internal/store/memory",
		},
		modules: []string{"github.com/google/go-cmp", "pgregory.net/rapid"},
	},

	// Facts about the processes of this machine: boot, namespaces, start times, deaths.
	"internal/host": {modules: []string{"golang.org/x/sys"}},

	// The registry of programs that share a resource on one machine: files and locks, without the engine.
	"registry": {down: []string{".", "internal/host"}, modules: []string{"golang.org/x/sys"}},

	// Makes text of other users safe for a terminal.
	"internal/screen": {modules: []string{"golang.org/x/sys"}},

	// Reads files with secrets, and refuses those that other users can read or change.
	"internal/secret": {down: []string{"."}, modules: []string{"golang.org/x/sys"}},

	// Asks workers for their health over HTTP.
	"internal/probe": {down: []string{"."}},

	// Finds the process at the other end of a connection within this machine.
	"internal/peer": {modules: []string{"golang.org/x/sys"}},

	// Reports to tests whether the race detector is on.
	"internal/testkit/raced": {},

	// Makes ids.
	"internal/uid": {modules: []string{"github.com/google/uuid"}},

	// Bulks: the check of a request, its selection and its dry run. Its package runner is the workflow that
	// carries them out.
	"internal/bulk": {down: []string{".", "internal/machine"}},

	// Differences between two texts.
	"internal/diff": {},

	// The pauses between repeated calls.
	"internal/retry": {down: []string{"."}},

	// Documents: parse, validate, draw, and evaluate expressions.
	"internal/definition": {down: []string{"."}, modules: []string{
		"go.yaml.in/yaml/v3", "github.com/santhosh-tekuri/jsonschema/v6", "github.com/expr-lang/expr",
	}},

	// Deliveries of webhooks: signatures, and the executions that they start.
	"internal/webhook": {down: []string{".", "internal/definition"}},

	// Submissions of documents, and the schedules and webhooks that documents define.
	"internal/catalog": {down: []string{
		".", "internal/definition", "internal/machine", "internal/trigger", "internal/webhook",
	}},

	// The engine: the committer, which carries out all writes, and the services around it.
	"internal/engine": {down: []string{
		".", "internal/bulk", "internal/catalog", "internal/machine", "internal/retry", "internal/store",
		"internal/trigger", "internal/uid", "internal/webhook",
	}},

	// Dispatch through RabbitMQ: connections, queues, messages. It knows ids and no rules.
	"internal/broker": {
		down: []string{".", "internal/retry"}, modules: []string{"github.com/rabbitmq/amqp091-go"},
	},

	// Dispatch through RabbitMQ: the engine's scheduler on the connections of internal/broker.
	"internal/dispatch": {down: []string{".", "internal/broker", "internal/engine", "internal/retry"}},

	// Executions for the messages of queues in RabbitMQ.
	"internal/queuetrigger": {
		down:    []string{".", "internal/broker", "internal/retry", "internal/webhook"},
		modules: []string{"golang.org/x/time"},
	},

	// The engine in the caller's own process, and the socket through which other programs use it.
	"embedded": {
		down: []string{
			".", "internal/machine", "internal/store", "internal/store/memory", "internal/store/sqlite",
			"internal/store/postgres", "internal/catalog", "internal/engine", "internal/host", "internal/uid",
			"internal/agent/process", "internal/httpapi", "internal/peer", "internal/socket",
		},
		modules: []string{"github.com/jackc/pgx/v5"},
	},

	// The SDK, which knows the Backend and nothing below it. internal/run executes one attempt;
	// workflow is the API of workflow functions, and worker starts attempts. internal/retry decides
	// when these packages and package client repeat a call.
	"internal/run": {down: []string{".", "internal/retry"}},
	"workflow":     {down: []string{".", "internal/run", "internal/uid"}},
	"worker": {
		down: []string{
			".", "internal/broker", "internal/retry", "internal/run", "internal/host", "internal/uid", "workflow",
		},
	},

	"internal/bulk/runner": {down: []string{".", "internal/bulk", "workflow"}},

	// The kit for testing workflows: a store in memory, and a worker that tests can crash.
	"belaytest": {down: []string{".", "workflow", "worker", "internal/store/memory", "internal/engine"}},

	// The suite of tests for the promises of workflow and worker on any Backend, in virtual time.
	"internal/testkit/sdktest": {down: []string{
		".", "workflow", "worker", "internal/testkit/promise", "internal/testkit/raced",
	}, modules: []string{"github.com/google/go-cmp"}},

	// The workflows that Belay itself contains: commands in isolated workspaces, run by an ordinary
	// worker.
	"internal/agent/process": {down: []string{"internal/host"}, modules: []string{"golang.org/x/sys"}},
	"internal/agent/workspace": {down: []string{".", "internal/host", "internal/secret", "internal/agent/process"},
		modules: []string{"golang.org/x/sys"}},
	// The hosts and addresses that a program may reach, and the connections to them. It imports the
	// standard library only.
	"internal/reach": {},
	// The secrets to which the inputs of tasks refer.
	"internal/secretref": {down: []string{".", "internal/reach", "internal/secret"}},
	// The proxy through which jobs reach the network.
	"internal/agent/egress": {down: []string{"internal/reach"}},
	// The socket through which a job asks people, and the tools with which an agent uses it.
	"internal/agent/desk": {modules: []string{"github.com/modelcontextprotocol/go-sdk", "golang.org/x/sys"}},
	"internal/agent": {
		down: []string{
			".", "workflow", "worker", "internal/run", "internal/secret", "internal/agent/desk",
			"internal/agent/process", "internal/agent/workspace",
		},
	},

	// The built-in workflow http: one HTTP request.
	"internal/httptask": {down: []string{".", "internal/reach", "internal/run", "internal/secret",
		"internal/secretref", "workflow"}},

	// The built-in workflow belay.publish: a message to an exchange of RabbitMQ.
	"internal/publishtask": {down: []string{".", "internal/broker", "internal/run", "workflow"}},

	// Runs documents: the workflow function of the built-in workflow document.
	"internal/definition/runner": {down: []string{
		".", "workflow", "internal/agent", "internal/catalog", "internal/definition", "internal/run",
	}},

	// Shows the tasks of executions of documents on any Backend, and repairs these executions.
	"internal/definition/tasks": {down: []string{".", "internal/definition", "internal/definition/runner"}},

	// The bodies of the HTTP API, shared by server and client.
	"internal/wire": {down: []string{"."}},

	// The HTTP API on any Backend.
	"internal/httpapi": {
		down: []string{
			".", "internal/catalog", "internal/diff", "internal/machine", "internal/webhook", "internal/wire",
		},
		modules: []string{"github.com/danielgtaylor/huma/v2", "golang.org/x/time"},
	},

	// The socket of a data directory. It decides which processes may use it.
	"internal/socket": {down: []string{".", "internal/peer", "internal/wire"}},

	// Agents over HTTP: prompts as jobs and as chats, on any Backend.
	"internal/agent/agentapi": {down: []string{".", "internal/wire", "internal/agent", "internal/httpapi"}},

	// The Backend over HTTP.
	"client": {down: []string{".", "internal/retry", "internal/uid", "internal/wire"}},

	// The web UI, on any Backend.
	"internal/webui": {down: []string{".", "internal/diff", "internal/machine"}},

	// Traces of executions, in the OpenTelemetry protocol.
	"internal/trace": {down: []string{"."}, modules: []string{"go.opentelemetry.io/otel"}},

	// Metrics of an engine, in Prometheus's format.
	"internal/telemetry": {down: []string{".", "internal/broker", "internal/engine", "internal/trace"},
		modules: []string{"github.com/prometheus/client_golang"}},

	// The configuration of a server: file, environment and flags.
	"internal/config": {down: []string{".", "internal/secret"}, modules: []string{"go.yaml.in/yaml/v3"}},

	// The server: listening, limits, certificates, graceful shutdown.
	"internal/server": {
		down: []string{
			".", "embedded", "internal/agent/agentapi", "internal/broker", "internal/bulk/runner", "internal/catalog",
			"internal/config", "internal/definition", "internal/definition/runner", "internal/definition/tasks",
			"internal/dispatch", "internal/engine", "internal/httpapi", "internal/peer", "internal/probe",
			"internal/queuetrigger", "internal/secret", "internal/telemetry", "internal/trace", "internal/uid",
			"internal/webui", "internal/wire", "worker",
		},
	},

	// The engine of a data directory: hosts it, or connects to the process that hosts it.
	"internal/datadir": {
		down: []string{".", "client", "embedded", "internal/httpapi", "internal/host", "internal/peer",
			"internal/socket", "internal/wire"},
	},

	// The demo, in which a worker is killed and another worker continues its work.
	"internal/demo": {
		down: []string{
			".", "embedded", "internal/agent", "internal/agent/process", "internal/agent/workspace", "internal/datadir",
			"internal/screen", "worker",
		},
	},

	// The binary. It uses the engine through a Backend and cannot import a store, so that every
	// write uses the engine's committer.
	"cmd/belay": {
		down: []string{
			".", "embedded", "client", "workflow", "worker", "internal/host", "internal/run", "internal/agent",
			"internal/agent/desk",
			"internal/agent/process", "internal/agent/workspace", "internal/agent/egress", "internal/agent/agentapi",
			"internal/bulk/runner", "internal/catalog", "internal/config", "internal/definition",
			"internal/definition/runner", "internal/definition/tasks", "internal/diff", "internal/httptask",
			"internal/broker", "internal/peer", "internal/publishtask", "internal/reach",
			"internal/retry", "internal/screen", "internal/secret", "internal/secretref", "internal/server",
			"internal/socket", "internal/datadir", "internal/demo", "internal/trigger", "internal/webhook",
			"internal/wire", "registry",
		},
		modules: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys"},
	},

	// The example programs, which import the same packages as programs outside of the module.
	"examples/approval":       {down: []string{".", "embedded", "worker", "workflow"}},
	"examples/fan-out":        {down: []string{".", "embedded", "worker", "workflow"}},
	"examples/shared-gpu":     {down: []string{".", "client", "worker", "workflow"}},
	"examples/saga":           {down: []string{".", "embedded", "worker", "workflow"}},
	"examples/agent-pipeline": {down: []string{".", "embedded", "worker", "workflow"}},
	"examples/web-orders": {
		down: []string{".", "embedded", "worker", "workflow"}, modules: []string{"github.com/jackc/pgx/v5"},
	},

	// Tests only.
	"internal/testkit/faultproxy":  {},
	"internal/testkit/shown":       {},
	"internal/testkit/gitwatch":    {},
	"internal/testkit/exampletest": {down: []string{".", "client", "embedded", "internal/httpapi"}},
	"internal/simulation":          {},
	"internal/repo":                {},
	"test":                         {},
	"test/chaos":                   {},
	"test/attacker":                {modules: []string{"golang.org/x/sys"}},
}

// Rule: imports agree with the table of layers. Tests may import more: an Example of the root package
// may open an engine.
func TestLayersPointDown(t *testing.T) {
	_, sources := goFiles(t)
	for _, f := range sources {
		if beside(t, f.pkg) {
			continue
		}
		row, known := layers[f.pkg]
		if !known {
			t.Errorf("%s: package %s has no row in the table of layers: add one in internal/repo/layers_test.go "+
				"that says what it may import", f.path, f.pkg)
			continue
		}
		if f.test {
			continue
		}
		for _, spec := range f.ast.Imports {
			checkArrow(t, f, row, strings.Trim(spec.Path.Value, `"`))
		}
	}
}

func checkArrow(t *testing.T, f sourceFile, row layer, imported string) {
	t.Helper()
	if imported == "C" {
		t.Errorf("%s uses cgo: the product is built without it, so that one static binary runs everywhere", f.path)
		return
	}
	if imported == module || strings.HasPrefix(imported, module+"/") {
		target := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
		if target == "" {
			target = "."
		}
		if !slices.Contains(row.down, target) {
			t.Errorf("%s: package %s may not import %s: arrows point down only (internal/repo/layers_test.go says "+
				"what each package may know, and why)", f.path, f.pkg, target)
		}
		return
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return // the import is a package of the standard library
	}
	for _, allowed := range row.modules {
		if imported == allowed || strings.HasPrefix(imported, allowed+"/") {
			return
		}
	}
	t.Errorf("%s: package %s may not import %s: a dependency is kept in the package that wraps it "+
		"(internal/repo/layers_test.go lists which)", f.path, f.pkg, imported)
}

// Rule: the table of layers has no cycle and no row without a package.
func TestTheTableOfLayersHasNoCycle(t *testing.T) {
	depth := map[string]int{}
	const open = -1
	var visit func(pkg string, trail []string)
	visit = func(pkg string, trail []string) {
		switch {
		case depth[pkg] == open:
			t.Errorf("cycle in the table of layers: %s", strings.Join(append(trail, pkg), " -> "))
			return
		case depth[pkg] > 0:
			return
		}
		row, known := layers[pkg]
		if !known {
			t.Errorf("the table of layers allows an import of %s, which has no row", pkg)
		}
		depth[pkg] = open
		for _, below := range row.down {
			visit(below, append(trail, pkg))
		}
		depth[pkg] = 1
	}
	_, sources := goFiles(t)
	for _, pkg := range slices.Sorted(maps.Keys(layers)) {
		visit(pkg, nil)
		if !slices.ContainsFunc(sources, func(f sourceFile) bool { return f.pkg == pkg }) {
			t.Errorf("the table of layers has a row for %s, which does not exist: take the row out", pkg)
		}
	}
}
