package httpapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// The names of fields must have the exact case, except in a payload. If the server accepted "Token"
// for "token" and a proxy in front of the server did not, the two would read different requests.
func TestNamesCountLetterByLetter(t *testing.T) {
	lease := wire.LeaseOf(belay.Lease{Token: 1})
	submit := wire.SubmitOf(belay.Submission{
		Workflow: "w", DueAt: time.Unix(1, 0), Labels: map[string]string{"team": "web"},
		Policy: belay.Policy{MaxAttempts: 2, Timeout: 5},
		Input:  json.RawMessage(`{"free": 1, "Free": [{"FREE": 2}]}`), Parent: &belay.Lease{Token: 1},
	})
	batch := wire.Batch{Ops: []wire.Op{
		{Submit: &submit},
		{Save: &wire.Save{Lease: lease, Kind: belay.KindStep, Key: "k", Data: json.RawMessage(`{"a": 1}`)}},
		{Settle: &wire.Settle{Lease: lease, Outcome: belay.OutcomeFailed, Failure: &belay.Failure{
			Class: belay.ClassTransient, Message: "m",
		}}},
		{Append: &wire.Append{Lease: lease, Name: "n", Data: []byte("x")}},
		{Signal: &wire.Signal{Name: "s"}},
	}}
	for _, body := range []any{
		batch, wire.Heartbeat{
			Holds: []wire.Held{{Token: 1, IdleMS: 2}}, ClaimSeen: 1,
		}, wire.Claim{Number: 1, Slots: 1, WaitMS: 1, Repeat: true},
	} {
		sh := shapeOf(reflect.TypeOf(body))
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkJSON(text, sh); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		names := 0
		for i, c := range text {
			if c != '"' || i+1 == len(text) || !unicode.IsLower(rune(text[i+1])) {
				continue
			}
			name, after, _ := strings.Cut(string(text[i+1:]), `"`)
			if !strings.HasPrefix(after, ":") || name == "free" || name == "a" || name == "team" {
				continue
			}
			other := string(text[:i+1]) + strings.ToUpper(name[:1]) + string(text[i+2:])
			if err := checkJSON([]byte(other), sh); belay.CodeOf(err) != belay.CodeInvalid {
				t.Errorf("%s is taken for %s: %v", strings.ToUpper(name[:1])+name[1:], name, err)
			}
			names++
		}
		if names < 3 {
			t.Errorf("only %d names of %T were tried", names, body)
		}
	}
}
