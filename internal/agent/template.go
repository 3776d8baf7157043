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
	// placeholder stands for the prompt.
	placeholder = "{{prompt}}"
	// sessionPlace stands for the id of the conversation, a UUID.
	sessionPlace = "{{session}}"
)

const (
	// maxArgument is the longest argument of a program on Linux, in bytes, without the NUL at its
	// end.
	maxArgument = 128<<10 - 1
	// maxStdin bounds a prompt that goes to standard input, in bytes, so that it fits into an
	// execution's input even when escaped.
	maxStdin = 512 << 10
)

// Template is the command of an agent: arguments in which {{prompt}} stands for the prompt and
// {{session}} for the id of the conversation. A prompt may be hostile. It becomes a part of one
// argument or, if no argument has a {{prompt}}, the standard input; no shell ever reads it.
type Template []string

// Check refuses a template that cannot be run.
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

// shells are the programs that take a script after -c.
var shells = []string{"sh", "ash", "bash", "dash", "fish", "ksh", "mksh", "zsh"}

// shelled reports whether the prompt would be a part of a shell's script.
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

// piped reports whether the prompt goes to standard input.
func (t Template) piped() bool {
	return !slices.ContainsFunc(t, func(a string) bool { return strings.Contains(a, placeholder) })
}

// MaxPrompt returns the longest prompt, in bytes.
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

// CheckPrompt refuses a prompt that cannot be passed to the command.
func (t Template) CheckPrompt(prompt string) error {
	switch {
	case strings.TrimSpace(prompt) == "":
		return invalid("the prompt is empty")
	case strings.ContainsRune(prompt, 0) || !utf8.ValidString(prompt):
		return invalid("the prompt is not valid text: it has a NUL character, or is not UTF-8")
	}
	size := len(prompt)
	if text, err := json.Marshal(prompt); err == nil {
		size = max(size, len(text)-maxStdin) // the additional bytes of escaping must fit as well
	}
	if most := t.MaxPrompt(); size > most {
		return &belay.Error{
			Code: belay.CodePayloadTooLarge, Message: fmt.Sprintf("the prompt has %d bytes; the limit is %d",
				len(prompt), most),
		}
	}
	return nil
}

// Fill replaces the placeholders. A prompt that begins with a dash gets a space before it where it
// begins an argument and there is no -- before: otherwise the command would take it for an option.
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

// Continue is Fill for a command that continues a conversation. The agent knows the prompt already,
// so the command gets it only where {{prompt}} stands, and never on standard input.
func (t Template) Continue(prompt, session string) []string {
	argv, _ := t.Fill(prompt, session)
	return argv
}

// The forms of an agent's output.
const (
	// OutputAuto detects the form by the first line: an object with a type is stream-json.
	OutputAuto = "auto"
	// OutputPlain uses the standard output as the answer.
	OutputPlain = "plain"
	// OutputStreamJSON reads a JSON object from each line.
	OutputStreamJSON = "stream-json"
)

// lines splits its input into lines, without their ends. A line longer than most is split into
// pieces; whole says whether a call passes a whole line.
type lines struct {
	most int
	each func(line []byte, whole bool)
	rest []byte
	long bool // rest continues a line of which a piece was passed on already
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

// end passes on a last line without end.
func (l *lines) end() {
	if len(l.rest) > 0 {
		l.each(l.rest, !l.long)
		l.rest = nil
	}
}
