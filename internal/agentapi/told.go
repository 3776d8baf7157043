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

// told is what was passed on of an answer as it came. Of an execution that had to
// run again only the newest run's words count; those that repeat what was passed on
// are not passed on again.
type told struct {
	run  belay.Token // whose words count
	rest held
	text []byte // what was passed on
	at   int    // where in it the run is
	long bool   // more was passed on than is kept
}

// current is the run of an execution whose words count: none that has ended, unless
// it is the last.
func current(x *belay.Execution) belay.Token {
	if x.State == belay.Running || x.State.Terminal() {
		return x.Token
	}
	return x.Token + 1
}

// add takes what a run said and gives what of it is to be passed on. It is not same
// if the run says something else than what was passed on.
func (t *told) add(run belay.Token, data []byte) (text string, same bool) {
	if run < t.run {
		return "", true
	}
	if run > t.run {
		t.run, t.at, t.rest = run, 0, held{}
		if t.long {
			return "", false
		}
	}
	said := t.rest.take(data)
	repeated := min(len(said), len(t.text)-t.at)
	if string(t.text[t.at:t.at+repeated]) != said[:repeated] {
		return "", false
	}
	t.at += repeated
	if said = said[repeated:]; said == "" {
		return "", true
	}
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
