package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"unicode"
)

// gitError is the error of a git command that failed.
type gitError struct {
	command string
	err     error
	text    string // the end of git's standard error, printable and without credentials
}

func (e *gitError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("git %s: %v", e.command, e.err)
	}
	return fmt.Sprintf("git %s: %s", e.command, e.text)
}

func (e *gitError) Unwrap() error { return e.err }

// exitCode returns the exit code of a git command that failed, or -1 if git did not exit by itself.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// bounded keeps at most limit bytes and calls full if more bytes are written.
type bounded struct {
	buf   bytes.Buffer
	limit int64
	full  func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(b.buf.Len()+len(p)) > b.limit {
		b.full()
		return 0, errLimit
	}
	return b.buf.Write(p)
}

// tail keeps the last 4096 bytes that are written to it.
type tail struct{ buf []byte }

func (t *tail) Write(p []byte) (int, error) {
	const keep = 4096
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - keep; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

var userinfo = regexp.MustCompile(`://[^/@\s]*@`)

// text returns the last three lines for an error message: joined to one line, printable, and
// without credentials.
func (t *tail) text(remote *source) string {
	s := strings.ToValidUTF8(string(t.buf), "?")
	if remote != nil {
		for _, secret := range []string{remote.password, remote.user} {
			if secret != "" {
				s = strings.ReplaceAll(s, secret, "…")
			}
		}
	}
	s = userinfo.ReplaceAllString(s, "://")
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		if line = strings.TrimSpace(printable(line)); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// printable removes characters that could control a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
