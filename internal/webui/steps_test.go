package webui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// stepped is running with times: a failed try before a saved step, a lost step, and a step that goes on.
func stepped() *fake {
	f := running()
	f.events[2].DurationMS, f.events[2].Attempt = 500, 2
	f.events[2].Steps = []belay.StepRecord{{
		Kind: belay.KindStep, Name: "fetch", Attempt: 1, BeganAt: ago(9 * time.Second), Over: true, DurationMS: 250,
		Error: "connection refused",
	}}
	f.events[3].Steps = []belay.StepRecord{{Kind: belay.KindStep, Name: "test", BeganAt: ago(7 * time.Second)}}
	f.events[5].DurationMS = 2000
	f.one.Current = []belay.StepRecord{{Kind: belay.KindStep, Name: "deploy", Attempt: 3, BeganAt: ago(time.Second)}}
	return f
}

// bars returns the steps of a page as text: name, place on the axis, duration and result.
func bars(a *answer) []string {
	var out []string
	for _, r := range a.root.class("of-step") {
		b := r.class("step")[0]
		words := strings.Replace(r.words(), b.all("title")[0].words()+" ", "", 1)
		out = append(out, fmt.Sprintf("%s %s+%s %s", b.attr["class"], b.attr["x"], b.attr["width"], words))
	}
	return out
}

