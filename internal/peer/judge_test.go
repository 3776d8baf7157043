//go:build linux

package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/agent/process"
)

// TestMain lets the test binary also run as a supervisor of jobs.
func TestMain(m *testing.M) {
	process.Main()
	os.Exit(m.Run())
}

// call connects to the address os.Args[2] on the network os.Args[1] and sends a line. It keeps the
// connection until the other side sends a byte or closes it; with a third argument it closes the
// connection at once.
func call() int {
	c, err := net.Dial(os.Args[1], os.Args[2])
	if err == nil {
		_, err = io.WriteString(c, "hello\n")
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if len(os.Args) > 3 {
		return 0
	}
	_, _ = c.Read(make([]byte, 1))
	return 0
}

// soon is a deadline far beyond the time that any step of these tests takes.
const soon = 20 * time.Second

// accept accepts a connection and reads its line.
func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	if d, ok := l.(interface{ SetDeadline(t time.Time) error }); ok {
		_ = d.SetDeadline(time.Now().Add(soon))
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(soon))
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "hello\n" {
		t.Fatalf("the caller sends %q, %v", line, err)
	}
	return c
}

// addresses lists addresses of this machine that a server may listen on: loopback addresses and one
// address on a network, as far as the machine has them.
func addresses(t *testing.T) (list []string) {
	t.Helper()
	for _, host := range []string{"127.0.0.1", "::1", "127.8.9.10"} {
		if l, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err == nil {
			_ = l.Close()
			list = append(list, host)
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			return append(list, ip.IP.String())
		}
	}
	return list
}

func listen(t *testing.T, host string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// job runs call in a process of a job.
func job(t *testing.T, kind process.Isolation, args ...string) {
	t.Helper()
	tree, err := process.Start(t.Context(), process.Command{
		ID: fmt.Sprintf("peer-%d-%d", os.Getpid(), time.Now().UnixNano()),
		Args: []string{
			"/proc/self/exe", "-test.run", "^TestOutsider$",
		}, Env: map[string]string{"PEER_TEST_CALL": strings.Join(args, " ")},
		Dir: "/", Isolation: kind, Grace: -1,
		Output: func(_ context.Context, c process.Chunk) error { t.Logf("the job: %s", c.Data); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tree.Kill(nil)
		<-tree.Done()
	})
}

// outsider runs call in a process that belongs to no job, as another user if uid is not negative.
func outsider(t *testing.T, uid int, args ...string) {
	t.Helper()
	c := exec.Command("/proc/self/exe", "-test.run", "^TestOutsider$")
	c.Env = append(os.Environ(), "PEER_TEST_CALL="+strings.Join(args, " "))
	if uid >= 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

// TestOutsider runs call in the processes that job and outsider start.
func TestOutsider(t *testing.T) {
	args := os.Getenv("PEER_TEST_CALL")
	if args == "" {
		t.Skip("runs only in a process that another test starts")
	}
	os.Args = append([]string{"call"}, strings.Fields(args)...)
	if call() != 0 {
		t.Error("the call failed")
	}
}

// isolations lists the kinds of isolation that this user can have.
func isolations() []process.Isolation {
	if os.Geteuid() != 0 {
		return []process.Isolation{process.UserNamespace, process.Subreaper}
	}
	return []process.Isolation{process.PIDNamespace, process.UserNamespace, process.Subreaper}
}

// Rule: a process of a job is recognised over every address of this machine and with every kind of
// isolation. A process outside of jobs is accepted.
func TestJobsAreRefused(t *testing.T) {
	j := &Judge{InJob: process.InJob, Shared: true}
	for _, host := range addresses(t) {
		for _, kind := range isolations() {
			l := listen(t, host)
			job(t, kind, "tcp", l.Addr().String())
			if err := j.TCP(accept(t, l)); !errors.Is(err, ErrJob) {
				t.Errorf("%s, over %s: %v", kind, host, err)
			}
		}
		l := listen(t, host)
		outsider(t, -1, "tcp", l.Addr().String())
		if err := j.TCP(accept(t, l)); err != nil {
			t.Errorf("a process outside of jobs, over %s: %v", host, err)
		}
	}
}

// Rule: jobs that run as system users of their own are recognised by these users. Processes of
// other users are accepted.
func TestUsersOfJobsAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	const first = 0x70000000
	j := &Judge{InJob: process.InJob, Users: func(uid uint32) bool { return uid >= first && uid < first+10 }}
	for _, host := range addresses(t) {
		for uid, want := range map[int]error{first: ErrJob, first + 9: ErrJob, first + 10: nil, 65534: nil} {
			l := listen(t, host)
			outsider(t, uid, "tcp", l.Addr().String())
			if err := j.TCP(accept(t, l)); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("user %d over %s: %v", uid, host, err)
			}
		}
	}
}

// Rule: a peer that sends a request and closes its socket at once cannot be identified and is
// refused, even if another process has bound the peer's port in the meantime.
func TestAClosedPeerIsRefused(t *testing.T) {
	j := &Judge{InJob: process.InJob, Shared: true, Users: func(uint32) bool { return false }}
	for _, host := range addresses(t) {
		l := listen(t, host)
		outsider(t, -1, "tcp", l.Addr().String(), "at-once")
		c := accept(t, l)
		_ = c.SetReadDeadline(time.Now().Add(soon))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("the caller has not closed the connection: %v", err)
		}
		if err := j.TCP(c); !errors.Is(err, ErrUnknown) {
			t.Errorf("over %s: %v", host, err)
		}
	}
	l := listen(t, "127.0.0.1")
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return errors.Join(c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
		}))
	}}
	leave := func() (c net.Conn, squatter net.Listener, err error) {
		out, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(out, "hello\n")
		c, from := accept(t, l), out.LocalAddr().String()
		if err := out.(*net.TCPConn).SetLinger(0); err != nil { // so that the kernel keeps no TIME_WAIT socket
			t.Fatal(err)
		}
		_ = out.Close()
		squatter, err = net.Listen("tcp", from)
		return c, squatter, err
	}
	c, squatter, err := leave()
	// Another process may have the port by chance: try again with another port.
	for n := 0; errors.Is(err, syscall.EADDRINUSE) && n < 100; n++ {
		c, squatter, err = leave()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	if err := j.TCP(c); !errors.Is(err, ErrUnknown) {
		t.Errorf("with a listener on the caller's port: %v", err)
	}
}

