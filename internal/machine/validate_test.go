package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Payloads are JSON text in UTF-8 without a NUL, direct or escaped. A backslash that is itself
// escaped does not begin an escape.
func TestCheckPayload(t *testing.T) {
	for _, c := range []struct {
		p    string
		code belay.Code // empty if the payload is valid
	}{
		{"", ""}, {`null`, ""}, {`{"a":[1,2.5e3,"ü"]}`, ""}, {" 1 ", ""},
		{`"\\u0000"`, ""}, {`"\\\\u0000"`, ""}, {`"u0000"`, ""}, {`"\u0001"`, ""}, {`"\\u0000 \\u0000"`, ""},
		{`"\u0000"`, belay.CodeInvalid}, {`"\\\u0000"`, belay.CodeInvalid}, {`"\\u0000 \u0000"`, belay.CodeInvalid},
		{`"\u0000\\u0000"`, belay.CodeInvalid}, {`{"\u0000":1}`, belay.CodeInvalid},
		{"\"\x00\"", belay.CodeInvalid}, {"1\x00", belay.CodeInvalid}, {"\"\xff\"", belay.CodeInvalid},
		{"\"\xed\xa0\x80\"", belay.CodeInvalid},
		{`{`, belay.CodeInvalid}, {`1 2`, belay.CodeInvalid}, {`'a'`, belay.CodeInvalid},
		{"\ufeff1", belay.CodeInvalid},
		{strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), belay.CodeInvalid}, // too deep for any parser
		{`"` + strings.Repeat("x", 98) + `"`, ""}, {`"` + strings.Repeat("x", 99) + `"`, belay.CodePayloadTooLarge},
	} {
		limit := 100
		if strings.HasPrefix(c.p, "[") {
			limit = 1 << 20
		}
		err := CheckPayload("test", "the thing", []byte(c.p), limit)
		if c.code == "" && err != nil || c.code != "" && belay.CodeOf(err) != c.code {
			t.Errorf("%.40q: %v, want %q", c.p, err, c.code)
		}
		if c.code == belay.CodePayloadTooLarge && !strings.Contains(err.Error(), "101 bytes; the limit is 100") {
			t.Errorf("the limit is not named: %v", err)
		}
	}
}

