package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// module is the path of the product's module. The tests name a package by its folder in the module,
// and the root package by ".".
const module = "github.com/belaydev/belay"

// root is the folder of the product's go.mod, relative to this package.
const root = "../.."

// sourceFile is a parsed Go file.
type sourceFile struct {
	path string // relative to the root, with slashes
	pkg  string // the folder relative to the root, "." for the root package
	test bool
	ast  *ast.File
	text string
}

// files lists the files of the repository, as paths relative to the root with slashes: tracked
// files, and new files that git does not ignore.
var files = sync.OnceValues(func() ([]string, error) {
	// Without safe.directory, git refuses a checkout that belongs to another user than the user
	// that runs the tests, for example in a container.
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z", "--cached", "--others",
		"--exclude-standard").Output()
	if err != nil {
		return nil, err
	}
	var list []string
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil { // the file is not deleted in the work tree
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
})

func repoFiles(t *testing.T) []string {
	t.Helper()
	list, err := files()
	if err != nil {
		t.Fatalf("list the files of the repository: %v", err)
	}
	if len(list) == 0 {
		t.Fatal("git lists no files: the tests of the repository need a git checkout")
	}
	return list
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// goFiles parses every Go file of the repository, also the files of modules other than the main
// module.
func goFiles(t *testing.T) (*token.FileSet, []sourceFile) {
	t.Helper()
	fset := token.NewFileSet()
	var sources []sourceFile
	for _, name := range repoFiles(t) {
		if !strings.HasSuffix(name, ".go") || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		text := read(t, name)
		parsed, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parse: %v", err)
			continue
		}
		sources = append(sources, sourceFile{
			path: name,
			pkg:  path.Dir(name),
			test: strings.HasSuffix(name, "_test.go"),
			ast:  parsed,
			text: text,
		})
	}
	return fset, sources
}

// beside reports whether a package belongs to a module of its own, such as tools or bench.
func beside(t *testing.T, pkg string) bool {
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if slices.Contains(repoFiles(t), dir+"/go.mod") {
			return true
		}
	}
	return false
}

// public reports whether users of the module may import a package.
func public(t *testing.T, pkg string) bool {
	return !strings.HasPrefix(pkg+"/", "internal/") && !strings.Contains(pkg, "/internal/") &&
		!strings.HasPrefix(pkg+"/", "cmd/") && !strings.HasPrefix(pkg+"/", "test/") && !beside(t, pkg)
}

// callTo returns Name for a call of the form pkg.Name(…), if pkg is the package with the import path.
func callTo(file *ast.File, call *ast.CallExpr, importPath string) (name string, ok bool) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	ident, ok := selector.X.(*ast.Ident)
	if !ok || ident.Name != importedAs(file, importPath) {
		return "", false
	}
	return selector.Sel.Name, true
}

// importedAs returns the name that a file uses for a package, or "" if the file does not import the
// package.
func importedAs(file *ast.File, importPath string) string {
	for _, spec := range file.Imports {
		if strings.Trim(spec.Path.Value, `"`) != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}