// Rule: IPv4 addresses that are mapped into IPv6 are recognised at both ends of a connection. The
// tables of /proc and netlink give the same answer for these addresses.
func TestMappedAddressesAreRecognised(t *testing.T) {
	l, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"127.0.0.1", "::ffff:127.0.0.1", "::1"} {
		if strings.HasPrefix(to, "::ffff") { // package net would connect over IPv4
			fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Close(fd) })
			addr := syscall.SockaddrInet6{Port: l.Addr().(*net.TCPAddr).Port}
			copy(addr.Addr[:], net.ParseIP(to).To16())
			if err := syscall.Connect(fd, &addr); err != nil {
				t.Fatal(err)
			}
			if _, err := syscall.Write(fd, []byte("hello\n")); err != nil {
				t.Fatal(err)
			}
		} else {
			out, err := net.Dial("tcp", net.JoinHostPort(to, port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = out.Close() })
			_, _ = io.WriteString(out, "hello\n")
		}
		c := accept(t, l)
		s, err := Remote(c)
		if err != nil || s.UID != uint32(os.Geteuid()) {
			t.Errorf("%s: %+v, %v", to, s, err)
		}
		here, _ := addressOf(c.LocalAddr())
		there, _ := addressOf(c.RemoteAddr())
		if table, err := fromTables("/proc/net/", there, here); err != nil || table != s {
			t.Errorf("%s: /proc says %+v, %v; the kernel %+v", to, table, err, s)
		}
		if err := (&Judge{InJob: process.InJob}).TCP(c); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// Rule: a signal to this process does not change the result. The Go runtime sends signals to its threads.
func TestSignalsDoNotInterruptAJudgement(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	done := make(chan struct{})
	var signals sync.WaitGroup
	for range 2 {
		signals.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = syscall.Kill(os.Getpid(), syscall.SIGURG)
				}
			}
		})
	}
	j := &Judge{InJob: process.InJob}
	for range 2000 {
		if err := j.Unix(c.(*net.UnixConn)); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	signals.Wait()
}

// Rule: on a unix socket a process of a job is refused, whether it connects or listens, and another
// process is accepted. A process that has ended is refused.
func TestJobsAreRefusedOnUnixSockets(t *testing.T) {
	j := &Judge{InJob: process.InJob}
	socket := func() net.Listener {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	judged := func(l net.Listener) error {
		t.Helper()
		c, ok := accept(t, l).(*net.UnixConn)
		if !ok {
			t.Fatal("the connection is not one of a unix socket")
		}
		return j.Unix(c)
	}
	for _, kind := range isolations() {
		l := socket()
		job(t, kind, "unix", l.Addr().String())
		if err := judged(l); !errors.Is(err, ErrJob) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	l := socket()
	outsider(t, -1, "unix", l.Addr().String())
	if err := judged(l); err != nil {
		t.Errorf("a process outside of jobs: %v", err)
	}
	out, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := j.Unix(out.(*net.UnixConn)); err != nil {
		t.Errorf("this process, as the listening one: %v", err)
	}
	_ = acceptSilent(t, l)
	l = socket()
	outsider(t, -1, "unix", l.Addr().String(), "at-once")
	c := accept(t, l)
	_ = c.SetReadDeadline(time.Now().Add(soon))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the caller has not closed the connection: %v", err)
	}
	until(t, "its process is gone", func() bool { return errors.Is(j.Unix(c.(*net.UnixConn)), ErrUnknown) })
}

// acceptSilent accepts a connection on which the caller sends nothing.
func acceptSilent(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(soon); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", soon, what)
		}
	}
}

// Rule: jobs are also recognised if this process does not run as root.
func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("every test of this run is without root")
	}
	dir, err := os.MkdirTemp("", "belay-peer-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run",
		"^(TestJobsAreRefused|TestAClosedPeerIsRefused|TestMappedAddressesAreRecognised|"+
			"TestJobsAreRefusedOnUnixSockets)$")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}
