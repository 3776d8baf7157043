package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shown is the output of belay demo with -o json.
type shown struct {
	Held     bool
	Breaches []string
	State    string
	Steps    []struct {
		Name  string
		Begun []struct {
			Token  int64
			Worker string
		}
		SavedBy string `json:"saved_by"`
		Token   int64
	}
	Killed, Successor string
	OldToken          int64  `json:"old_token"`
	NewToken          int64  `json:"new_token"`
	LateWrite         string `json:"late_write"`
	Events            []struct {
		Seq  int64
		Kind string
	}
}

// Rule: the demo kills a real worker process in the middle of step 3. The other worker continues
// after step 2 under a newer token, and the server refuses the late write of the killed worker. The
// demo leaves nothing behind.
func TestDemo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.belay("demo", "-o", "json", "--repo", p.repository()).want(0)
	var got shown
	if err := json.Unmarshal([]byte(x.out), &got); err != nil {
		t.Fatalf("%v\n%s", err, x.out)
	}
	if !got.Held || len(got.Breaches) > 0 || got.State != "succeeded" || len(got.Steps) != 5 {
		t.Fatalf("the demo says %+v", got)
	}
	if got.Killed == "" || got.Successor == "" || got.Killed == got.Successor || got.OldToken >= got.NewToken {
		t.Errorf("%q was killed with token %d, %q took over with token %d", got.Killed, got.OldToken, got.Successor,
			got.NewToken)
	}
	if !strings.Contains(got.LateWrite, "reassigned") {
		t.Errorf("the late write had the result %q", got.LateWrite)
	}
	for i, s := range got.Steps {
		last := s.Begun[len(s.Begun)-1]
		switch {
		case i < 2 && last.Token >= got.NewToken:
			t.Errorf("step %d was run again after the kill: %+v", i+1, s)
		case i >= 2 && (s.SavedBy != got.Successor || s.Token < got.NewToken):
			t.Errorf("step %d was saved by %s with token %d, want %s", i+1, s.SavedBy, s.Token, got.Successor)
		case i == 2 && s.Begun[0].Worker != got.Killed:
			t.Errorf("step 3 was begun by %s, and %s was killed", s.Begun[0].Worker, got.Killed)
		}
	}
	for i, ev := range got.Events {
		if ev.Seq != int64(i+1) {
			t.Errorf("event %d has seq %d", i+1, ev.Seq)
		}
	}
	left, err := filepath.Glob(p.path("tmp/*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := os.Stat(p.data); !os.IsNotExist(err) {
		t.Errorf("the demo made a data directory without --data: %v", err)
	}
}

// Rule: with --data the demo leaves its history, which every other command can read, and nothing
// else. Without a repository the demo makes one. The output has colours only on a terminal.
func TestDemoKeepsItsHistory(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.belay("demo", "--data", p.path("kept")).want(0)
	for _, want := range []string{"kill -9", "is dead, in the middle of step 3", "step 1, survey, is done already",
		"is refused (reassigned)", "All promises kept:", "belay get ex_"} {
		if !strings.Contains(x.out, want) {
			t.Errorf("the demo does not say %q:\n%s", want, x.out)
		}
	}
	if strings.Contains(x.out, "\x1b") {
		t.Errorf("there are colours in output that does not go to a terminal: %q", x.out)
	}
	_, rest, _ := strings.Cut(x.out, "its history: belay ")
	again := p.belay(strings.Fields(rest)...).want(0)
	if !strings.Contains(again.out, "lost") || !strings.Contains(again.out, "succeeded") {
		t.Errorf("the command that the demo names shows\n%s", again.out)
	}
	if left, _ := filepath.Glob(p.path("kept/demo-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
