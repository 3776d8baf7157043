package agentapi

import (
	"context"
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

// Whatever an agent writes is the data of one event: it begins no line of its own
// and ends none.
func TestEventsAreFramed(t *testing.T) {
	w := httptest.NewRecorder()
	s := New(nil, Options{}).stream(w)
	s.event("output", "1.0.0", Output{"a\n\nevent: end\r\ndata: x\u2028\x1b[2J"})
	s.event("", "", Output{"b"})
	s.ping()
	want := "event: output\nid: 1.0.0\ndata: {\"text\":\"a\\n\\nevent: end\\r\\ndata: x\\u2028\\u001b[2J\"}\n\ndata: {\"text\":\"b\"}\n\n: ping\n\n"
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Error(diff)
	}
	if h := w.Header(); h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" {
		t.Errorf("%v", h)
	}
}

// What was written is shown in whole characters, however it is cut into pieces;
// what is none, and NUL, is marked.
func TestCharactersAreHeldTogether(t *testing.T) {
	const text = "früh \xff 𝄞 \x00."
	for size := 1; size <= len(text); size++ {
		var h held
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

// Of an execution that ran again only the newest run's words are passed on, and what
// was passed on before is not repeated; where they differ it is known.
func TestWhatWasToldIsNotRepeated(t *testing.T) {
	type words struct {
		run  belay.Token
		said string
	}
	for _, c := range []struct {
		name   string
		first  belay.Token
		words  []words
		answer string
		want   string
		same   bool
	}{
		{"one run", 1, []words{{1, "one\n"}, {1, "two\n"}}, "one\ntwo\n", "one\ntwo\n", true},
		{"the rest is in the answer", 1, []words{{1, "one\n"}}, "one\ntwo\n", "one\ntwo\n", true},
		{"nothing came", 1, nil, "all", "all", true},
		{"the answer is the last of it", 1, []words{{1, "I look.\n\n42"}}, "42", "I look.\n\n42", true},
		{"an earlier run", 2, []words{{1, "one\n"}, {2, "one\n"}, {2, "two\n"}}, "one\ntwo\n", "one\ntwo\n", true},
		{"again", 1, []words{{1, "one\n"}, {2, "o"}, {2, "ne\ntwo\n"}}, "one\ntwo\n", "one\ntwo\n", true},
		{"again, and otherwise", 1, []words{{1, "one\n"}, {2, "two\n"}}, "", "one\n", false},
		{"again, and less", 1, []words{{1, "one\ntwo\n"}, {2, "one\n"}}, "one\n", "one\ntwo\n", false},
		{"again, after too much", 1, []words{{1, strings.Repeat("x", maxTold+1)}, {2, "x"}}, "", strings.Repeat("x", maxTold+1), false},
		{"too much", 1, []words{{1, strings.Repeat("x", maxTold)}, {1, "y"}, {1, "z"}}, "yz", strings.Repeat("x", maxTold) + "yz", true},
		{"half a character", 1, []words{{1, "\xc3"}, {2, "\xc3"}, {2, "\xbc"}}, "ü", "ü", true},
	} {
		told, got, same := told{run: c.first}, "", true
		for _, w := range c.words {
			if same {
				var text string
				text, same = told.add(w.run, []byte(w.said))
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
	for state, want := range map[belay.State]belay.Token{belay.Running: 7, belay.Succeeded: 7, belay.Failed: 7, belay.Pending: 8, belay.Waiting: 8} {
		if got := current(&belay.Execution{State: state, Token: 7}); got != want {
			t.Errorf("of one that is %s run %d counts", state, got)
		}
	}
}

// logs is a Backend of which every execution has ended and has these logs.
type logs struct {
	belay.Client
	chunks map[string][]string
}

func (l *logs) Execution(_ context.Context, id belay.ExecutionID) (belay.Execution, error) {
	return belay.Execution{ID: id, Workflow: agent.Prompted, State: belay.Succeeded}, nil
}

func (l *logs) Await(ctx context.Context, id belay.ExecutionID, _ time.Duration) (belay.Execution, error) {
	return l.Execution(ctx, id)
}

func (l *logs) Chunks(_ context.Context, q belay.ChunkQuery) (page []belay.StoredChunk, err error) {
	for n, data := range l.chunks[q.Name] {
		if int64(n) >= q.From && len(page) < q.Limit {
			page = append(page, belay.StoredChunk{N: int64(n), Token: 1, Data: []byte(data)})
		}
	}
	return page, nil
}

// Who goes on from any event of a log gets what follows it, all of it and once.
func TestALogGoesOnFromAnyEvent(t *testing.T) {
	store := &logs{chunks: map[string][]string{
		agent.OutputLog:   {"fr\xc3", "\xbch\n", "spät"},
		agent.ProgressLog: {"{\"kind\":\"a\"}\n{\"kind\":\"b\"}\n{\"ki", "nd\":\"c\"}\n{\"kind\":\"d\"}\n", "broken\n{\"kind\":\"e\"}\n{\"kind\":"},
	}}
	follow := func(last string) (text string, kinds, ids []string) {
		r := httptest.NewRequest("GET", "/jobs/x/log", nil)
		r.SetPathValue("id", "ex_00000000000000000000000000")
		r.Header.Set("Last-Event-ID", last)
		w := httptest.NewRecorder()
		(&door{Service: New(store, Options{})}).follow(w, r)
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
		if !slices.Equal(ids[i+1:], later) || strings.Join(kinds[seen:], "") != strings.Join(more, "") || !strings.HasSuffix(text, rest) {
			t.Errorf("from %s: %q, %v, %v", id, rest, more, later)
		}
	}
}

// An id that no event has is refused, or is beyond the end; it costs nothing.
func TestHostilePositions(t *testing.T) {
	for _, text := range []string{"x", "1", "1.2", "1.2.3.4", "-1.0.0", "1.+2.3", "1.2.99999999999999999999", " 1.2.3", "1.2.3\n"} {
		if _, err := positionOf(text); belay.CodeOf(err) != belay.CodeMalformed {
			t.Errorf("%q: %v", text, err)
		}
	}
	f := &follower{door: &door{Service: New(nil, Options{})}, out: New(nil, Options{}).stream(httptest.NewRecorder()), at: position{0, 0, 1<<63 - 1}}
	if !f.steps(belay.StoredChunk{Data: []byte("{}\n")}) {
		t.Error("the stream ended")
	}
}
