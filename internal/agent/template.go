package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

const (
	// placeholder is the text in a template that is replaced by the prompt.
	placeholder = "{{prompt}}"
	// sessionPlace is the text in a template that is replaced by the id of the conversation, a UUID.
	sessionPlace = "{{session}}"
)

const (
	// maxArgument is the maximum size of an argument of a program on Linux, in bytes, without the
	// NUL at the end.
	maxArgument = 128<<10 - 1
	// maxStdin is the maximum size, in bytes, of a prompt that the command reads from standard
	// input, so that the prompt fits into an execution's input even after JSON escaping.
	maxStdin = 512 << 10
)

// Template is the command of an agent: arguments in which {{prompt}} stands for the prompt and
// {{session}} for the id of the conversation. A prompt may be hostile. The prompt becomes a part of
// one argument or, if no argument has {{prompt}}, the standard input. No shell ever interprets it.
type Template []string

// Check returns an error for a template that cannot be run or is unsafe.
func (t Template) Check() error {
	if len(t) == 0 || strings.TrimSpace(t[0]) == "" {
		return invalid("the agent's command is empty")
	}
	if strings.Contains(t[0], placeholder) {
		return invalid("the agent's command must not be chosen by the prompt: %s is in its name", placeholder)
	}
	for _, a := range t {
		if strings.ContainsRune(a, 0) || !utf8.ValidString(a) {
			return invalid("an argument of the agent's command is not valid text")
		}
	}
	if t.shelled() {
		return invalid(`a shell would read the prompt as a part of its script: write "$1" there and give the prompt as an argument of its own, as in sh -c 'agent "$1"' sh %s`, placeholder)
	}
	return nil
}

// shells are the programs that execute a script given after -c.
var shells = []string{"sh", "ash", "bash", "dash", "fish", "ksh", "mksh", "zsh"}

// shelled reports whether the prompt would become a part of a script that a shell executes.
func (t Template) shelled() bool {
	shell := false
	for i, a := range t {
		if shell && strings.Contains(a, placeholder) && strings.HasPrefix(t[i-1], "-") &&
			strings.HasSuffix(t[i-1], "c") {
			return true
		}
		shell = shell || slices.Contains(shells, path.Base(a))
	}
	return false
}

// piped reports whether the command reads the prompt from standard input.
func (t Template) piped() bool {
	return !slices.ContainsFunc(t, func(a string) bool { return strings.Contains(a, placeholder) })
}

// MaxPrompt returns the maximum size of a prompt, in bytes.
func (t Template) MaxPrompt() int {
	if t.piped() {
		return maxStdin
	}
	most := maxArgument
	for _, a := range t {
		if n := strings.Count(a, placeholder); n > 0 {
			most = min(most, (maxArgument-1-len(a)+n*len(placeholder))/n)
		}
	}
	return max(most, 0)
}

// CheckPrompt returns an error for a prompt that cannot be passed to the command.
func (t Template) CheckPrompt(prompt string) error {
	switch {
	case strings.TrimSpace(prompt) == "":
		return invalid("the prompt is empty")
	case strings.ContainsRune(prompt, 0) || !utf8.ValidString(prompt):
		return invalid("the prompt is not valid text: it has a NUL character, or is not UTF-8")
	}
	size := len(prompt)
	if text, err := json.Marshal(prompt); err == nil {
		size = max(size, len(text)-maxStdin) // the additional bytes of JSON escaping must fit into the input too
	}
	if most := t.MaxPrompt(); size > most {
		return &belay.Error{
			Code: belay.CodePayloadTooLarge, Message: fmt.Sprintf("the prompt has %d bytes; the limit is %d",
				len(prompt), most),
		}
	}
	return nil
}

// Fill replaces the placeholders. If a prompt begins with a dash, stands at the beginning of an
// argument, and no earlier argument is --, Fill puts a space before the prompt, because the command
// would otherwise interpret it as an option.
func (t Template) Fill(prompt, session string) (argv []string, stdin []byte) {
	safe := !strings.HasPrefix(prompt, "-")
	for _, a := range t {
		text := prompt
		if !safe && strings.HasPrefix(a, placeholder) {
			text = " " + prompt
		}
		argv = append(argv, strings.NewReplacer(placeholder, text, sessionPlace, session).Replace(a))
		safe = safe || a == "--"
	}
	if t.piped() {
		stdin = []byte(prompt)
	}
	return argv, stdin
}

// Continue fills the template of a command that continues a conversation. The agent already knows
// the prompt, so Continue passes it only where the template has {{prompt}}, and never on standard
// input.
func (t Template) Continue(prompt, session string) []string {
	argv, _ := t.Fill(prompt, session)
	return argv
}

// The forms of an agent's output.
const (
	// OutputAuto detects the form by the first line: a JSON object with a type means stream-json.
	OutputAuto = "auto"
	// OutputPlain means that the standard output is the answer.
	OutputPlain = "plain"
	// OutputStreamJSON means that each line of the output is a JSON object.
	OutputStreamJSON = "stream-json"
)

// lines splits its input into lines without the newlines and passes them to each. It passes a line
// of more than most bytes in pieces; whole says whether each got a complete line.
type lines struct {
	most int
	each func(line []byte, whole bool)
	rest []byte
	long bool // each already got a piece of the line to which rest belongs
}

func (l *lines) write(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i >= 0 {
			l.rest = append(l.rest, p[:i]...)
			p = p[i+1:]
			l.each(l.rest, !l.long)
			l.rest, l.long = l.rest[:0], false
			continue
		}
		room := min(len(p), l.most-len(l.rest))
		l.rest = append(l.rest, p[:room]...)
		p = p[room:]
		if len(l.rest) == l.most {
			l.each(l.rest, false)
			l.rest, l.long = l.rest[:0], true
		}
	}
}

// end passes the last line to each if that line has no newline.
func (l *lines) end() {
	if len(l.rest) > 0 {
		l.each(l.rest, !l.long)
		l.rest = nil
	}
}