// Every payload of every command is checked against its own limit, and a refusal names the limit.
func TestPayloadsAreCheckedEverywhere(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	failed := s.run(l.Worker, policy(belay.Policy{MaxAttempts: 1}))
	s.do(s.settle(failed, belay.OutcomeFailed))
	big := func(limit int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", limit-1) + `"`) }
	for name, c := range map[string]struct {
		limit int
		make  func(json.RawMessage) Command
	}{
		"input": {belay.MaxPayload, func(p json.RawMessage) Command {
			return s.submission(func(b *belay.Submission) { b.Input = p })
		}},
		"output": {belay.MaxPayload, func(p json.RawMessage) Command {
			return s.settle(l, belay.OutcomeSucceeded, func(x *belay.Settlement) { x.Output = p })
		}},
		"checkpoint": {belay.MaxPayload, func(p json.RawMessage) Command {
			c := s.save(l, belay.KindStep, "k")
			c.Data = p
			return c
		}},
		"signal": {belay.MaxSignal, func(p json.RawMessage) Command {
			c := s.signal(l.Execution, "s")
			c.Payload = p
			return c
		}},
		"requeue": {belay.MaxPayload, func(p json.RawMessage) Command {
			return s.act(failed.Execution, belay.ActionRequeue, func(c *belay.Control) { c.Input = p })
		}},
		"fork": {belay.MaxPayload, func(p json.RawMessage) Command {
			return s.act(failed.Execution, belay.ActionFork, func(c *belay.Control) { c.Input = p })
		}},
	} {
		t.Log(name)
		err := s.refused(c.make(big(c.limit)), belay.CodePayloadTooLarge)
		if want := fmt.Sprintf("%d bytes; the limit is %d", c.limit+1, c.limit); !strings.Contains(err.Message, want) {
			t.Errorf("%s: %q does not say %q", name, err.Message, want)
		}
		s.refused(c.make(json.RawMessage("\"\x00\"")), belay.CodeInvalid)
		s.refused(c.make(json.RawMessage("\"\xff\"")), belay.CodeInvalid)
		s.refused(c.make(json.RawMessage(`nonsense`)), belay.CodeInvalid)
	}
}

// Names must be UTF-8, of limited length and without control characters, and necessary names must
// not be empty.
func TestNamesAreChecked(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	for name, c := range map[string]struct {
		needed bool
		make   func(string) Command
	}{
		"workflow": {true, func(n string) Command {
			return s.submission(func(b *belay.Submission) { b.Workflow = n })
		}},
		"version": {false, func(n string) Command {
			return s.submission(func(b *belay.Submission) { b.Version = n })
		}},
		"queue": {false, func(n string) Command {
			return s.submission(func(b *belay.Submission) { b.Queue = n })
		}},
		"idempotency key": {false, func(n string) Command { return s.submission(key(n)) }},
		"label key":       {true, func(n string) Command { return s.submission(labelled(map[string]string{n: "v"})) }},
		"label":           {false, func(n string) Command { return s.submission(labelled(map[string]string{"k": n})) }},
		"worker label": {false, func(n string) Command {
			return s.submission(func(b *belay.Submission) { b.WorkerLabels = map[string]string{"k": n} })
		}},
		"child key":  {true, func(n string) Command { return s.submission(s.childOf(l, n)) }},
		"checkpoint": {true, func(n string) Command { return s.save(l, belay.KindStep, n) }},
		"signal":     {true, func(n string) Command { return s.signal(l.Execution, n) }},
		"chunk": {true, func(n string) Command {
			return &Append{Chunk: belay.Chunk{Lease: l, Name: n, Data: []byte(n)}}
		}},
		"actor": {false, func(n string) Command {
			return s.act(l.Execution, belay.ActionPreempt, func(c *belay.Control) { c.Actor = n })
		}},
		"reason": {false, func(n string) Command {
			return s.act(l.Execution, belay.ActionPreempt, func(c *belay.Control) { c.Reason = n })
		}},
	} {
		t.Log(name)
		longest := strings.Repeat("ü", belay.MaxName/2)
		for _, bad := range []string{longest + "x", "a\xff", "a\nb", "a\x00b", "\x1b[2J", "a\u0085b", "\x7f"} {
			cmd := c.make(bad)
			if save, ok := cmd.(*Save); ok {
				save.Data = nil
			}
			s.refused(cmd, belay.CodeInvalid)
		}
		if c.needed {
			s.refused(c.make(""), belay.CodeInvalid)
		} else {
			s.do(c.make(""))
		}
		s.do(c.make(longest))
	}
}

func labelled(m map[string]string) func(*belay.Submission) {
	return func(b *belay.Submission) { b.Labels = m }
}

func manyLabels() map[string]string {
	m := make(map[string]string)
	for i := range belay.MaxLabels + 1 {
		m[fmt.Sprint(i)] = ""
	}
	return m
}

func TestSubmissionsAreChecked(t *testing.T) {
	s := newStage(t)
	for name, change := range map[string]func(*belay.Submission){
		"no id":                  func(b *belay.Submission) { b.ID = belay.ExecutionID{} },
		"priority too high":      priority(belay.MaxPriority + 1),
		"priority too low":       priority(-belay.MaxPriority - 1),
		"too many labels":        labelled(manyLabels()),
		"too many worker labels": func(b *belay.Submission) { b.WorkerLabels = manyLabels() },
		"negative attempts":      policy(belay.Policy{MaxAttempts: -1}),
		"negative losses":        policy(belay.Policy{MaxLosses: -1}),
		"negative base":          policy(belay.Policy{BackoffBase: -1}),
		"negative cap":           policy(belay.Policy{BackoffCap: -1}),
		"negative scheduled":     policy(belay.Policy{ScheduledTimeout: -1}),
		"negative start":         policy(belay.Policy{StartTimeout: -1}),
		"negative run":           policy(belay.Policy{RunTimeout: -1}),
		"negative idle":          policy(belay.Policy{IdleTimeout: -1}),
		"negative total":         policy(belay.Policy{Timeout: -1}),
		"negative grace":         policy(belay.Policy{CancelGrace: math.MinInt64}),
		"negative delay":         policy(belay.Policy{LockDelay: -1}),
		"unknown on_lost":        policy(belay.Policy{OnLost: "explode"}),
		"unknown on_expired":     policy(belay.Policy{OnExpired: "explode"}),
	} {
		t.Log(name)
		s.refused(s.submission(change), belay.CodeInvalid)
	}
	most := manyLabels()
	delete(most, "0")
	s.do(s.submission(labelled(most)))
	s.do(s.submission(priority(belay.MaxPriority)))
	s.do(s.submission(priority(-belay.MaxPriority)))
}

func TestActionsAreChecked(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	s.refused(s.act(l.Execution, belay.ActionCancel, func(c *belay.Control) { c.Grace = -1 }), belay.CodeInvalid)
	s.refused(s.act(l.Execution, ""), belay.CodeInvalid)
}

func TestSavesAndChunksAreChecked(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	for _, kind := range []belay.CheckpointKind{0, belay.KindWait + 1, 255} {
		s.refused(s.save(l, kind, "k"), belay.CodeInvalid)
	}
	cost := s.save(l, belay.KindStep, "k")
	cost.CostTokens = -1
	s.refused(cost, belay.CodeInvalid)
	chunk := func(change func(*belay.Chunk)) *Append {
		c := belay.Chunk{Lease: l, Name: "log", N: 5, Data: []byte("x")}
		change(&c)
		return &Append{Chunk: c}
	}
	s.refused(chunk(func(c *belay.Chunk) { c.Data = make([]byte, belay.MaxChunk+1) }), belay.CodePayloadTooLarge)
	changes, r := s.batch(chunk(func(c *belay.Chunk) { c.Data = make([]byte, belay.MaxChunk) }))
	if r[0].Err != nil || len(changes.Drops) != 0 {
		t.Errorf("a chunk as large as may be: %v, drops %v", r[0].Err, changes.Drops)
	}
	for _, change := range []func(*belay.Chunk){
		func(c *belay.Chunk) { c.N = -1 },
		func(c *belay.Chunk) { c.N = math.MaxInt64 },
		func(c *belay.Chunk) { c.DropFrom = -1 },
		func(c *belay.Chunk) { c.DropFrom, c.DropTo = 3, 2 },
		func(c *belay.Chunk) { c.DropTo = 6 },
	} {
		s.refused(chunk(change), belay.CodeInvalid)
	}
}

// A repeated chunk replaces nothing: if its content is the same, the repetition succeeds; other
// content is refused. A dropped chunk cannot be read any more. Chunks do not raise the execution's
// seq.
func TestARepeatedChunkReplacesNothing(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	seq := s.row(l.Execution).Seq
	write := func(n int64, data string, drop ...int64) *Append {
		c := belay.Chunk{Lease: l, Name: "log", N: n, Data: []byte(data)}
		if len(drop) > 0 {
			c.DropFrom, c.DropTo = drop[0], drop[1]
		}
		return &Append{Chunk: c}
	}
	_, r := s.batch(write(0, "a"), write(0, "a"), write(0, "b"), write(1, "b"))
	if !r[1].Replayed || belay.CodeOf(r[2].Err) != belay.CodeConflict || r[3].Err != nil {
		t.Errorf("in one fold: %+v", r)
	}
	if r := s.do(write(1, "b")); !r.Replayed {
		t.Errorf("%+v", r)
	}
	s.refused(write(1, "c"), belay.CodeConflict)
	s.do(write(2, "c"))
	s.do(write(3, "\x00\xff", 1, 3)) // a log may contain any bytes
	var left []int64
	for _, c := range s.records[l.Execution].chunks {
		left = append(left, c.N)
	}
	if len(left) != 2 || left[0] != 0 || left[1] != 3 {
		t.Errorf("chunks left: %v", left)
	}
	if got := s.row(l.Execution).Seq; got != seq {
		t.Errorf("chunks moved the seq from %d to %d", seq, got)
	}
}

// FuzzCheckPayload checks that every accepted payload is JSON, and that it contains no NUL after
// decoding.
func FuzzCheckPayload(f *testing.F) {
	for _, p := range []string{`{"a":1}`, `"\u0000"`, `"\\u0000"`, "\"\x00\"", `"\ud800"`, "\xff", "1E700", `"\\x00"`} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) == 0 || CheckPayload("fuzz", "it", p, 1<<20) != nil {
			return
		}
		var v any
		d := json.NewDecoder(bytes.NewReader(p))
		d.UseNumber() // a number may exceed a float64; it is passed on unchanged
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q passed and is no JSON: %v", p, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			t.Fatalf("%q passed and is more than one value", p)
		}
		if s := fmt.Sprint(v); strings.Contains(s, "\x00") {
			t.Fatalf("%q passed with a NUL: %q", p, s)
		}
	})
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		s, want string
		limit   int
	}{
		{"short", "short", 10}, {"exactly10!", "exactly10!", 10}, {"eleven byte", "eleven …", 10},
		{"üüüüüü", "üüü…", 10},
		{"a\x00b\nc\td\x1b", "ab\nc\td", 10}, {"\xff\xfe", "\uFFFD", 10}, {"", "", 10},
	} {
		if got := clip(c.s, c.limit); got != c.want || len(got) > c.limit {
			t.Errorf("clip(%q) = %q, want %q", c.s, got, c.want)
		}
	}
}
