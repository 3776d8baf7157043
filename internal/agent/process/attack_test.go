//go:build linux

package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attacks are the attempts of a hostile run, by name. Each function gets the arguments of one
// attempt, and returns nil if the attack succeeds, or the reason why it fails.
var attacks = map[string]func(args []string) error{
	"meet":       meet,
	"dial":       func(a []string) error { return dial(a[0], a[1]) },
	"listen":     func(a []string) error { l, err := net.Listen(a[0], a[1]); return errors.Join(err, closed(l)) },
	"datagram":   datagram,
	"fastopen":   fastOpen,
	"stream":     func(a []string) error { return stream(number(a[0]), a[1]) },
	"socket":     func(a []string) error { return socket(number(a[0]), number(a[1])) },
	"uring":      uring,
	"fetch":      func(a []string) error { return fetch(a[0]) },
	"kill":       func(a []string) error { return unix.Kill(number(a[0]), unix.Signal(number(a[1]))) },
	"killthread": func(a []string) error { return killThread(number(a[0])) },
	"prlimit": func(a []string) error {
		return unix.Prlimit(number(a[0]), unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
	},
	"read":    func(a []string) error { _, err := os.ReadFile(a[0]); return err },
	"list":    func(a []string) error { _, err := os.ReadDir(a[0]); return err },
	"follow":  func(a []string) error { _, err := os.Readlink(a[0]); return err },
	"write":   func(a []string) error { return os.WriteFile(a[0], []byte("attacked"), 0o600) },
	"cut":     func(a []string) error { return os.Truncate(a[0], 0) },
	"remove":  func(a []string) error { return os.Remove(a[0]) },
	"rename":  func(a []string) error { return os.Rename(a[0], a[1]) },
	"link":    func(a []string) error { return os.Link(a[0], a[1]) },
	"mkdir":   func(a []string) error { return os.Mkdir(a[0], 0o700) },
	"device":  func(a []string) error { return unix.Mknod(a[0], unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))) },
	"remount": func(a []string) error { return unix.Mount("", a[0], "", unix.MS_REMOUNT|unix.MS_BIND, "") },
	"setattr": func(a []string) error { return setMounts(a[0], 0, unix.MOUNT_ATTR_RDONLY) },
	"unmount": func(a []string) error { return unix.Unmount(a[0], unix.MNT_DETACH) },
	"attach":  func(a []string) error { return unix.PtraceAttach(number(a[0])) },
	"hoard":   hoard,
	"peek":    peek,
	"steal":   steal,
	"watch":   watch,
}

// attack is the main function of a hostile run. It tries one attack for each line of its input, and
// prints the result: "open" if the attack succeeded, else the error.
func attack() int {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		err := attacks[words[0]](words[1:])
		answer := "open"
		if err != nil {
			answer = err.Error()
		}
		fmt.Printf("%s: %s\n", lines.Text(), answer)
	}
	return 0
}

// assault runs the attacks in lines and returns the result of each.
func assault(t *testing.T, c Command, lines ...string) (map[string]string, Result) {
	t.Helper()
	out := new(transcript)
	c.Args, c.Helper, c.Output = []string{"attacker"}, true, out.take
	c.Stdin = []byte(strings.Join(lines, "\n") + "\n")
	r, err := Run(t.Context(), c)
	if err != nil || r.Code != 0 {
		t.Fatalf("%+v, %v\n%s", r, err, out)
	}
	results := make(map[string]string)
	for line := range strings.Lines(out.stdout.String()) {
		if what, how, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			results[what] = how
		}
	}
	return results, r
}

// repelled runs the attacks in lines, and fails the test for each attack that succeeds.
func repelled(t *testing.T, c Command, lines ...string) Result {
	t.Helper()
	results, r := assault(t, c, lines...)
	for _, line := range lines {
		if how := results[line]; how == "open" || how == "" {
			t.Errorf("%s: %q", line, how)
		}
	}
	return r
}

// permitted runs the accesses in lines, and fails the test for each access that is refused.
func permitted(t *testing.T, c Command, lines ...string) Result {
	t.Helper()
	results, r := assault(t, c, lines...)
	for _, line := range lines {
		if how := results[line]; how != "open" {
			t.Errorf("%s: %q", line, how)
		}
	}
	return r
}

func number(text string) int {
	if text == "parent" {
		return os.Getppid()
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func closed(c io.Closer) error {
	if l, ok := c.(net.Listener); ok && l == nil || c == nil {
		return nil
	}
	return c.Close()
}

func dial(network, address string) error {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// meet listens on an abstract socket and waits until another run connects.
func meet(args []string) error {
	l, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	fmt.Println("waiting")
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	return conn.Close()
}

// datagram sends a packet over UDP.
func datagram(args []string) error {
	conn, err := net.Dial("udp", args[0])
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("attacked"))
	return errors.Join(err, conn.Close())
}

func ipv4(address string) (*unix.SockaddrInet4, error) {
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	return &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}, nil
}

// fastOpen connects by TCP Fast Open, which sends data in the same system call that connects.
func fastOpen(args []string) error {
	to, err := ipv4(args[0])
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("attacked"), unix.MSG_FASTOPEN, to)
}

// stream connects a stream socket of the given protocol.
func stream(protocol int, address string) error {
	to, err := ipv4(address)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, to)
}

func socket(family, kind int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func uring([]string) error {
	var parameters [120]byte
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&parameters[0])), 0)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// fetch requests a page. Like most programs, it uses the proxy that the environment names.
func fetch(url string) error {
	r, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return errors.New(r.Status)
	}
	return nil
}

// killThread tries to kill a process by a signal to each of its threads. The kernel asks for the
// rights over the thread that a signal names.
func killThread(pid int) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	sent := false
	for _, t := range threads {
		tid := number(t.Name())
		sent = unix.Kill(tid, unix.SIGKILL) == nil || unix.Tgkill(pid, tid, unix.SIGKILL) == nil || sent
	}
	switch {
	case !sent:
		return unix.EPERM
	case pid == 1:
		return errors.New("the kernel ignores a signal that would end the first process of a namespace")
	}
	return nil
}

// peek tries to read another process's memory.
func peek(args []string) error {
	var word [8]byte
	local := []unix.Iovec{{Base: &word[0], Len: 8}}
	_, err := unix.ProcessVMReadv(number(args[0]), local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	return err
}

// steal tries to copy another process's descriptor.
func steal(args []string) error {
	pid, err := unix.PidfdOpen(number(args[0]), 0)
	if err != nil {
		return err
	}
	defer unix.Close(pid)
	fd, err := unix.PidfdGetfd(pid, number(args[1]), 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// hoard stores the given number of MiB in a memfd: a file in memory that no process has mapped.
func hoard(args []string) error {
	fd, err := unix.MemfdCreate("hoard", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	page := make([]byte, 1<<20)
	for range number(args[0]) {
		if _, err := unix.Write(fd, page); err != nil {
			return err
		}
	}
	return nil
}
