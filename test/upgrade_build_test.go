package test

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// version is one version of Belay: the programs that were built from it.
type version struct {
	name   string
	belay  string
	orders string // the path of the program testdata/orders, a worker with that version's SDK
}

// newestMigration returns PostgreSQL's newest migration. shared is true if servers that do not know
// this migration yet may keep running beside servers that know it.
func newestMigration(t *testing.T) (file string, shared bool) {
	t.Helper()
	files, err := filepath.Glob("../internal/store/postgres/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("read the migrations: %v", err)
	}
	file = files[len(files)-1]
	text, err := os.ReadFile(file)
	must(t, err)
	oldest := regexp.MustCompile(`UPDATE meta SET oldest = (\d+);`).FindSubmatch(text)
	if oldest == nil {
		t.Fatalf("%s does not say which servers may keep running", file)
	}
	n, err := strconv.Atoi(string(oldest[1]))
	must(t, err)
	return strings.TrimPrefix(file, "../"), n < len(files)
}

// versions builds this version and an earlier version of Belay. The function earlier chooses the
// commit of the earlier version.
func versions(t *testing.T, earlier func() (commit string, err error)) (before, after version) {
	t.Helper()
	commit, err := earlier()
	if err != nil {
		if os.Getenv("BELAY_TEST_REQUIRE") == "" {
			t.Skipf("an earlier version cannot be built: %v", err)
		}
		t.Fatal(err)
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, "before")
	must(t, extract(commit, dir, tree))
	// The test program in testdata/orders may lack, in the earlier version, code that the test
	// needs. So both versions are built from the newest source of that program.
	must(t, os.RemoveAll(filepath.Join(tree, "test/testdata/orders")))
	copyInto(t, "testdata/orders", filepath.Join(tree, "test/testdata/orders"))
	before = version{name: "before", belay: filepath.Join(dir, "belay"), orders: filepath.Join(dir, "orders-before")}
	build(t, tree, before.belay, "./cmd/belay", "-trimpath")
	build(t, tree, before.orders, "./test/testdata/orders", "-trimpath")
	after = version{name: "after", belay: binary(t), orders: filepath.Join(dir, "orders-after")}
	build(t, "..", after.orders, "./test/testdata/orders")
	t.Logf("before is %s", commit)
	return before, after
}

// lastWithout returns the last commit that does not have a file: the parent of the commit that
// added the file, or the newest commit if the file is not committed yet.
func lastWithout(file string) (string, error) {
	added, err := firstWith(file)
	if err != nil || added == "" {
		return cmp.Or(added, "HEAD"), err
	}
	return git("rev-parse", "--verify", added+"^")
}

// firstWith returns the commit that added a file, or "" if the file is not committed yet.
func firstWith(file string) (string, error) {
	added, err := git("log", "--diff-filter=A", "--format=%H", "--", file)
	if err != nil || added == "" {
		return "", err
	}
	all := strings.Fields(added)
	return all[len(all)-1], nil
}

// git runs git on the repository of these tests.
func git(args ...string) (string, error) {
	// In a container, the checkout may belong to another user than the user that runs the tests.
	out, err := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", ".."}, args...)...).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = errors.Join(err, errors.New(strings.TrimSpace(string(failed.Stderr))))
	}
	return strings.TrimSpace(string(out)), err
}

// extract writes the files of a commit.
func extract(commit, dir, tree string) error {
	tar := filepath.Join(dir, "tree.tar")
	if _, err := git("archive", "--format=tar", "--output="+tar, commit); err != nil {
		return err
	}
	if err := os.MkdirAll(tree, 0o700); err != nil {
		return err
	}
	out, err := exec.Command("tar", "-xf", tar, "-C", tree).CombinedOutput()
	if err != nil {
		err = errors.Join(err, errors.New(string(out)))
	}
	return err
}

// build builds a program. With the flag -trimpath, Go's build cache also has the packages that an
// earlier run built in another directory. Without this flag, it has the packages that other tests
// built in this directory.
func build(t *testing.T, dir, program, pkg string, flags ...string) {
	t.Helper()
	args := slices.Concat([]string{"build", "-buildvcs=false", "-o", program}, flags, []string{pkg})
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s in %s: %v\n%s", pkg, dir, err, out)
	}
}
