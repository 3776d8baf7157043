package webui

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

const here = "/executions/"

// The page of a running execution shows its state and the reason, the owner, and a countdown to the
// end of the owner's lease.
func TestExecutionShowsOwnerAndCountdown(t *testing.T) {
	f := running()
	a := get(t, f, here+id(1).String())
	a.says("review running", "It has run for 3s, with token 2.", "anna's laptop", "process 4711 on anna",
		"Its lease ends in 12s unless",
		"3s ago", "each heartbeat renews the lease for 15s", owning.String(), "Token 2", "Queue default", "Attempt 1",
		"Label team blue")
	a.saysNot("Generation")
	f.one.Queue, f.one.Labels = "run:x", map[string]string{"line": "0a1b", "team": "blue"}
	a = get(t, f, here+id(1).String())
	a.says("Label team blue")
	a.saysNot("run:x", "Label line")
	move := a.root.all("animate")
	if len(move) != 1 || move[0].attr["from"] != "800" || move[0].attr["dur"] != "12.0s" {
		t.Errorf("the countdown is %v, want 800 thousandths running out in 12 seconds", move)
	}
	if code := a.root.class("why")[0].all("code"); len(code) != 1 || code[0].words() != "belay watch x" {
		t.Errorf("text in backquotes is not shown as code: %v", code)
	}
}

// If the owner's lease has ended, the page says so and shows no countdown.
func TestExecutionShowsOverdueOwner(t *testing.T) {
	f := running()
	f.workers[0].ExpiresAt = ago(time.Millisecond)
	a := get(t, f, here+id(1).String())
	a.says("Its lease has ended; the engine is taking the execution back.")
	if len(a.root.all("animate")) != 0 {
		t.Error("there is a countdown for a lease that has ended")
	}
	f.workers = nil
	get(t, f, here+id(1).String()).says("A worker that is not listed", owning.String())
}

// The timeline shows on one axis the lost run, the wait for a worker, and the run of the new owner.
func TestTimelineShowsTakeOver(t *testing.T) {
	a := get(t, running(), here+id(1).String())
	rows := a.root.class("of-run")
	if len(rows) != 2 {
		t.Fatalf("%d runs are drawn, want 2", len(rows))
	}
	bars := make([]string, 2)
	for i, r := range rows {
		b := r.class("run")[0]
		bars[i] = b.attr["x"] + "+" + b.attr["width"]
	}
	if bars[0] != "100+500" || bars[1] != "700+300" {
		t.Errorf("the bars stand at %v, want 100+500 and 700+300 thousandths", bars)
	}
	if w := rows[1].class("idle"); len(w) != 1 || w[0].attr["x"] != "600" || w[0].attr["width"] != "100" {
		t.Errorf("the wait between the runs is %v", w)
	}
	a.says("lost", "running")
	if label := rows[0].all("svg")[0].attr["aria-label"]; label != "from +1.000s for 5s, 1 checkpoint saved, lost" {
		t.Errorf("the first run is read out as %q", label)
	}
}

