package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/belaydev/belay/internal/secret"
)

// Opener is the operator's command that runs after a push, such as a command that opens a pull
// request: arguments with placeholders. It runs on the worker as the worker's user, outside of any
// sandbox, and no shell reads it.
type Opener []string

// places are the placeholders of an Opener.
var places = []string{"{{branch}}", "{{base}}", "{{title}}", "{{repo}}", jobPlace, "{{commit}}"}

const (
	// openTimeout is the time limit of the command, and maxOpenOutput the number of bytes of its
	// output that Belay reads.
	openTimeout   = 2 * time.Minute
	maxOpenOutput = 64 << 10
)

// Check returns an error for a command that cannot be run or is unsafe.
func (o Opener) Check() error {
	if len(o) == 0 {
		return nil
	}
	if strings.TrimSpace(o[0]) == "" || strings.Contains(o[0], "{{") {
		return invalid("agent.push_open: the first argument is the program, and has no placeholder")
	}
	for _, a := range o {
		if strings.ContainsRune(a, 0) || !utf8.ValidString(a) {
			return invalid("agent.push_open: an argument is not valid text")
		}
		rest := a
		for _, p := range places {
			rest = strings.ReplaceAll(rest, p, "")
		}
		if strings.Contains(rest, "{{") {
			return invalid("agent.push_open: the argument %q has an unknown placeholder; there are %s", a,
				strings.Join(places, ", "))
		}
	}
	// a shell would read a placeholder in its script as a part of the script
	t := make(Template, len(o))
	for i, a := range o {
		for _, p := range places {
			a = strings.ReplaceAll(a, p, placeholder)
		}
		t[i] = a
	}
	if t.shelled() {
		return invalid(`agent.push_open: a shell would read a placeholder as a part of its script: write "$1" there ` +
			`and give the placeholder as an argument of its own, as in sh -c 'open-pr "$1"' sh {{branch}}`)
	}
	return nil
}

// fill replaces the placeholders. A value that begins with a dash at the beginning of an argument
// would be an option, so it gets a space before it.
func (o Opener) fill(values map[string]string) []string {
	argv := make([]string, 0, len(o))
	for _, a := range o {
		var pairs []string
		for place, value := range values {
			if strings.HasPrefix(a, place) && strings.HasPrefix(value, "-") {
				value = " " + value
			}
			pairs = append(pairs, place, strings.ReplaceAll(value, "\x00", ""))
		}
		argv = append(argv, strings.NewReplacer(pairs...).Replace(a))
	}
	return argv
}

// head keeps the first bytes that are written to it.
type head struct{ buf bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.buf.Write(p[:min(len(p), maxOpenOutput-h.buf.Len())])
	return len(p), nil
}

// run runs the command with the environment env and PATH, in an empty directory that is also its
// HOME. It returns the first line of its output that is an address.
func (o Opener) run(ctx context.Context, env, values map[string]string) (string, error) {
	dir, err := os.MkdirTemp("", "belay-open-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("it took longer than %s", openTimeout))
	defer cancel()
	argv := o.fill(values)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C.UTF-8"}
	for _, name := range []string{"https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	var hidden []secret.Hidden
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
		if len(value) >= minHidden {
			hidden = append(hidden, secret.Hidden{Name: name, Value: secret.Text(value)})
		}
	}
	hider := secret.NewHider(hidden)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, said head
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		lines := strings.Fields(hider.Text(said.buf.String()))
		text := strings.Join(lines, " ")
		return "", fmt.Errorf("%s: %w: %s", argv[0], err, text[:min(len(text), 1000)])
	}
	for line := range strings.Lines(out.buf.String()) {
		if address := strings.TrimSpace(line); isAddress(address) && hider.Text(address) == address {
			return address, nil
		}
	}
	return "", errors.New(argv[0] + " has printed no address")
}

// isAddress reports whether a line is the address of a page, without a password.
func isAddress(line string) bool {
	u, err := url.Parse(line)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		len(line) <= 2048 && !strings.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r == 0x7f || r > 0x7e })
}
