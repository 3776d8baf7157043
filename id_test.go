package belay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// An id that was written and parsed again is the same id, ids sort as their bytes do, and any text
// that is not a written id is refused.
func FuzzExecutionID(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), "ex_01h455vb4pex5vsknk084sn02q")
	f.Add(make([]byte, 16), "ex_")
	f.Fuzz(func(t *testing.T, raw []byte, text string) {
		var id, next belay.ExecutionID
		copy(id[:], raw)
		if !id.IsZero() {
			got, err := belay.ParseExecutionID(id.String())
			if err != nil || got != id {
				t.Errorf("%s was read as %s, %v", id, got, err)
			}
		}
		next = id
		for i := len(next) - 1; i >= 0; i-- {
			if next[i]++; next[i] != 0 {
				break
			}
		}
		if id.Compare(next) < 0 && id.String() >= next.String() {
			t.Errorf("%s does not sort before %s", id, next)
		}
		if got, err := belay.ParseExecutionID(text); err == nil && got.String() != text {
			t.Errorf("%q was read as %s", text, got)
		}
	})
}

// A run's id contains the execution's id and the token.
func TestARunIDContainsItsExecutionAndToken(t *testing.T) {
	want := belay.RunID{Execution: belay.ExecutionID{1, 2, 3}, Token: 1<<32 + 7}
	var got belay.RunID
	if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
		t.Errorf("%s was read as %+v, %v", want, got, err)
	}
	for _, bad := range []string{"run_", "ex_01", want.String() + "0", strings.ToUpper(want.String()),
		"run_" + strings.Repeat("z", 39)} {
		if err := got.UnmarshalText([]byte(bad)); belay.CodeOf(err) != belay.CodeMalformed {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The id of a child depends on its parent, the generation and the key, and on nothing else.
func TestAChildIDDependsOnParentGenerationAndKey(t *testing.T) {
	parent := belay.ExecutionID{9}
	seen := map[belay.ExecutionID]string{}
	for _, p := range []belay.ExecutionID{parent, {8}} {
		for generation := range 3 {
			for _, key := range []string{"a", "b", "ab"} {
				id := belay.ChildID(p, generation, key)
				if id != belay.ChildID(p, generation, key) {
					t.Errorf("%s changes", key)
				}
				name := fmt.Sprint(p, generation, key)
				if other := seen[id]; other != "" {
					t.Errorf("%s and %s have one id", name, other)
				}
				seen[id] = name
			}
		}
	}
}

// Ids of children whose keys end with a number sort about in the order of the numbers, and all differ.
func TestChildIDsSortByTheNumbersOfTheirKeys(t *testing.T) {
	parent := belay.ExecutionID{9}
	seen := map[belay.ExecutionID]bool{}
	var last belay.ExecutionID // of four children that share a place, the one with the highest id
	for n := range 10_000 {
		for _, key := range []string{fmt.Sprintf("part[%d]", n), fmt.Sprintf("part-%d", n)} {
			id := belay.ChildID(parent, 1, key)
			if bytes.Compare(id[:], last[:]) < 0 && n%4 == 0 {
				t.Fatalf("the id of %s sorts before that of an earlier child", key)
			}
			if seen[id] || id[6]>>4 != 7 || id[8]>>6 != 2 {
				t.Fatalf("%s is the id of another child or no UUIDv7", id)
			}
			seen[id] = true
		}
		if n%4 == 3 {
			last = belay.ExecutionID{}
			for id := range seen {
				if bytes.Compare(id[:], last[:]) > 0 {
					last = id
				}
			}
			clear(seen)
		}
	}
	for _, key := range []string{"part[99999999999999999999999]", "part[]", "]", "", "part[-1]", "part[16384]"} {
		if id := belay.ChildID(parent, 1, key); id[6]>>4 != 7 || id == last {
			t.Errorf("%q: %s", key, id)
		}
	}
}

// A secret is not printed by the fmt package.
func TestASecretIsNotShown(t *testing.T) {
	l := belay.Lease{
		Execution: belay.ExecutionID{1}, Worker: belay.WorkerID{2}, Secret: belay.Secret{0xAB, 0xCD}, Token: 7,
	}
	a := belay.Assignment{Lease: l}
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).With(slog.Any("", l)).Info("m", "lease", l, "secret", l.Secret, "assignment", a)
	}
	text, err := json.Marshal([]any{l, l.Secret, a})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{log.String(), string(text), l.Secret.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		for _, x := range []any{l.Secret, l, &l, a} {
			all = append(all, fmt.Sprintf(verb, x))
		}
	}
	for _, s := range all {
		if low := strings.ToLower(s); strings.Contains(low, "171") || strings.Contains(low, "abcd") ||
			strings.Contains(low, "0xab") {
			t.Errorf("the secret shows in %q", s)
		}
	}
	if !strings.Contains(log.String(), `"execution":"`+l.Execution.String()+`","token":7,"worker":"wk_`) {
		t.Errorf("the lease is not named in %s", &log)
	}
}

// errors.Is matches errors by code and cause, also when they are wrapped.
func TestErrorsAreMatchedByCodeAndCause(t *testing.T) {
	lost := fmt.Errorf("save: %w", &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: "gone"})
	if !errors.Is(lost, belay.ErrLeaseLost) ||
		!errors.Is(lost, &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired}) {
		t.Error("a lost lease is not matched")
	}
	if errors.Is(lost, &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseReassigned}) ||
		errors.Is(lost, &belay.Error{Code: belay.CodeConflict}) {
		t.Error("the error is matched by another cause or code")
	}
	err := belay.WithOutput(belay.RetryAfter(belay.RetryAfter(belay.Permanent(lost), time.Second), time.Minute), 7)
	out, ok := belay.OutputOf(fmt.Errorf("more: %w", err))
	if !belay.IsPermanent(err) || belay.RetryDelay(err) != time.Minute || !ok || out != 7 ||
		belay.CodeOf(err) != belay.CodeLeaseLost {
		t.Errorf("Permanent, RetryAfter or WithOutput has no effect in %v", err)
	}
	if belay.Permanent(nil) != nil || belay.RetryAfter(nil, 1) != nil || belay.WithOutput(nil, 1) != nil {
		t.Error("Permanent, RetryAfter or WithOutput made an error of nil")
	}
}
