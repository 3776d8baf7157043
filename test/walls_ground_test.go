package test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// prepareStorm makes the files and the listeners that the jobs attack, and the configuration of the
// server. It adds the given lines to the configuration.
func prepareStorm(t *testing.T, m mode, more string) *storm {
	t.Helper()
	x := &storm{
		place: newPlace(t), mode: m, uid: os.Geteuid(), token: fmt.Sprintf("walls-%d-%d", os.Getpid(),
			time.Now().UnixNano()),
	}
	x.api.t = t
	if m.user && x.uid == 0 {
		// a user that no other test has, because the kernel counts limits by user
		x.uid = 61000 + int(time.Now().UnixNano()/1000%4000)
	}
	for _, dir := range []string{"bin", "outside", "home/.ssh"} {
		if err := os.MkdirAll(x.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	x.program("belay", binary(t), 0o755)
	x.program("attacker", attacker(t), 0o755)
	x.spec = map[string]any{
		"belay": []int{}, "base": filepath.Join(x.path("data"), "workspaces", "base"), "victim_socket": x.token,
		"files": map[string]string{
			"secret": x.path("secret"), "config": x.path("belay.yaml"), "ssh": x.path("home/.ssh/id_ed25519"),
			"rotated": x.path("credentials"), "database": filepath.Join(x.data, "belay.db"),
		},
		"socket": filepath.Join(x.data, "belay.sock"),
		"outside": []string{x.path("outside/" + x.token), "/tmp/" + x.token, "/var/tmp/" + x.token,
			"/dev/shm/" + x.token, "/etc/" + x.token},
		"tcp": x.listenStream("tcp", another+":0", &x.heard.tcp), "udp": x.listenUDP(),
		"engine":    x.listenStream("unix", x.path("engine.sock"), &x.heard.engine),
		"bus":       x.listenStream("unix", x.busDir()+"/bus", &x.heard.bus),
		"processes": mostProcesses, "memory": mostMemory, "disk": mostDisk, "inodes": 2 * mostInodes,
	}
	t.Cleanup(func() {
		for _, path := range x.spec["outside"].([]string) {
			_ = os.Remove(path)
		}
	})
	if os.Geteuid() == 0 {
		x.spec["setuid"] = x.program("euid", attacker(t), 0o755|fs.ModeSetuid)
	}
	repo := x.repository()
	x.write("secret", marker)
	x.write("home/.ssh/id_ed25519", marker)
	command, _ := json.Marshal([]string{x.path("bin/attacker")})
	x.write("belay.yaml", fmt.Sprintf("agent:\n  command: %s\n  output: plain\n  repo: %s\n  timeout: 10m\n  "+
		"grace: 500ms\n  save_every: 0\n  max_processes: %d\n  max_memory: %d\n  max_disk: %d\n%s%s",
		command, repo, mostProcesses, mostMemory, mostDisk, m.config, x.newer()+more))
	x.write("credentials", credentials)
	x.hand()
	return x
}

// credentials is a credential in the form of git's file of credentials.
const credentials = "https://someone:" + marker + "@git.example.org\n"

// newer returns configuration lines for the settings that this version has and that an older
// version may lack.
func (x *storm) newer() (lines string) {
	if has(x.api.t, "agent.max_files") {
		lines += fmt.Sprintf("  max_files: %d\n", mostInodes)
	}
	if has(x.api.t, "agent.git_credentials") {
		lines += fmt.Sprintf("  git_credentials: %s\n", x.path("credentials"))
	}
	return lines
}

// has reports whether this version of belay has a setting.
func has(t *testing.T, key string) bool {
	t.Helper()
	settings.once.Do(func() {
		out, err := exec.Command(binary(t), "serve", "--check-config").Output()
		settings.text, settings.err = string(out), err
	})
	if settings.err != nil {
		t.Fatal(settings.err)
	}
	return strings.Contains(settings.text, key+" ")
}

var settings struct {
	once sync.Once
	text string
	err  error
}

func (x *storm) write(name, text string) {
	if err := os.WriteFile(x.path(name), []byte(text), 0o600); err != nil {
		x.api.t.Fatal(err)
	}
}

// program copies a program to a place where every user may run it.
func (x *storm) program(name, from string, mode fs.FileMode) string {
	x.api.t.Helper()
	to := x.path("bin/" + name)
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, raw, 0o755)
	}
	if err == nil {
		err = os.Chmod(to, mode)
	}
	if err != nil {
		x.api.t.Fatal(err)
	}
	return to
}

