package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Rule: the OpenAPI document is enough to make a client in Go that compiles, submits, watches and chats.
func TestGeneratedGoClient(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		copyInto(t, filepath.Join("openapi", name), filepath.Join(dir, name))
	}
	copyInto(t, "openapi/testdata/session.go", filepath.Join(dir, "session.go"))
	document, err := filepath.Abs(contract)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "gen"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, clip(string(out)))
		}
		return string(out)
	}
	run("tool", "oapi-codegen", "-generate", "types,client", "-package", "gen", "-o", "gen/client.go", document)
	run("build", "-o", "session", ".")
	session(t, filepath.Join(dir, "session"))
}

// Rule: the types that openapi-typescript makes from the OpenAPI document are enough for a
// TypeScript program that submits, watches and chats.
func TestGeneratedTypeScriptClient(t *testing.T) {
	t.Parallel()
	dir, run := typescriptProject(t)
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o700); err != nil {
		t.Fatal(err)
	}
	copyInto(t, "openapi/testdata/session.ts", filepath.Join(dir, "src/session.ts"))
	args := generator(t)
	tool := func(name string) string { return filepath.Join(dir, "node_modules", ".bin", name) }
	run(tool(args[0]), append(args[1:], "--output", filepath.Join(dir, "src/generated.ts"))...)
	// the compiler need not check the declarations of other packages and of the DOM
	run(tool("tsc"), "--types", "node", "--skipLibCheck")
	session(t, "node", filepath.Join(dir, "dist/esm/session.js"))
}

// session runs a program against a server with agents.
func session(t *testing.T, program ...string) {
	t.Helper()
	a := newPlace(t).assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")})
	out, err := exec.CommandContext(t.Context(), program[0], append(program[1:], a.url)...).CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Errorf("%v\n%s", err, clip(string(out)))
	}
	a.stop()
}
