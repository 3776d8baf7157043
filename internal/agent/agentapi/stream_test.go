package agentapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// Rule: output is sent as the data of a single event, whatever bytes it contains: it can neither
// end that event nor begin another.
func TestEventsAreFramed(t *testing.T) {
	w := httptest.NewRecorder()
	s := New(nil, Options{}).stream(w)
	s.event("output", "1.0.0", Output{"a\n\nevent: end\r\ndata: x\u2028\x1b[2J"})
	s.event("", "", Output{"b"})
	s.ping()
	want := "event: output\nid: 1.0.0\ndata: {\"text\":\"a\\n\\nevent: end\\r\\ndata: " +
		"x\\u2028\\u001b[2J\"}\n\ndata: {\"text\":\"b\"}\n\n: ping\n\n"
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Error(diff)
	}
	if h := w.Header(); h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" {
		t.Errorf("%v", h)
	}
}

// Rule: only whole characters are sent, even if the parts of the output split a character. Invalid
// bytes and NUL are replaced.
func TestOutputIsSentInWholeCharacters(t *testing.T) {
	const text = "früh \xff 𝄞 \x00."
	for size := 1; size <= len(text); size++ {
		var h partialRune
		var got strings.Builder
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			got.WriteString(h.take([]byte(rest[:n])))
			rest = rest[n:]
		}
		if got.String() != "früh \uFFFD 𝄞 \uFFFD." {
			t.Errorf("%d bytes at a time: %q", size, got.String())
		}
	}
}

// Rule: if a run began a new conversation, only the output of that conversation is sent, without
// its beginning that repeats the sent text; a difference from the sent text is detected. If a run
// continued a conversation, its output follows the earlier output.
func TestSentTextIsNotRepeated(t *testing.T) {
	type words struct {
		run, root belay.Token
		said      string
	}
	for _, c := range []struct {
		name   string
		first  belay.Token
		words  []words
		answer string
		want   string
		same   bool
	}{
		{"one run", 1, []words{{1, 1, "one\n"}, {1, 1, "two\n"}}, "one\ntwo\n", "one\ntwo\n", true},
		{"the rest is in the answer", 1, []words{{1, 1, "one\n"}}, "one\ntwo\n", "one\ntwo\n", true},
		{"nothing came", 1, nil, "all", "all", true},
		{"the answer is the last of it", 1, []words{{1, 1, "I look.\n\n42"}}, "42", "I look.\n\n42", true},
		{"an earlier run", 2, []words{{1, 1, "one\n"}, {2, 2, "one\n"}, {2, 2, "two\n"}}, "one\ntwo\n", "one\ntwo\n",
			true},
		{"again", 1, []words{{1, 1, "one\n"}, {2, 2, "o"}, {2, 2, "ne\ntwo\n"}}, "one\ntwo\n", "one\ntwo\n", true},
		{"again, and otherwise", 1, []words{{1, 1, "one\n"}, {2, 2, "two\n"}}, "", "one\n", false},
		{"again, and less", 1, []words{{1, 1, "one\ntwo\n"}, {2, 2, "one\n"}}, "one\n", "one\ntwo\n", false},
		{"again, after too much", 1, []words{
			{1, 1, strings.Repeat("x", maxTold+1)}, {2, 2, "x"},
		}, "", strings.Repeat("x", maxTold+1), false},
		{"too much", 1, []words{
			{1, 1, strings.Repeat("x", maxTold)}, {1, 1, "y"}, {1, 1, "z"},
		}, "yz", strings.Repeat("x", maxTold) + "yz", true},
		{"half a character", 1, []words{{1, 1, "\xc3"}, {2, 2, "\xc3"}, {2, 2, "\xbc"}}, "ü", "ü", true},
		{"continued", 1, []words{{1, 1, "I loo"}, {2, 1, "I look."}, {2, 1, "\n\n42"}}, "42", "I loo\n\nI look.\n\n42",
			true},
		{"continued after a line", 1, []words{{1, 1, "one\n"}, {2, 1, "two\n"}}, "two\n", "one\ntwo\n", true},
		{"continued from the start", 1, []words{{2, 1, "one"}}, "one", "one", true},
		{"continued twice", 1, []words{{1, 1, "a"}, {2, 1, "b"}, {5, 1, "c"}}, "c", "a\n\nb\n\nc", true},
		{"continued after too much", 1, []words{
			{1, 1, strings.Repeat("x", maxTold+1)}, {2, 1, "y"},
		}, "y", strings.Repeat("x", maxTold+1) + "\n\ny", true},
		{"continued, then again", 1, []words{{1, 1, "a"}, {2, 1, "b"}, {3, 3, "a\n\nb\n\nc"}}, "c", "a\n\nb\n\nc",
			true},
		{"again, and continued", 1, []words{{1, 1, "a\nb\n"}, {2, 2, "a\n"}, {3, 2, "b\nc\n"}}, "c\n", "a\nb\nc\n",
			true},
	} {
		told, got, same := sentText{root: c.first}, "", true
		for _, w := range c.words {
			if same {
				var text string
				text, same = told.add(w.run, w.root, []byte(w.said))
				got += text
			}
		}
		if same {
			var rest string
			rest, same = told.end(c.answer)
			if same {
				got += rest
			}
		}
		if got != c.want || same != c.same {
			t.Errorf("%s: %.40q, %v", c.name, got, same)
		}
	}
	for state, want := range map[belay.State]belay.Token{belay.Running: 7, belay.Succeeded: 7, belay.Failed: 7,
		belay.Pending: 8, belay.Waiting: 8} {
		if got := awaited(&belay.Execution{State: state, Token: 7}); got != want {
			t.Errorf("of a %s job run %d counts", state, got)
		}
	}
}