// hand makes the server's user the owner of all files in the test's directory, lets every user
// enter the directories above it, and makes one directory writable for every user.
func (x *storm) hand() {
	x.api.t.Helper()
	err := filepath.WalkDir(x.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(path, x.path("bin")+"/") {
			return err
		}
		if strings.HasPrefix(path, x.path("repo")) {
			mode := fs.FileMode(0o644)
			if d.IsDir() {
				mode = 0o755
			}
			if err := os.Chmod(path, mode); err != nil {
				return err
			}
		}
		return os.Lchown(path, x.uid, x.uid)
	})
	for _, dir := range []string{x.root, filepath.Dir(x.root)} {
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
	}
	if err == nil {
		err = os.Chmod(x.path("outside"), 0o777)
	}
	if err != nil {
		x.api.t.Fatal(err)
	}
}

// as returns a belay command that runs as the server's user, in the sandbox that the test x
// examines.
func (x *storm) as(args ...string) *exec.Cmd {
	cmd := x.command(args...)
	cmd.Path, cmd.Args[0] = x.path("bin/belay"), x.path("bin/belay")
	cmd.Env = x.environment(canaryVariable+"="+marker, "DOCKER_HOST=unix://"+x.path("engine.sock"), "XDG_RUNTIME_DIR="+
		x.path("runtime"))
	cmd.Env = append(cmd.Env, x.env...)
	if x.mode.bare {
		withoutNamespaces(cmd, x.uid)
	} else if x.uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(x.uid), Gid: uint32(x.uid)}}
	}
	return cmd
}

// canaryVariable is a variable in the environment of the server. The program test/attacker looks
// for the same name.
const canaryVariable = "BELAY_WALLS_CANARY"

// another is a loopback address that no other server uses.
const another = "127.0.0.9"

// busDir makes a directory for the socket of a system service: below /run as on real machines, or,
// where that is not possible, the directory that the server's XDG_RUNTIME_DIR names.
func (x *storm) busDir() string {
	x.api.t.Helper()
	dir, err := x.path("runtime"), os.Mkdir(x.path("runtime"), 0o755)
	if os.Geteuid() == 0 && err == nil {
		dir, err = os.MkdirTemp("/run", "belay-walls-")
		x.api.t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
	}
	if err != nil {
		x.api.t.Fatal(err)
	}
	return dir
}

// ofUser reports whether the kernel names the server's user as the owner of the process at the
// other end of a socket.
func (x *storm) ofUser(c net.Conn) bool {
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return true
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cerr == nil && err == nil && int(peer.Uid) == x.uid
}

// listenStream listens on a socket that every user may reach, and records everything that it
// receives.
func (x *storm) listenStream(network, address string, heard *strings.Builder) string {
	x.api.t.Helper()
	l, err := net.Listen(network, address)
	if err == nil && network == "unix" {
		err = os.Chmod(address, 0o666)
	}
	if err != nil {
		x.api.t.Fatal(err)
	}
	x.api.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			known := heard != &x.heard.bus || x.ofUser(c)
			b := make([]byte, 1000)
			n, _ := c.Read(b)
			c.Close()
			if !known {
				continue
			}
			x.heard.Lock()
			heard.Write(b[:n])
			x.heard.Unlock()
		}
	}()
	return l.Addr().String()
}

func (x *storm) listenUDP() string {
	x.api.t.Helper()
	c, err := net.ListenPacket("udp", another+":0")
	if err != nil {
		x.api.t.Fatal(err)
	}
	x.api.t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 1000)
		for {
			n, _, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			x.heard.Lock()
			x.heard.udp.Write(b[:n])
			x.heard.Unlock()
		}
	}()
	return c.LocalAddr().String()
}

// attacking is the attacker program, built once.
var attacking struct {
	once sync.Once
	path string
	err  error
}

func attacker(t *testing.T) string {
	t.Helper()
	binary(t) // the attacker program is built into the directory of this binary, which is removed at the end
	attacking.once.Do(func() {
		attacking.path = filepath.Join(built.dir, "attacker")
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", attacking.path, "./attacker")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			attacking.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if attacking.err != nil {
		t.Fatalf("build the attacker: %v", attacking.err)
	}
	return attacking.path
}
