package agentapi

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// maxTold is the maximum size, in bytes, of the sent text that the server keeps to compare it with
// the output of another run. The maximum is larger than the longest answer that can be stored.
const maxTold = 512 << 10

// sentText is the part of a streamed answer that was already sent. If a run began a new
// conversation, the output of that conversation must begin with the sent text; this beginning is
// not sent a second time, and output of earlier conversations is not sent any more. If a run
// continued a conversation, the run's output is sent after the output of the previous run.
type sentText struct {
	root belay.Token // the run that began the newest conversation
	run  belay.Token // the run whose output came last
	rest partialRune
	text []byte // the sent text
	at   int    // the position in text up to which the conversation has repeated it
	long bool   // text is incomplete, because more than maxTold bytes were sent
	open bool   // if long is set: the sent text does not end with a newline
}

// awaited returns the earliest run whose output a chat sends. If the execution runs or has ended,
// this is the last run; otherwise it is the next run, because the output of the ended runs is not
// sent.
func awaited(x *belay.Execution) belay.Token {
	if x.State == belay.Running || x.State.Terminal() {
		return x.Token
	}
	return x.Token + 1
}

// add takes a part of a run's output and returns the text to send. root is the run that began the
// conversation of that run. same is false if the output of a new conversation differs from the text
// that was already sent.
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

// end returns the part of the whole answer that was not sent yet. same is false if the newest
// conversation has ended before it repeated all of the text that was already sent.
func (t *sentText) end(answer string) (rest string, same bool) {
	if t.long {
		return "", true
	}
	rest, _ = strings.CutPrefix(answer, string(t.text))
	if len(rest) == len(answer) && len(t.text) > 0 {
		rest = "" // the answer is the end of the sent text
	}
	return rest, t.at == len(t.text)
}

// partialRune keeps an incomplete character at the end of a text until its remaining bytes arrive.
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