// The history lists every event once, in order, with its seq.
func TestHistoryListsEvents(t *testing.T) {
	a := get(t, running(), here+id(1).String())
	var got []string
	for _, r := range a.root.class("events")[0].all("tr")[1:] {
		got = append(got, r.words())
	}
	want := []string{
		"1 +0.000s submitted review",
		"2 +1.000s started attempt 1, token 1, by " + belay.WorkerID{1, 2, 3, 15: 1}.String(),
		"3 +2.000s step fetch",
		"4 +6.000s lost its session ran out of time",
		"5 +7.000s started attempt 1, token 2, by anna's laptop",
		"6 +9.000s step test",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the history is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	a.saysNot("Earlier", "Later", "Events 1 to")
}

// The page stays small for an execution with ten thousand events and a megabyte of both input and
// output, and reads only one part of the history.
func TestLongHistoryIsBounded(t *testing.T) {
	f := running()
	f.events = nil
	for i := range int64(10_000) {
		kind := []string{"started", "step", "failed"}[i%3]
		f.events = append(f.events, belay.Event{
			Seq: i + 1, Kind: kind, At: ago(20_000*time.Second - time.Duration(i)*time.Second),
			Token: belay.Token(i/3 + 1), Name: strings.Repeat("n", 200),
			Error: &belay.Failure{Class: belay.ClassTransient, Message: strings.Repeat("long ", 1000)},
		})
	}
	f.one.Seq, f.one.CreatedAt = 10_000, f.events[0].At
	big := []byte(`"` + strings.Repeat("x", 1<<20-2) + `"`)
	f.one.Input, f.one.Output = big, big
	a := get(t, f, here+id(1).String())
	if len(a.body) > 512<<10 {
		t.Errorf("the page has %d bytes", len(a.body))
	}
	if len(f.asked) != 1 || f.asked[0].After != 9_800 || f.asked[0].Limit != historySize || f.asked[0].Data {
		t.Errorf("the history was read with %+v", f.asked)
	}
	a.says("Events 9801 to 10000 of 10000.", "This is only the beginning; the whole has 1.0 MiB.", "Earlier")
	a.saysNot("Later")
	middle := get(t, f, here+id(1).String()+"?after=4000")
	middle.says("Events 4001 to 4200 of 10000.", "Earlier", "Later")
	if first := get(t, f, here+id(1).String()+"?after=0"); strings.Contains(first.root.words(), "Earlier") {
		t.Error("the page with the first event links to earlier ones")
	}
}

// Deeply nested JSON is not indented, because its indentation would be many times its size.
func TestDeepJSONIsBounded(t *testing.T) {
	f := running()
	f.one.Output = []byte(strings.Repeat("[", 8000) + strings.Repeat("]", 8000))
	if a := get(t, f, here+id(1).String()); len(a.body) > 64<<10 {
		t.Errorf("the page has %d bytes", len(a.body))
	}
}

// The page shows the end of a log as a terminal would show it. It finds the end without reading the
// whole log, even if the middle of the log was dropped.
func TestThePageShowsTheEndOfTheLog(t *testing.T) {
	f := running()
	for n := range int64(1000) {
		if n < 16 || n > 700 {
			f.chunks = append(f.chunks, belay.StoredChunk{N: n, Data: fmt.Appendf(nil, "line %d\n", n)})
		}
	}
	f.chunks = append(f.chunks, belay.StoredChunk{N: 1000, Data: []byte("10%\r50%\r\x1b[32mdone\x1b[0m\r\n")})
	a := get(t, f, here+id(1).String())
	log := a.root.class("log")[0].words()
	if !strings.HasSuffix(log, "line 999 done") || strings.Contains(log, "50%") || strings.Contains(log, "[32m") {
		t.Errorf("the log ends with %q", log[max(0, len(log)-60):])
	}
	if f.lookedAt > 200 {
		t.Errorf("%d chunks were read for the end of a log", f.lookedAt)
	}
	a.says("This is the end of the log. To print the whole log: belay logs " + id(1).String())
}

// The page of an error has the error's status and message and a link to the list. It does not show
// the text of an internal error.
func TestErrorPagesShowStatusMessageAndALink(t *testing.T) {
	f := running()
	for _, c := range []struct {
		address string
		err     error
		status  int
		says    string
	}{
		{here + id(2).String(), nil, 404, "There is no execution " + id(2).String()},
		{here + "nonsense", nil, 404, "No execution has this id: nonsense"},
		{"/nowhere", nil, 404, "There is no page at this address."},
		{"/executions?state=lost", nil, 400, `"lost" is no state`},
		{"/executions?parent=x", nil, 400, "This address is not valid"},
		{here + id(1).String() + "?after=-1", nil, 400, "it must be the seq of an event"},
		{"/executions?cursor=%00", &belay.Error{
			Code: belay.CodeMalformed, Message: `id "\x00" is not of the form ex_…`,
		}, 400, "is not of the form"},
		{"/executions?cursor=old", &belay.Error{Code: belay.CodeCursorExpired, Message: "the cursor is too old"}, 410,
			"This page of the list has expired"},
		{"/executions", &belay.Error{
			Code: belay.CodeUnavailable, Message: "disk I/O at /secret/path",
		}, 503, "Try again in a moment."},
		{"/executions", errors.New("at /secret/path"), 500, "The reason is in the server's log."},
	} {
		f.err = c.err
		a := get(t, f, c.address)
		if a.status != c.status {
			t.Errorf("%s: %d, want %d", c.address, a.status, c.status)
		}
		a.says(c.says, "All executions")
		a.saysNot("/secret/path")
		if (a.header.Get("Retry-After") != "") != (c.status == 503) {
			t.Errorf("%s: Retry-After is %q", c.address, a.header.Get("Retry-After"))
		}
	}
}

// The history leads to the children and to the schedule that it names, and a page has one link to each form.
func TestTheHistoryHasLinks(t *testing.T) {
	f := running()
	f.events[0].Actor = "schedule nightly"
	f.events = append(f.events, belay.Event{Seq: 7, Kind: "child", At: noon, Name: "build", Text: id(5).String()},
		belay.Event{Seq: 8, Kind: "signal", At: noon, Actor: "schedule nightly"})
	f.one.Seq = 8
	var got []string
	for _, a := range get(t, f, here+id(1).String()).root.class("events")[0].all("a") {
		got = append(got, a.words()+" "+a.attr["href"])
	}
	want := []string{"nightly /schedules/nightly", id(5).String() + " " + here + id(5).String()}
	if !slices.Equal(got, want) {
		t.Errorf("the history has the links %q, want %q", got, want)
	}

	f.one.State, f.why.Execution = belay.Failed, id(1)
	f.why.Remedies = []belay.Remedy{{Do: belay.RemedyAction(belay.ActionRetry), Of: belay.RemedyExecution,
		ID: id(1).String(), Title: "Retry"}}
	links := 0
	for _, a := range send(t, f, by(here+id(1).String(), nil, belay.ScopeOperate)).root.all("a") {
		if strings.HasSuffix(a.attr["href"], "/retry") {
			links++
		}
	}
	if links != 1 {
		t.Errorf("%d links to the form of a retry", links)
	}
	f.why.Remedies[0].ID = id(2).String()
	send(t, f, by(here+id(1).String(), nil, belay.ScopeOperate)).says("Retry Run with another input Fork")
}
