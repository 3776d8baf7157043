package workspace

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// sshPeer answers for a source on another machine. For each line (a socket from a keeper, the
// helper that fetches) it starts one ssh, whose output goes to the keeper unchanged. ssh uses the
// keys of this process's user.
type sshPeer struct {
	src  source
	env  []string
	stop context.CancelFunc
	ctx  context.Context
	// program is the program that ssh runs on the other machine.
	program string
	all     sync.WaitGroup

	mu   sync.Mutex
	said tail
}

func newSSHPeer(ctx context.Context, g *git, src source) *sshPeer {
	p := &sshPeer{src: src, env: append(g.environment(command{}), "GIT_PROTOCOL=version=2"),
		program: "git-upload-pack"}
	for _, name := range []string{"SSH_AUTH_SOCK", "SSH_AGENT_PID"} {
		if value, ok := os.LookupEnv(name); ok {
			p.env = append(p.env, name+"="+value)
		}
	}
	p.ctx, p.stop = context.WithCancel(ctx)
	return p
}

func (p *sshPeer) line() (*os.File, error) {
	near, far, err := newLine()
	if err != nil {
		return nil, err
	}
	p.all.Go(func() { p.answer(far) })
	return near, nil
}

// answer serves one line (a socket): far is one end of the socket, and a keeper (the helper that
// fetches) has the other end. answer waits until the keeper sends the message hello, and then
// starts ssh with far as its standard input and output.
func (p *sshPeer) answer(far *os.File) {
	defer far.Close()
	if _, err := io.ReadFull(far, make([]byte, len(hello))); err != nil {
		return
	}
	args, err := sshArguments(p.src.url, p.program)
	if err != nil {
		p.complain(err.Error())
		return
	}
	cmd := exec.CommandContext(p.ctx, "ssh", args...)
	cmd.Env, cmd.Dir = p.env, "/"
	said := &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, said
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	runtime.LockOSThread() // the kernel kills ssh when the thread that started it ends
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		text := said.text(nil)
		if text == "" {
			text = err.Error()
		}
		p.complain(text)
	}
}

func (p *sshPeer) complain(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.said.Write([]byte(text + "\n"))
}

func (p *sshPeer) end() (string, error) {
	p.stop()
	p.all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.text(nil), nil
}

// sshArguments returns the arguments with which git would start ssh to run a program for a repository.
func sshArguments(remote, program string) ([]string, error) {
	args := []string{"-oBatchMode=yes", "-oConnectTimeout=30", "-oServerAliveInterval=15", "-oSendEnv=GIT_PROTOCOL"}
	host, path, _ := strings.Cut(remote, ":")
	if rest, ok := strings.CutPrefix(remote, "ssh://"); ok {
		u, err := url.Parse("ssh://" + rest)
		if err != nil {
			return nil, errors.New("the ssh:// URL cannot be read")
		}
		host, path = u.Hostname(), u.Path
		if strings.HasPrefix(path, "/~") {
			path = path[1:]
		}
		if name := u.User.Username(); name != "" {
			host = name + "@" + host
		}
		if port := u.Port(); port != "" {
			args = append(args, "-p", port)
		}
	}
	if strings.HasPrefix(host, "-") || strings.HasPrefix(path, "-") {
		return nil, errors.New("the URL names an option of ssh")
	}
	return append(args, host, program+" "+shellQuote(path)), nil
}

// shellQuote quotes a text as one word for a shell.
func shellQuote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(s) + "'"
}
