package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	typescript = "../clients/typescript"
	contract   = "../internal/httpapi/testdata/openapi.json"
)

// Rule: the TypeScript client has the types of the server's OpenAPI document. The package that npm
// would publish has all files that it needs and no others, and its types are right for ES modules
// and for CommonJS. The tests of the client pass in Node as ES modules and (with -long all of them) as CommonJS, and in
// Chromium: the client submits, watches through a crash of the real belay, runs workers that the
// tests kill, locks executions as an owner that is no worker, and gets a refusal for a stale lock.
//
// It does not run in parallel with other tests, because its tests in Chromium failed several times when
// the machine was busy.
func TestTypeScriptClient(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatalf("chromium is needed: %v (scripts/need.sh chromium)", err)
	}
	dir, run := typescriptProject(t, "LICENSE", "README.md", "scripts", "src", "test")
	npm := func(script string) { run("npm", "run", "--silent", script) }
	npm("build")
	npm("build:test")
	tarball := pack(t, dir, run)
	consumer := filepath.Join(dir, "consumer")
	consume(t, dir, consumer, tarball)
	suite := func(name string, args ...string) {
		t.Run(name, func(t *testing.T) {
			report := runIn(t, consumer, args...)
			for _, want := range []string{"# fail 0", "# pass"} {
				if !strings.Contains(report, want) {
					t.Errorf("the client's tests: no %q in\n%s", want, clip(report))
				}
			}
			skipped := strings.Contains(report, "# skipped") && !strings.Contains(report, "# skipped 0")
			if strings.Contains(report, "# pass 0") || skipped {
				t.Errorf("the client's tests were not run:\n%s", clip(report))
			}
		})
	}
	for _, kind := range []string{"esm", "cjs"} {
		tests, err := filepath.Glob(filepath.Join(consumer, kind, "*.test.js"))
		if err != nil || len(tests) == 0 {
			t.Fatalf("no compiled tests: %v", err)
		}
		if kind == "cjs" {
			tests = slices.DeleteFunc(tests, func(name string) bool { return !inCommonJS(filepath.Base(name)) })
		}
		suite(kind, append([]string{"node", "--test", "--test-concurrency=8", "--test-reporter=tap"}, tests...)...)
	}
	suite("chromium", "node", filepath.Join(consumer, "esm/browser/run.js"))
	t.Run("contract", func(t *testing.T) {
		t.Parallel()
		args := generator(t)
		generated := filepath.Join(t.TempDir(), "generated.ts")
		args[0] = filepath.Join(dir, "node_modules/.bin", args[0])
		runIn(t, dir, append(args, "--output", generated)...)
		if read(t, generated) != read(t, filepath.Join(typescript, "src/schema.ts")) {
			t.Error("clients/typescript/src/schema.ts differs from the current contract: run npm run generate there")
		}
	})
	t.Run("published", func(t *testing.T) {
		t.Parallel()
		runIn(t, dir, "node", "scripts/published.mjs", tarball)
	})
}

// inCommonJS reports whether the suite runs a file of tests as CommonJS. Without -long it runs those of both entry
// points, the client and the worker, because all else is the same code. The programs of the README are ES modules.
func inCommonJS(name string) bool {
	if *long {
		return name != "readme.test.js"
	}
	return name == "belay.test.js" || name == "worker.test.js"
}

// published are the files of the package that npm publishes.
var published = regexp.MustCompile(`^(LICENSE|README\.md|package\.json|dist/cjs/package\.json|dist/(esm|cjs)/(worker/)?[a-z]+(\.d\.ts|\.js))$`)

