package agentapi

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// maxTold is how much of an answer that was passed on is kept, to compare another
// run's words with: more than any answer is kept of.
const maxTold = 512 << 10

// told is what was passed on of an answer as it came. Of an execution that had to begin
// its conversation anew only the newest conversation's words count; those that repeat
// what was passed on are not passed on again. The words of a run that continued a
// conversation come after those of the run before it.
type told struct {
	root belay.Token // the run that began the conversation whose words count
	run  belay.Token // whose words came last
	rest held
	text []byte // what was passed on
	at   int    // where in it the conversation is
	long bool   // more was passed on than is kept
	open bool   // if so, it does not end with a line
}

// awaited is the first run of an execution whose words may count: of those that have
// ended, only the last.
func awaited(x *belay.Execution) belay.Token {
	if x.State == belay.Running || x.State.Terminal() {
		return x.Token
	}
	return x.Token + 1
}

// add takes what a run said in the conversation that the run root began, and gives what
// of it is to be passed on. It is not same if the conversation was begun anew and goes
// otherwise than what was passed on.
func (t *told) add(run, root belay.Token, data []byte) (text string, same bool) {
	if root < t.root {
		return "", true
	}
	gap := ""
	switch {
	case root > t.root:
		t.root, t.run, t.at, t.rest = root, run, 0, held{}
		if t.long {
			return "", false
		}
	case run > t.run:
		t.run, t.rest = run, held{}
		if t.long && t.open || !t.long && t.at > 0 && t.text[t.at-1] != '\n' {
			gap = "\n\n"
		}
	}
	said := t.rest.take(data)
	if said == "" {
		return "", true
	}
	said = gap + said
	repeated := min(len(said), len(t.text)-t.at)
	if string(t.text[t.at:t.at+repeated]) != said[:repeated] {
		return "", false
	}
	t.at += repeated
	if said = said[repeated:]; said == "" {
		return "", true
	}
	t.open = said[len(said)-1] != '\n'
	if t.long = t.long || len(t.text)+len(said) > maxTold; !t.long {
		t.text = append(t.text, said...)
		t.at = len(t.text)
	}
	return said, true
}

// end gives what is missing of the whole answer.
func (t *told) end(answer string) (rest string, same bool) {
	if t.long {
		return "", true
	}
	rest, _ = strings.CutPrefix(answer, string(t.text))
	if len(rest) == len(answer) && len(t.text) > 0 {
		rest = "" // it is the last of what was said
	}
	return rest, t.at == len(t.text)
}

// held keeps the beginning of a character until the rest of it is there.
type held struct{ rest []byte }

func (h *held) take(p []byte) string {
	b := slices.Concat(h.rest, p)
	whole := len(b)
	for i := 1; i <= min(utf8.UTFMax, len(b)); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				whole = len(b) - i
			}
			break
		}
	}
	h.rest = append([]byte(nil), b[whole:]...)
	return agent.Shown(string(b[:whole]))
}
