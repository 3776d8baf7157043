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
	// maxArgument is the most bytes that one argument of a program may have on
	// Linux, the NUL at its end left out.
	maxArgument = 128<<10 - 1
	// maxStdin bounds a prompt that goes to standard input, so that it fits into
	// an execution's input however it is escaped.
	maxStdin = 512 << 10
)

// Template is the command of an agent: arguments in which {{prompt}} stands for the
// prompt and {{session}} for the id of the conversation. A prompt is written by others
// and may be hostile: it becomes a part of one argument, or the standard input where no
// argument has its place, and no shell ever reads it.
type Template []string

// Check refuses what could not be run.
func (t Template) Check() error {
	if len(t) == 0 || strings.TrimSpace(t[0]) == "" {
		return invalid("the agent's command is empty")
	}
	if strings.Contains(t[0], placeholder) {
		return invalid("the agent's command must not be chosen by the prompt: %s stands in its name", placeholder)
	}
	for _, a := range t {
		if strings.ContainsRune(a, 0) || !utf8.ValidString(a) {
			return invalid("an argument of the agent's command is no text")
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

// MaxPrompt is the most bytes that a prompt may have.
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

// CheckPrompt refuses what could not be handed to the command.
func (t Template) CheckPrompt(prompt string) error {
	switch {
	case strings.TrimSpace(prompt) == "":
		return invalid("the prompt is empty")
	case strings.ContainsRune(prompt, 0) || !utf8.ValidString(prompt):
		return invalid("the prompt is no text: it holds a NUL character, or is not UTF-8")
	}
	size := len(prompt)
	if text, err := json.Marshal(prompt); err == nil {
		size = max(size, len(text)-maxStdin) // what escaping adds must fit as well
	}
	if most := t.MaxPrompt(); size > most {
		return &belay.Error{
			Code: belay.CodePayloadTooLarge, Message: fmt.Sprintf("the prompt has %d bytes; the limit is %d",
				len(prompt), most),
		}
	}
	return nil
}

// Fill puts the prompt and the session in their places. A prompt that begins with a
// dash is given a space before it where it would be a whole argument and no -- stands
// before that: otherwise the command would take it for an option.
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

// Continue is Fill for a command that continues a conversation, which knows the prompt:
// it gets it where {{prompt}} stands, and never on standard input.
func (t Template) Continue(prompt, session string) []string {
	argv, _ := t.Fill(prompt, session)
	return argv
}

// The forms of an agent's output.
const (
	// OutputAuto decides by the first line: an object with a type is stream-json.
	OutputAuto = "auto"
	// OutputPlain takes standard output for the answer.
	OutputPlain = "plain"
	// OutputStreamJSON reads a JSON object a line.
	OutputStreamJSON = "stream-json"
)

// lines cuts what is written into lines, without their ends. A line that is
// longer than most is cut into pieces, whole says which are whole lines.
type lines struct {
	most int
	each func(line []byte, whole bool)
	rest []byte
	long bool // rest goes on with a line of which a piece was given already
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

// end gives what has no end of line.
func (l *lines) end() {
	if len(l.rest) > 0 {
		l.each(l.rest, !l.long)
		l.rest = nil
	}
}