// pack makes the package that npm would publish, and checks its files.
func pack(t *testing.T, dir string, run func(name string, args ...string) string) (tarball string) {
	t.Helper()
	out := run("npm", "pack", "--ignore-scripts", "--json", "--silent")
	var packs []struct {
		Filename string
		Files    []struct{ Path string }
	}
	err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "[")):]), &packs)
	if err != nil || len(packs) != 1 {
		t.Fatalf("npm pack: %v\n%s", err, clip(out))
	}
	var paths []string
	for _, f := range packs[0].Files {
		paths = append(paths, f.Path)
		if !published.MatchString(f.Path) {
			t.Errorf("the package contains %s", f.Path)
		}
	}
	for _, want := range []string{"LICENSE", "README.md", "package.json", "dist/esm/index.js", "dist/esm/index.d.ts",
		"dist/cjs/index.js", "dist/cjs/index.d.ts", "dist/esm/worker.js", "dist/cjs/worker.d.ts",
		"dist/cjs/package.json"} {
		if !slices.Contains(paths, want) {
			t.Errorf("the package does not contain %s", want)
		}
	}
	if read(t, filepath.Join(dir, "LICENSE")) != read(t, "../LICENSE") {
		t.Error("clients/typescript/LICENSE differs from LICENSE")
	}
	return filepath.Join(dir, packs[0].Filename)
}

// consume makes a project that uses the package as npm would install it, with the compiled tests.
func consume(t *testing.T, dir, consumer, tarball string) {
	t.Helper()
	modules := filepath.Join(consumer, "node_modules")
	if err := os.MkdirAll(filepath.Join(modules, "belay-client"), 0o700); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, "tar", "--extract", "--gzip", "--file", tarball, "--strip-components=1", "--directory",
		filepath.Join(modules, "belay-client"))
	for _, name := range []string{"openapi-fetch", "openapi-typescript-helpers"} {
		if err := os.Symlink(filepath.Join(dir, "node_modules", name), filepath.Join(modules, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"esm", "cjs"} {
		if err := os.Rename(filepath.Join(dir, "build", kind), filepath.Join(consumer, kind)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(consumer, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
}

// runIn runs a program in a directory. The environment variable BELAY names the real belay.
func runIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "BELAY="+binary(t))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, failures(string(out)))
	}
	return string(out)
}

// failures is the part of a report of tests that begins with the first failed test.
func failures(report string) string {
	if i := strings.Index(report, "\nnot ok"); i >= 0 {
		report = report[i:]
	}
	return clip(report)
}

// typescriptPackages has the packages of the TypeScript client, which all tests share.
var typescriptPackages struct {
	once sync.Once
	dir  string
}

// typescriptProject copies parts of the TypeScript client into a new directory with its packages.
func typescriptProject(t *testing.T, parts ...string) (dir string, run func(name string, args ...string) string) {
	t.Helper()
	base := []string{"package.json", "package-lock.json", "tsconfig.json"}
	typescriptPackages.once.Do(func() {
		binary(t) // makes the directory that is removed after all tests
		at := filepath.Join(built.dir, "typescript")
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		install(t, typescript, at, base...)
		typescriptPackages.dir = at
	})
	if typescriptPackages.dir == "" {
		t.Fatal("the packages of the TypeScript client could not be installed")
	}
	dir = t.TempDir()
	for _, name := range append(base, parts...) {
		copyInto(t, filepath.Join(typescript, name), filepath.Join(dir, name))
	}
	modules := filepath.Join(typescriptPackages.dir, "node_modules")
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir, func(name string, args ...string) string {
		t.Helper()
		return runIn(t, dir, append([]string{name}, args...)...)
	}
}

// npmProject copies parts of a project into a new directory, installs the packages of its lock
// file, and returns the directory and a function that runs programs in it.
func npmProject(t *testing.T, from string, parts ...string) (dir string, run func(name string, args ...string) string) {
	t.Helper()
	dir = t.TempDir()
	install(t, from, dir, parts...)
	return dir, func(name string, args ...string) string {
		t.Helper()
		return runIn(t, dir, append([]string{name}, args...)...)
	}
}

// install copies parts of a project into a directory, and installs the packages of its lock file there.
func install(t *testing.T, from, dir string, parts ...string) {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is needed: %v (scripts/need.sh node:nodejs npm)", tool, err)
		}
	}
	for _, name := range parts {
		copyInto(t, filepath.Join(from, name), filepath.Join(dir, name))
	}
	runIn(t, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
}

// generator returns the command of package.json that makes the types, with the path of the OpenAPI
// document and without an output file.
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
