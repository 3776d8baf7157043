package repo

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// layer says what a package may import, its tests aside: packages of this module, and modules from outside.
type layer struct {
	down    []string
	modules []string
}

// layers is the architecture of the module. Arrows point down: a package imports what stands above
// it in this table, as far
// as its row allows, and never what stands below.
//
// The order carries the guarantees. The rules in internal/machine can be tested exhaustively
// because nothing below them can
// reach a clock or a disk; a store cannot decide a transition by itself because it does not see the
// engine; workflows run on
// any backend because the SDK knows only the root package.
//
// A new package gets a row here. If it needs an arrow that its row does not allow, first ask
// whether the code stands in the
// right package; an arrow upwards is never the answer.
var layers = map[string]layer{
	// The nouns, the error codes and the Backend interface: what everybody shares, and the standard library only.
	".": {},

	// The rules. Pure: see purity_test.go.
	"internal/machine": {down: []string{"."}},

	// The checkers of the promises, for tests: what everybody can see, and not the rules.
	"internal/promise": {down: []string{"."}},

	// Where state lives: the interface, its implementations and the suite that holds them equal.
	"internal/store": {down: []string{".", "internal/machine"}},
	"internal/store/memory": {
		down: []string{".", "internal/machine", "internal/store"},
	},
	// What the tables of the two SQL stores hold.
	"internal/store/table": {down: []string{".", "internal/machine", "internal/store"}},
	"internal/store/sqlite": {
		down:    []string{".", "internal/machine", "internal/store", "internal/store/table"},
		modules: []string{"modernc.org/sqlite", "github.com/pressly/goose/v3", "golang.org/x/sys"},
	},
	"internal/store/postgres": {
		down:    []string{".", "internal/machine", "internal/store", "internal/store/table"},
		modules: []string{"github.com/jackc/pgx/v5", "github.com/pressly/goose/v3"},
	},
	// A private PostgreSQL for tests, from the binaries of this machine.
	"internal/pgtest": {modules: []string{"golang.org/x/sys"}},
	"internal/store/storetest": {
		down:    []string{".", "internal/machine", "internal/promise", "internal/store", "internal/store/memory"},
		modules: []string{"github.com/google/go-cmp", "pgregory.net/rapid"},
	},

	// What this machine knows about its processes: boot, namespaces, start times, deaths.
	"internal/host": {modules: []string{"golang.org/x/sys"}},

	// Text of others, fit for a terminal.
	"internal/screen": {modules: []string{"golang.org/x/sys"}},

	// Files that hold secrets, and who else can read them.
	"internal/secret": {down: []string{"."}, modules: []string{"golang.org/x/sys"}},

	// Who is at the other end of a connection within this machine.
	"internal/peer": {modules: []string{"golang.org/x/sys"}},

	// Whether the race detector watches, for tests.
	"internal/raced": {},

	// Ids that are made here.
	"internal/uid": {modules: []string{"github.com/google/uuid"}},

	// The one door for writes, and the services around it.
	"internal/engine": {down: []string{".", "internal/machine", "internal/store", "internal/uid"}},

	// The engine in the caller's own process, and the socket on which other programs reach it.
	"embedded": {
		down: []string{
			".", "internal/machine", "internal/store", "internal/store/memory", "internal/store/sqlite",
			"internal/store/postgres", "internal/engine", "internal/host", "internal/uid",
			"internal/agent/process", "internal/httpapi", "internal/peer", "internal/socket",
		},
		modules: []string{"github.com/jackc/pgx/v5"},
	},

	// The SDK: it knows the Backend and nothing below it. internal/run is one attempt; workflow
	// shows it to authors, worker
	// drives it.
	"internal/run": {down: []string{"."}},
	"workflow":     {down: []string{".", "internal/run", "internal/uid"}},
	"worker":       {down: []string{".", "internal/run", "internal/host", "internal/uid", "workflow"}},

	// The kit for testing workflows: a memory store, a worker that can be made to die.
	"belaytest": {down: []string{".", "workflow", "worker", "internal/store/memory", "internal/engine"}},

	// What workflow and worker promise on any Backend, as one suite, on virtual time.
	"internal/sdktest": {down: []string{
		".", "workflow", "worker", "internal/raced",
	}, modules: []string{"github.com/google/go-cmp"}},

	// Built-in work: commands in isolated workspaces, as ordinary workflows on an ordinary worker.
	"internal/agent/process": {down: []string{"internal/host"}, modules: []string{"golang.org/x/sys"}},
	"internal/agent/workspace": {down: []string{".", "internal/host", "internal/secret", "internal/agent/process"},
		modules: []string{"golang.org/x/sys"}},
	// The proxy that is a job's only way out: the standard library, and nothing of Belay.
	"internal/agent/egress": {},
	"internal/agent": {
		down: []string{
			".", "workflow", "worker", "internal/secret", "internal/agent/process", "internal/agent/workspace",
		},
	},

	// The bodies of the HTTP API, shared by those who write them and those who read them.
	"internal/wire": {down: []string{"."}},

	// The HTTP API on any Backend.
	"internal/httpapi": {
		down:    []string{".", "internal/wire"},
		modules: []string{"github.com/danielgtaylor/huma/v2", "golang.org/x/time"},
	},

	// The socket of a data directory, and whom it serves.
	"internal/socket": {down: []string{".", "internal/peer", "internal/wire"}},

	// Agents over HTTP: prompts as jobs and as chats, on any Backend.
	"internal/agentapi": {down: []string{".", "internal/wire", "internal/agent", "internal/httpapi"}},

	// The Backend over HTTP.
	"client": {down: []string{".", "internal/uid", "internal/wire"}},

	// The pages, on any Backend.
	"internal/webui": {down: []string{"."}},

	// Metrics of an engine, in Prometheus's format.
	"internal/telemetry": {down: []string{".", "internal/engine"},
		modules: []string{"github.com/prometheus/client_golang"}},

	// What a server reads from its file, its environment and its flags.
	"internal/config": {down: []string{"."}, modules: []string{"go.yaml.in/yaml/v3"}},

	// Listening: limits, certificates, the stop in two stages.
	"internal/server": {
		down: []string{
			".", "embedded", "internal/agentapi", "internal/config", "internal/engine", "internal/httpapi",
			"internal/peer", "internal/secret",
			"internal/telemetry", "internal/webui",
		},
	},

	// One data directory, one engine: host it or dial who does.
	"internal/datadir": {
		down: []string{".", "client", "embedded", "internal/httpapi", "internal/host", "internal/peer",
			"internal/socket", "internal/wire"},
	},

	// The demo: workers that die while a person looks on.
	"internal/demo": {
		down: []string{
			".", "embedded", "internal/agent", "internal/agent/process", "internal/agent/workspace", "internal/datadir",
			"internal/screen", "worker",
		},
	},

	// The binary. It sees the engine through a Backend and no store, so that it cannot write past the one door.
	"cmd/belay": {
		down: []string{
			".", "embedded", "client", "workflow", "worker", "internal/host", "internal/run", "internal/agent",
			"internal/agent/process",
			"internal/agent/workspace", "internal/agent/egress", "internal/agentapi", "internal/config",
			"internal/peer", "internal/screen",
			"internal/secret", "internal/server", "internal/socket",
			"internal/datadir", "internal/demo",
		},
		modules: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys"},
	},

	// Programs to learn from: they import what programs outside of the module do.
	"examples/approval":       {down: []string{".", "embedded", "worker", "workflow"}},
	"examples/fan-out":        {down: []string{".", "embedded", "worker", "workflow"}},
	"examples/saga":           {down: []string{".", "embedded", "worker", "workflow"}},
	"examples/agent-pipeline": {down: []string{".", "embedded", "worker", "workflow"}},
	"examples/web-orders": {
		down: []string{".", "embedded", "worker", "workflow"}, modules: []string{"github.com/jackc/pgx/v5"},
	},

	// Tests only.
	"internal/faultproxy":  {},
	"internal/gitwatch":    {},
	"internal/exampletest": {down: []string{".", "client", "embedded", "internal/httpapi"}},
	"internal/simulation":  {},
	"internal/repo":        {},
	"test":                 {},
	"test/chaos":           {},
	"test/attacker":        {modules: []string{"golang.org/x/sys"}},
}

// Layers only point down. Tests are not held to the table: an Example of the root package may open an engine.
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
		return // the standard library
	}
	for _, allowed := range row.modules {
		if imported == allowed || strings.HasPrefix(imported, allowed+"/") {
			return
		}
	}
	t.Errorf("%s: package %s may not import %s: a dependency is kept in the package that wraps it "+
		"(internal/repo/layers_test.go lists which)", f.path, f.pkg, imported)
}

// The table itself has no cycle, so that "down" means something, and no row that nothing needs.
func TestLayersAreATable(t *testing.T) {
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
			t.Errorf("the table of layers has a row for %s, which is not there: take the row out", pkg)
		}
	}
}