// Rule: root returns the run that began a conversation, even if several later runs have continued
// it.
func TestTheRootOfAConversation(t *testing.T) {
	run := func(token belay.Token, continued bool) startedRun {
		return startedRun{Token: token, Phase: agent.Phase{Continued: continued}}
	}
	all := []startedRun{run(1, false), run(3, true), run(4, true), run(6, false), run(9, true)}
	for of, want := range map[belay.Token]belay.Token{1: 1, 3: 1, 4: 1, 6: 6, 9: 6, 2: 1, 20: 6} {
		if got := root(all, of); got != want {
			t.Errorf("run %d belongs to the conversation of %d, want %d", of, got, want)
		}
	}
	if got := root(nil, 5); got != 5 {
		t.Errorf("of an unknown run: %d", got)
	}
}

// Rule: a chat that joins an interrupted job gets the output of all runs of the newest
// conversation, and no output of an earlier conversation.
func TestAChatJoinsAConversation(t *testing.T) {
	for continued, want := range map[bool]string{true: "one\n\ntwo", false: "two"} {
		store := &logs{
			chunks: map[string][]string{
				agent.AnswerLog: {"one", "two"}, agent.PhaseLog: {"{}\n", fmt.Sprintf("{\"continued\":%v}\n",
					continued)},
			},
			tokens: []belay.Token{1, 2}, output: `{"text":"two"}`,
		}
		w := httptest.NewRecorder()
		d := &endpoint{Service: New(store, Options{ChatTimeout: time.Minute})}
		c := &chat{
			endpoint: d, w: w, r: httptest.NewRequest("POST", "/v1/chat/completions", nil),
			over: d.o.Now().Add(time.Minute), keyed: true, form: &completions{},
		}
		c.stream(t.Context())
		var got string
		for _, line := range strings.Split(w.Body.String(), "\n") {
			var piece Completion
			data, is := strings.CutPrefix(line, "data: ")
			if is && json.Unmarshal([]byte(data), &piece) == nil && len(piece.Choices) == 1 &&
				piece.Choices[0].Delta != nil && piece.Choices[0].Delta.Content != nil {
				got += *piece.Choices[0].Delta.Content
			}
		}
		if got != want || !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") {
			t.Errorf("continued %v: the chat got %q: %s", continued, got, w.Body)
		}
	}
}

// logs is a Backend in which every execution has ended and has the same logs. Chunk n of a log
// belongs to the run tokens[n].
type logs struct {
	belay.Client
	chunks map[string][]string
	tokens []belay.Token // if nil, all chunks belong to run 1
	output string
}

