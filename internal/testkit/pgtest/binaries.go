package pgtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Environment variables that the tests read.
const (
	envURL     = "BELAY_TEST_POSTGRES"
	envRequire = "BELAY_TEST_REQUIRE"
)

// errMissing reports that this machine has no PostgreSQL.
var errMissing = errors.New("no PostgreSQL here: initdb, postgres and psql are neither on the PATH nor in " +
	"/usr/lib/postgresql/*/bin; " +
	"install it (Debian: apt-get install postgresql), or name a server in " + envURL)

// binaries returns the folder of initdb, postgres and psql: the folder in PATH that has them, or
// else the folder of the newest installed version.
func binaries() (string, error) {
	var found []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		found = append(found, paths...)
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append([]string{filepath.Dir(path)}, found...)
	}
	for _, dir := range found {
		if complete(dir) {
			return dir, nil
		}
	}
	return "", errMissing
}

func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres", "psql"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// version returns the number in a path like /usr/lib/postgresql/15/bin.
func version(path string) int {
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, path)
	n, _ := strconv.Atoi(digits)
	return n
}

// unprivileged returns the attributes of the server's process. If this process is root, the server
// runs as the user postgres.
func unprivileged() (*syscall.SysProcAttr, error) {
	// The server has a process group of its own, which a Ctrl-C in the terminal does not reach, so
	// that the shell can stop the server.
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL refuses to run as root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the id of user postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the group of user postgres: %w", err)
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, nil
}

// without skips or fails a test that needs a server, because err prevents the start of a server.
func without(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errMissing) && os.Getenv(envRequire) == "" {
		t.Skip(err)
	}
	t.Fatal(err)
}
