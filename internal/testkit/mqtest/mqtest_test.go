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

// A server keeps what it acknowledged through a crash, and nothing of one server is in another.
func TestServersKeepWhatTheyAcknowledged(t *testing.T) {
	if !mqtest.Long() {
		t.Skip("package broker kills a server in each run of its tests")
	}
	s, other := mqtest.Start(t, mqtest.Options{}), mqtest.Shared(t)
	name := s.VHost(t)
	if err := errors.Join(s.Kill(), s.Resume()); err != nil {
		t.Fatal(err)
	}
	if out := vhosts(t, s); !strings.Contains(out, name) {
		t.Errorf("the virtual hosts are %s after the server came back, want %s among them", out, name)
	}
	if out := vhosts(t, other); strings.Contains(out, name) {
		t.Errorf("another server has the virtual host %s too: %s", name, out)
	}
}

func vhosts(t *testing.T, s *mqtest.Server) string {
	t.Helper()
	return s.Eval(t, `binary_to_list(iolist_to_binary(lists:join(" ", rabbit_vhost:list_names())))`)
}

// A server listens on the loopback only.
func testLoopback(t *testing.T, s *mqtest.Server) {
	out := s.Eval(t, "[{A, P} || L <- erlang:ports(), {ok, {A, P}} <- [inet:sockname(L)]]")
	_, port, err := net.SplitHostPort(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	out = strings.Join(strings.Fields(out), "")
	if !strings.Contains(out, "{{127,0,0,1},"+port+"}") {
		t.Errorf("the sockets are %s; want one on port %s", out, port)
	}
	if strings.Contains(out, "{0,0,0,0}") || strings.Contains(out, "{0,0,0,0,0,0,0,0}") {
		t.Errorf("the sockets are %s; want none on all interfaces", out)
	}
}

// The memory alarm stands until it is cleared.
func testAlarm(t *testing.T, s *mqtest.Server) {
	const alarms = "rabbit_alarm:get_alarms()"
	if out := s.Eval(t, alarms); out != "[]" {
		t.Fatalf("alarms before the first: %s", out)
	}
	end := s.Alarm(t)
	await(t, "the alarm", func() bool { return strings.Contains(s.Eval(t, alarms), "memory") })
	end()
	await(t, "the end of the alarm", func() bool { return s.Eval(t, alarms) == "[]" })
}

// A user has the permissions that the test gives it, and no others.
func testUsers(t *testing.T, s *mqtest.Server) {
	vhost := s.VHost(t)
	address := s.User(t, vhost, mqtest.Permissions{Configure: "^belay", Write: "", Read: ".*"})
	if !strings.HasPrefix(address, "amqp://user-") || !strings.HasSuffix(address, "@"+s.Address()+"/"+vhost) {
		t.Errorf("the URL is %s", address)
	}
	got := s.Eval(t, `[binary_to_list(iolist_to_binary(lists:join(" ", [proplists:get_value(K, P) || `+
		"K <- [configure, write, read]]))) || P <- rabbit_auth_backend_internal:list_permissions()]")
	if !strings.Contains(got, `"^belay  .*"`) {
		t.Errorf("the permissions are %s", got)
	}
}

// Tests see that a queue is missing, and names may have any characters.
func testQueues(t *testing.T, s *mqtest.Server) {
	if q, ok := s.Queue(t, "/", `no "such" queue'}.`); ok {
		t.Errorf("found %+v", q)
	}
}

// A failure to start is reported with the server's log, and leaves nothing behind.
func TestFailuresShowTheLog(t *testing.T) {
	if !mqtest.Long() {
		t.Skip("needs another server")
	}
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

// A server and its epmd end, and their files go, when a kill ends their test process. Before that, other tests use
// the server, because each start of one takes seconds.
func TestServersDieWithTheirTest(t *testing.T) {
	if os.Getenv(child) != "" {
		s := mqtest.Start(t, mqtest.Options{})
		t.Run("Loopback", func(t *testing.T) { testLoopback(t, s) })
		t.Run("Alarm", func(t *testing.T) { testAlarm(t, s) })
		t.Run("Users", func(t *testing.T) { testUsers(t, s) })
		t.Run("Queues", func(t *testing.T) { testQueues(t, s) })
		if t.Failed() || t.Skipped() {
			return
		}
		pid := s.Eval(t, "list_to_integer(os:getpid())")
		_, _ = os.Stdout.WriteString("at " + pid + " " + s.Address() + "\n")
		select {}
	}
	cmd := again(t, "TestServersDieWithTheirTest")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fields := lineWith(t, out, "at ")
	pid, err := strconv.Atoi(fields[1])
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

// lineWith returns the fields of the first line that begins with the prefix. If there is none, the test is skipped
// or fails as the process that wrote the lines did.
func lineWith(t *testing.T, r io.Reader, prefix string) []string {
	t.Helper()
	var before strings.Builder
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadString('\n')
		switch {
		case strings.HasPrefix(line, prefix):
			return strings.Fields(line)
		case err != nil && strings.Contains(before.String(), "--- SKIP"):
			t.Skip(before.String())
		case err != nil:
			t.Fatalf("%v after\n%s", err, &before)
		}
		before.WriteString(line)
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
