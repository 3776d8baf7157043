package mqtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Environment variables that the tests read.
const (
	envURL     = "BELAY_TEST_RABBITMQ"
	envRequire = "BELAY_TEST_REQUIRE"
)

// Long reports whether the tests run in full (make test-long), and not only those that are worth their time in
// every run.
func Long() bool { return os.Getenv("BELAY_TEST_LONG") != "" }

// errMissing reports that this machine has no RabbitMQ.
var errMissing = errors.New("no RabbitMQ here: rabbitmq-server, erl_call and epmd are neither on the PATH nor " +
	"in /usr/lib/rabbitmq/bin and /usr/lib/erlang/bin; " +
	"install it (Debian: apt-get install rabbitmq-server), or name a server in " + envURL)

// programs are the paths of the programs that a server needs.
type programs struct{ server, call, epmd string }

// find searches the programs of RabbitMQ and Erlang. It prefers the directory of the package, because
// Debian's programs on the PATH are wrappers, which run only as root or as the user rabbitmq, and
// change the user and the directory.
func find() (programs, error) {
	p := programs{
		server: first("rabbitmq-server", "/usr/lib/rabbitmq/bin", "/opt/homebrew/sbin"),
		call:   first("erl_call", "/usr/lib/erlang/bin", "/opt/homebrew/bin"),
		epmd:   first("epmd", "/usr/lib/erlang/bin", "/opt/homebrew/bin"),
	}
	if p.server == "" || p.call == "" || p.epmd == "" {
		return programs{}, errMissing
	}
	return p, nil
}

// first returns the path of a program in the first of the directories that has it, or else on the
// PATH, or else an empty string.
func first(name string, dirs ...string) string {
	for _, dir := range dirs {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// without skips or fails a test that needs a server, because err prevents the start of a server.
func without(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errMissing) && os.Getenv(envRequire) == "" {
		t.Skip(err)
	}
	t.Fatal(err)
}