func (l *logs) Execution(_ context.Context, id belay.ExecutionID) (belay.Execution, error) {
	x := belay.Execution{
		ID: id, Workflow: agent.Prompted, State: belay.Succeeded, Token: 1, Output: json.RawMessage(l.output),
	}
	if len(l.tokens) > 0 {
		x.Token = l.tokens[len(l.tokens)-1]
	}
	return x, nil
}

func (l *logs) Await(ctx context.Context, id belay.ExecutionID, _ time.Duration) (belay.Execution, error) {
	return l.Execution(ctx, id)
}

func (l *logs) Chunks(_ context.Context, q belay.ChunkQuery) (page []belay.StoredChunk, err error) {
	for n, data := range l.chunks[q.Name] {
		if int64(n) >= q.From && len(page) < q.Limit {
			c := belay.StoredChunk{N: int64(n), Token: 1, Data: []byte(data)}
			if len(l.tokens) > 0 {
				c.Token = l.tokens[n]
			}
			page = append(page, c)
		}
	}
	return page, nil
}

// Rule: a client that resumes after any event of a log gets every later event exactly once.
func TestLogResumesAfterAnyEvent(t *testing.T) {
	store := &logs{chunks: map[string][]string{
		agent.OutputLog: {"fr\xc3", "\xbch\n", "spät"},
		agent.ProgressLog: {"{\"kind\":\"a\"}\n{\"kind\":\"b\"}\n{\"ki", "nd\":\"c\"}\n{\"kind\":\"d\"}\n",
			"broken\n{\"kind\":\"e\"}\n{\"kind\":"},
	}}
	follow := func(last string) (text string, kinds, ids []string) {
		r := httptest.NewRequest("GET", "/jobs/x/log", nil)
		r.SetPathValue("id", "ex_00000000000000000000000000")
		r.Header.Set("Last-Event-ID", last)
		w := httptest.NewRecorder()
		(&endpoint{Service: New(store, Options{})}).follow(w, r)
		for _, frame := range strings.Split(w.Body.String(), "\n\n") {
			var id, data string
			for _, l := range strings.Split(frame, "\n") {
				if field, value, _ := strings.Cut(l, ": "); field == "id" {
					id = value
				} else if field == "data" {
					data = value
				}
			}
			var out, kind string
			if n, _ := fmt.Sscanf(data, `{"text":%q}`, &out); n == 1 {
				text += out
			} else if n, _ := fmt.Sscanf(data, `{"kind":%q}`, &kind); n == 1 {
				kinds = append(kinds, kind)
			} else {
				continue
			}
			ids = append(ids, id)
		}
		if !strings.Contains(w.Body.String(), "event: end\n") {
			t.Errorf("from %q there is no end: %s", last, w.Body)
		}
		return text, kinds, ids
	}
	text, kinds, ids := follow("")
	if text != "früh\nspät" || strings.Join(kinds, "") != "abcde" || len(ids) != 8 {
		t.Fatalf("%q, %v, %v", text, kinds, ids)
	}
	for i, id := range ids {
		rest, more, later := follow(id)
		seen := len(kinds) - len(more)
		if !slices.Equal(ids[i+1:], later) || strings.Join(kinds[seen:], "") != strings.Join(more, "") ||
			!strings.HasSuffix(text, rest) {
			t.Errorf("from %s: %q, %v, %v", id, rest, more, later)
		}
	}
}

// Rule: an invalid Last-Event-ID is refused. If it names more lines than a chunk has, the server
// does not loop over the missing lines.
func TestInvalidPositionsAreRefused(t *testing.T) {
	for _, text := range []string{"x", "1", "1.2", "1.2.3.4.5", "-1.0.0", "1.+2.3", "1.2.99999999999999999999",
		" 1.2.3", "1.2.3\n"} {
		if _, err := positionOf(text); belay.CodeOf(err) != belay.CodeMalformed {
			t.Errorf("%q: %v", text, err)
		}
	}
	f := &follower{
		endpoint: &endpoint{Service: New(nil, Options{})},
		out:      New(nil, Options{}).stream(httptest.NewRecorder()),
		at:       position{lines: 1<<63 - 1}}
	if !f.sendProgress(belay.StoredChunk{Data: []byte("{}\n")}) {
		t.Error("the stream ended")
	}
}
