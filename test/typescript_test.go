package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	typescript = "../clients/typescript"
	contract   = "../internal/httpapi/testdata/openapi.json"
)

// Rule: the TypeScript client has the types of the server's contract and compiles. Against the real
// belay, the client submits, watches through a crash of the server, owns executions as an outside
// owner, and gets a refusal for a stale lock.
func TestTypeScriptClient(t *testing.T) {
	t.Parallel()
	dir, run := npmProject(t, typescript, "package.json", "package-lock.json", "tsconfig.json", "src", "test")
	tool := func(name string) string { return filepath.Join(dir, "node_modules", ".bin", name) }
	generated := filepath.Join(dir, "generated.ts")
	args := generator(t)
	run(tool(args[0]), append(args[1:], "--output", generated)...)
	if read(t, generated) != read(t, filepath.Join(typescript, "src/schema.ts")) {
		t.Error("clients/typescript/src/schema.ts differs from the current contract: run npm run generate there")
	}
	run(tool("tsc"))
	tests, err := filepath.Glob(filepath.Join(dir, "dist/test/*.test.js"))
	if err != nil || len(tests) == 0 {
		t.Fatalf("no compiled tests: %v", err)
	}
	report := run("node", append([]string{"--test", "--test-reporter=tap"}, tests...)...)
	if !strings.Contains(report, "# fail 0") || !strings.Contains(report, "# skipped 0") ||
		strings.Contains(report, "# pass 0") {
		t.Errorf("the client's tests:\n%s", clip(report))
	}
}

// npmProject copies parts of a project into a new directory, installs the packages of its lock
// file, and returns the directory and a function that runs programs in it.
func npmProject(t *testing.T, from string, parts ...string) (dir string, run func(name string, args ...string) string) {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is needed: %v (scripts/need.sh node:nodejs npm)", tool, err)
		}
	}
	dir = t.TempDir()
	for _, name := range parts {
		copyInto(t, filepath.Join(from, name), filepath.Join(dir, name))
	}
	run = func(name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "BELAY="+binary(t))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, clip(string(out)))
		}
		return string(out)
	}
	run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	return dir, run
}

// generator returns the command of package.json that makes the types, with the path of the contract
// and without an output file.
func generator(t *testing.T) []string {
	t.Helper()
	var p struct{ Scripts struct{ Generate string } }
	if err := json.Unmarshal([]byte(read(t, filepath.Join(typescript, "package.json"))), &p); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(contract)
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(p.Scripts.Generate)
	in, out := slices.Index(args, "../"+contract), slices.Index(args, "--output")
	if in < 0 || out < 0 {
		t.Fatalf("the script generate is %q; it does not make the types from %s", p.Scripts.Generate, contract)
	}
	args[in] = path
	return slices.Delete(args, out, out+2)
}

// copyInto copies a file, or a directory with all of its content.
func copyInto(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() {
		err = os.CopyFS(to, os.DirFS(from))
	} else {
		err = os.WriteFile(to, []byte(read(t, from)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