// Each run has a bar for each of its steps, with name, try, duration, result and error; the step that goes on ends at
// the present, and the step of a lost run at the loss.
func TestTimelineShowsSteps(t *testing.T) {
	got := bars(get(t, stepped(), here+id(1).String()))
	want := []string{
		"step failed 100+25 step fetch attempt 1 connection refused 250ms failed",
		"step succeeded 150+50 step fetch attempt 2 500ms saved",
		"step failed 300+300 step test 3s unfinished",
		"step succeeded 700+200 step test 2s saved",
		"step running 900+100 step deploy attempt 3 1s running",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the steps are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A wait for which the execution was suspended lasts until the next run, and a wait for a child is a link to the child.
func TestTimelineShowsWaits(t *testing.T) {
	f := running()
	f.one.State, f.one.Seq = belay.Succeeded, 8
	f.events = []belay.Event{
		f.events[0],
		{Seq: 2, Kind: "started", At: ago(9 * time.Second), Token: 1, Attempt: 1},
		{Seq: 3, Kind: "wait", At: ago(9 * time.Second), Token: 1, Name: "build"}, // its begin
		{Seq: 3, Kind: "suspended", At: ago(8 * time.Second), Token: 1, Steps: []belay.StepRecord{
			{Kind: belay.KindWait, Name: "build", BeganAt: ago(9 * time.Second)},
		}},
		{Seq: 4, Kind: "child", At: ago(5 * time.Second), Name: "build", Text: id(5).String()},
		{Seq: 5, Kind: "started", At: ago(4 * time.Second), Token: 2, Attempt: 1},
		{Seq: 6, Kind: "wait", At: ago(3 * time.Second), Token: 2, Name: "build", DurationMS: 6000},
		{Seq: 7, Kind: "child", At: ago(2 * time.Second), Name: "other", Text: id(6).String()},
		{Seq: 8, Kind: "succeeded", At: noon, Token: 2, Final: true},
	}
	a := get(t, f, here+id(1).String())
	want := []string{
		"step plain 500+3 child build – ended",
		"step plain 100+600 wait build 6s over",
		"step plain 800+3 child other – ended",
	}
	if got := bars(a); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the steps are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	links := 0
	for _, l := range a.root.class("runs")[0].all("a") {
		if l.attr["href"] == here+id(5).String() || l.attr["href"] == here+id(6).String() {
			links++
		}
	}
	if links != 2 {
		t.Errorf("%d links to children, want 2", links)
	}
}

// A wait that has not ended is drawn to the present, and does not look like one that is over.
func TestTimelineShowsAnOpenWait(t *testing.T) {
	f := running()
	f.one.State, f.one.Seq = belay.Waiting, 4
	f.events = []belay.Event{
		f.events[0],
		{Seq: 2, Kind: "started", At: ago(9 * time.Second), Token: 1, Attempt: 1},
		{Seq: 3, Kind: "wait", At: ago(8 * time.Second), Token: 1, Name: "approved"}, // its begin
		{Seq: 4, Kind: "suspended", At: ago(7 * time.Second), Token: 1, Steps: []belay.StepRecord{
			{Kind: belay.KindWait, Name: "approved", BeganAt: ago(8 * time.Second)},
		}},
	}
	got := bars(get(t, f, here+id(1).String()))
	if want := "step plain 200+800 wait approved 8s waiting"; len(got) != 1 || got[0] != want {
		t.Errorf("the waits are %q, want %q", got, want)
	}
}

// A worker that reports no times still has its steps named, as marks.
func TestTimelineOfAnOlderWorker(t *testing.T) {
	got := bars(get(t, running(), here+id(1).String()))
	if len(got) != 2 || got[0] != "step plain 200+3 step fetch – saved" {
		t.Errorf("the steps are %v", got)
	}
}

// A page draws at most 100 steps, the newest ones, and says how many it leaves out.
func TestTimelineIsBounded(t *testing.T) {
	f := running()
	f.events = f.events[:5]
	for i := range 150 {
		f.events = append(f.events, belay.Event{
			Seq: int64(6 + i), Kind: "step", At: ago(time.Second), Token: 2, Name: fmt.Sprintf("n%d", i), DurationMS: 1,
		})
	}
	f.one.Seq = int64(len(f.events))
	a := get(t, f, here+id(1).String())
	if got := bars(a); len(got) != maxSteps || !strings.Contains(got[len(got)-1], "n149") {
		t.Errorf("%d steps are drawn, the last is %s", len(got), got[len(got)-1])
	}
	a.says("51 earlier steps are not drawn. The history lists them all.")
}

// A step shows the output that was written while it was carried out.
func TestTimelineShowsOutput(t *testing.T) {
	f := stepped()
	f.chunks = []belay.StoredChunk{
		{N: 0, At: ago(2 * time.Second), Data: []byte("compiling\ntesting\n")},
		{N: 1, At: ago(500 * time.Millisecond), Data: []byte(strings.Repeat("copying a file\n", 1000))},
	}
	got := bars(get(t, f, here+id(1).String()))
	if !strings.HasSuffix(got[3], "step test 2 lines of output compiling testing 2s saved") {
		t.Errorf("the step is %q", got[3])
	}
	if !strings.Contains(got[4], "1000 lines of output, the last 136 copying") || len(got[4]) > maxStepLog+200 {
		t.Errorf("the step is %q", got[4])
	}
}

// The children of a document have the times and the states of their tasks; tasks that have not run when the execution
// ended are not pending.
func TestTimelineShowsTheStatesOfTasks(t *testing.T) {
	f := running()
	f.one.State, f.one.Seq, f.one.Workflow = belay.Failed, 6, "document"
	f.tasks = []belay.Task{
		{ID: "build", Uses: "command", State: belay.TaskFailed, Execution: id(5), StartedAt: ago(8 * time.Second),
			EndedAt: ago(6 * time.Second)},
		{ID: "lint", Uses: "command", State: belay.TaskSucceeded, Execution: id(6), StartedAt: ago(8 * time.Second),
			EndedAt: ago(5 * time.Second)},
		{ID: "deploy", Uses: "command", State: belay.TaskPending, Needs: []string{"build"}},
	}
	f.events = []belay.Event{
		f.events[0],
		{Seq: 2, Kind: "started", At: ago(9 * time.Second), Token: 1, Attempt: 1},
		{Seq: 3, Kind: "child", At: ago(6 * time.Second), Name: "build", Text: id(5).String()},
		{Seq: 4, Kind: "child", At: ago(5 * time.Second), Name: "lint", Text: id(6).String()},
		{Seq: 5, Kind: "child", At: ago(4 * time.Second), Name: "other", Text: id(7).String()},
		{Seq: 6, Kind: "failed", At: noon, Token: 1, Final: true},
	}
	a := get(t, f, here+id(1).String())
	want := []string{
		"step failed 200+200 child build 2s failed",
		"step succeeded 200+300 child lint 3s succeeded",
		"step plain 600+3 child other – ended",
	}
	if got := bars(a); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the steps are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	a.says("deploy command not run after build")
	f.one.State = belay.Running
	get(t, f, here+id(1).String()).says("deploy command pending after build")
}
