package mqtest_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/mqtest"
)

// The tests of this file that stop a server start it for themselves; they run at the same time, so
// that several servers run at once.

// A server keeps what it acknowledged through a crash, and nothing of one server is in another.
func TestServersKeepWhatTheyAcknowledged(t *testing.T) {
	t.Parallel()
	s := mqtest.Start(t, mqtest.Options{})
	other := mqtest.Shared(t)
	name := s.VHost(t)
	if err := errors.Join(s.Kill(), s.Resume()); err != nil {
		t.Fatal(err)
	}
	if out := s.Ctl(t, "list_vhosts"); !strings.Contains(out, name) {
		t.Errorf("the virtual hosts are %q after the server came back, want %s among them", out, name)
	}
	if out := other.Ctl(t, "list_vhosts"); strings.Contains(out, name) {
		t.Errorf("another server has the virtual host %s too: %q", name, out)
	}
}

// A server listens on the loopback only.
func TestServersListenOnTheLoopback(t *testing.T) {
	t.Parallel()
	s := mqtest.Shared(t)
	out := s.Ctl(t, "eval", "[{A, P} || L <- erlang:ports(), {ok, {A, P}} <- [inet:sockname(L)]].")
	_, port, err := net.SplitHostPort(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "{{127,0,0,1},"+port+"}") {
		t.Errorf("the sockets are %s; want one on port %s", out, port)
	}
	if strings.Contains(out, "{0,0,0,0}") || strings.Contains(out, "{0,0,0,0,0,0,0,0}") {
		t.Errorf("the sockets are %s; want none on all interfaces", out)
	}
}

// The memory alarm stands until it is cleared. (No test of this package publishes.)
func TestAlarm(t *testing.T) {
	t.Parallel()
	s := mqtest.Shared(t)
	const alarms = "rabbit_alarm:get_alarms()."
	if out := s.Ctl(t, "eval", alarms); out != "[]" {
		t.Fatalf("alarms before the first: %s", out)
	}
	end := s.Alarm(t)
	await(t, "the alarm", func() bool { return strings.Contains(s.Ctl(t, "eval", alarms), "memory") })
	end()
	await(t, "the end of the alarm", func() bool { return s.Ctl(t, "eval", alarms) == "[]" })
}

// A user has the permissions that the test gives it, and no others.
func TestUsers(t *testing.T) {
	t.Parallel()
	s := mqtest.Shared(t)
	vhost := s.VHost(t)
	url := s.User(t, vhost, mqtest.Permissions{Configure: "^belay", Write: "", Read: ".*"})
	if !strings.HasPrefix(url, "amqp://user-") || !strings.HasSuffix(url, "@"+s.Address()+"/"+vhost) {
		t.Errorf("the URL is %s", url)
	}
	got := strings.Fields(s.Ctl(t, "list_permissions", "--vhost", vhost, "--no-table-headers"))
	if want := "^belay .*"; !strings.Contains(strings.Join(got, " "), want) {
		t.Errorf("the permissions are %q, want %q among them", got, want)
	}
}

// A failure to start is reported with the server's log, and leaves nothing behind.
func TestFailuresShowTheLog(t *testing.T) {
	t.Parallel()
	mqtest.Shared(t) // skips the test if there is no server
	cmd := again(t, "TestStartsWithABadSetting")
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("the server ended while it started")) ||
		!bytes.Contains(out, []byte("no_such_setting")) {
		t.Errorf("%v; want the end of the server and the name of the setting in %s", err, out)
	}
	left, err := filepath.Glob(filepath.Join(tempOf(cmd), "mqtest-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q are left: %v", left, err)
	}
}

// TestStartsWithABadSetting fails when TestFailuresShowTheLog runs it.
func TestStartsWithABadSetting(t *testing.T) {
	if os.Getenv(child) == "" {
		t.Skip("part of TestFailuresShowTheLog")
	}
	mqtest.Start(t, mqtest.Options{Settings: map[string]string{"no_such_setting": "1"}})
}

// child is an environment variable: a test sets it in a process that it starts.
const child = "MQTEST_CHILD"

// again returns a command that runs one test in another process, with a temporary directory of its
// own.
func again(t *testing.T, test string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1", "TMPDIR="+t.TempDir())
	return cmd
}

func tempOf(cmd *exec.Cmd) string {
	return strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "TMPDIR=")
}

// A server and its epmd end, and their files go, when a kill ends their test process.
func TestServersDieWithTheirTest(t *testing.T) {
	if os.Getenv(child) != "" {
		s := mqtest.Start(t, mqtest.Options{})
		pid := s.Ctl(t, "eval", `io:format("~s", [os:getpid()]).`)
		_, _ = os.Stdout.WriteString("at " + strings.Fields(pid)[0] + " " + s.Address() + "\n")
		select {}
	}
	t.Parallel()
	mqtest.Shared(t) // skips the test if there is no server
	cmd := again(t, "TestServersDieWithTheirTest")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fields := lineWith(t, out, "at ")
	pid, err := strconv.Atoi(strings.TrimRight(fields[1], "ok"))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await(t, "the end of the files", func() bool {
		left, err := filepath.Glob(filepath.Join(tempOf(cmd), "mqtest-*"))
		return err == nil && len(left) == 0
	})
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d is still there", pid)
	}
	if c, err := net.Dial("tcp", fields[2]); err == nil {
		t.Errorf("the server still listens: %v", c.Close())
	}
}

// lineWith returns the fields of the first line that begins with the prefix.
func lineWith(t *testing.T, r io.Reader, prefix string) []string {
	t.Helper()
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, prefix) {
			return strings.Fields(line)
		}
	}
}

// await polls, because no event announces what the tests wait for.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
