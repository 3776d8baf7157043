package agentapi

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// maxTold bounds, in bytes, the sent text that is kept for comparison with the words of another
// run. It is more than the longest answer that is stored.
const maxTold = 512 << 10

// sentText is the part of a streamed answer that was sent. If an execution had to begin its
// conversation again, only the words of the newest conversation count, and those that repeat the
// sent text are not sent again. The words of a run that continues a conversation follow those of
// the run before it.
type sentText struct {
	root belay.Token // the run that began the conversation whose words count
	run  belay.Token // the run whose words came last
	rest partialRune
	text []byte // the sent text
	at   int    // the position of the conversation in text
	long bool   // text is incomplete, since more than maxTold was sent
	open bool   // with long: the sent text does not end with a newline
}

// awaited returns the first run of an execution whose words may be sent: of the runs that have
// ended, only the last counts.
func awaited(x *belay.Execution) belay.Token {
	if x.State == belay.Running || x.State.Terminal() {
		return x.Token
	}
	return x.Token + 1
}

// add takes words of a run, in the conversation that the run root began, and returns the part to
// send. same is false if the conversation was begun again and differs from the sent text.
func (t *sentText) add(run, root belay.Token, data []byte) (text string, same bool) {
	if root < t.root {
		return "", true
	}
	gap := ""
	switch {
	case root > t.root:
		t.root, t.run, t.at, t.rest = root, run, 0, partialRune{}
		if t.long {
			return "", false
		}
	case run > t.run:
		t.run, t.rest = run, partialRune{}
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

// end returns the part of the whole answer that was not sent.
func (t *sentText) end(answer string) (rest string, same bool) {
	if t.long {
		return "", true
	}
	rest, _ = strings.CutPrefix(answer, string(t.text))
	if len(rest) == len(answer) && len(t.text) > 0 {
		rest = "" // the answer is the last part of the sent text
	}
	return rest, t.at == len(t.text)
}

// partialRune keeps an incomplete character at the end of a text until its rest arrives.
type partialRune struct{ rest []byte }

func (h *partialRune) take(p []byte) string {
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
