package webui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// jobs is a Backend with a job, whose logs and artifacts are in files. It counts the chunks that it has sent.
type jobs struct {
	*fake
	files   map[string][]string
	sent    int
	replies []string // of each reply, its job, message and key
	refuse  error    // the error of a reply
	after   []belay.Execution
}

func (*jobs) Key(job belay.ExecutionID) string { return "after " + job.String() }

func (j *jobs) Reply(_ context.Context, job *belay.Execution, message, key string) (belay.ExecutionID, error) {
	j.replies = append(j.replies, job.ID.String()+" "+message+" "+key)
	return id(7), j.refuse
}

func (j *jobs) Executions(ctx context.Context, q belay.Filter) (belay.Page, error) {
	if q.Key == j.Key(id(1)) && q.Workflow == "agent" && q.Limit == 1 {
		return belay.Page{Executions: j.after}, nil
	}
	return j.fake.Executions(ctx, q)
}

const patchOfJob = "diff --git a/notes.txt b/notes.txt\n--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,2 @@\n same\n" +
	"-old line\n+new line\n--- not a header\n"

// agentJob returns a Backend with a job that has ended.
func agentJob() *jobs {
	f := running()
	e := f.one
	e.Workflow, e.State, e.FinishedAt, e.Worker = "agent", belay.Succeeded, noon, belay.WorkerID{}
	e.Input = []byte(`{"prompt": "mend the notes", "repo": "https://example.org/app.git", "ref": "main"}`)
	e.Output = []byte(`{"text": "I mended the notes.", "exit_code": 0, "commit": "abc123", "duration_ms": 4200,
		"usage": {"input_tokens": 900, "output_tokens": 120, "cost_usd": 0.0123, "turns": 3}, "walls": "pid namespace",
		"changes": {"bundle": "step-1.bundle", "patch": "step-1.patch", "home": "step-1.home", "commits": 2, "files": 1,
		"insertions": 1, "deletions": 1}}`)
	return &jobs{fake: f, files: map[string][]string{
		"output": {
			"starting\n{\"type\":\"say\",\"text\":\"I look.\"}\n",
			"{\"type\":\"do\",\"text\":\"{\\\"command\\\": \\\"ls\\\"}\"}\n",
			"{\"unknown\": 1}\nwarning: \x1b[31mred\x1b[0m\n{\"type\":\"say\",\"text\":\"Done.\"}\n",
		},
		"step-1.patch":  {patchOfJob[:20], patchOfJob[20:]},
		"step-1.bundle": {"# v2 git bundle\n\x00\x01"},
		"step-1.home":   {"secrets of the agent"},
	}}
}

func (j *jobs) Chunks(_ context.Context, q belay.ChunkQuery) (out []belay.StoredChunk, err error) {
	for n, text := range j.files[q.Name] {
		if int64(n) >= q.From && len(out) < q.Limit {
			out = append(out, belay.StoredChunk{N: int64(n), Data: []byte(text)})
			j.sent += len(text)
		}
	}
	return out, nil
}

// narrateTest knows lines of the types say and do.
func narrateTest(line []byte) ([]Said, bool) {
	var m struct{ Type, Text string }
	if json.Unmarshal(line, &m) != nil {
		return nil, false
	}
	switch m.Type {
	case "say":
		return []Said{{Kind: "text", Text: m.Text}}, true
	case "do":
		return []Said{{Kind: "tool", Name: "Bash", Text: m.Text}}, true
	}
	return nil, false
}

// The page of a job shows its prompt, what the agent said and did in readable form, its answer, its cost, and its
// changes in lines of their own colours, with links to the bundle and the patch but not to HOME.
func TestThePageOfAJob(t *testing.T) {
	j := agentJob()
	a := get(t, j, here+id(1).String()+"/job")
	a.says("mend the notes", "I mended the notes.", "0.0123 USD", "900 in, 120 out", "https://example.org/app.git",
		"2 commits · 1 file changed, +1 −1 lines", "abc123", "pid namespace", "warning: red", `{"unknown": 1}`)
	var turns []string
	for _, x := range a.root.class("turn") {
		turns = append(turns, x.words())
	}
	want := `output starting|agent I look.|tool Bash ls|output {"unknown": 1} warning: red|agent Done.`
	if got := strings.Join(turns, "|"); got != want {
		t.Errorf("the transcript is\n%s\nwant\n%s", got, want)
	}
	for class, want := range map[string]string{
		"added": "+new line", "gone": "-old line--- not a header", "hunk": "@@ -1,2 +1,2 @@",
		"file": "diff --git a/notes.txt b/notes.txt", "head": "--- a/notes.txt+++ b/notes.txt",
	} {
		got := ""
		for _, x := range a.root.class("diff")[0].class(class) {
			got += strings.TrimSpace(x.words())
		}
		if got != want {
			t.Errorf("%s: %q, want %q", class, got, want)
		}
	}
	if strings.Contains(a.body, "step-1.home") || strings.Contains(a.body, `http-equiv="refresh"`) {
		t.Error("the page names HOME, or reloads itself after the end")
	}
	get(t, j, here+id(1).String()).says("Transcript and changes")
	j.one.State = belay.Running
	if a := get(t, j, here+id(1).String()+"/job"); !strings.Contains(a.body, `http-equiv="refresh"`) {
		t.Error("the page of a running job does not reload itself")
	}
	j.one.Workflow = "review"
	if a := get(t, j, here+id(1).String()+"/job"); a.status != http.StatusNotFound {
		t.Errorf("the page of an execution that is no job: %d", a.status)
	}
}

// The files of a job are downloads, which no browser shows as a page. Only the artifacts with the changes are files.
func TestFilesOfAJob(t *testing.T) {
	j := agentJob()
	at := here + id(1).String() + "/files/"
	a := get(t, j, at+"step-1.patch")
	if a.status != http.StatusOK || a.body != patchOfJob {
		t.Errorf("%d %q", a.status, a.body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Content-Disposition":     `attachment; filename="` + id(1).String() + `-step-1.patch"`,
		"Content-Security-Policy": "default-src 'none'; sandbox",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{
		"output", "step-1.home", "step-2.patch", "", "..%2Fstep-1.patch", "%00", "step-1.patch/x",
	} {
		if a := get(t, j, at+name); a.status != http.StatusNotFound || strings.Contains(a.body, "secrets") {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	for _, s := range append(hostile, "a\r\nSet-Cookie: x=1", `"; filename="x.html`) {
		name, _ := json.Marshal(s)
		var stored string
		_ = json.Unmarshal(name, &stored)
		j.one.Output = []byte(`{"changes": {"patch": ` + string(name) + `}}`)
		j.files[stored] = []string{"<script>"}
		a := get(t, j, at+percentAll(stored))
		checkTame(t, get(t, j, here+id(1).String()+"/job"))
		if len(stored) > 300 || stored == "" {
			continue
		}
		d := a.header.Get("Content-Disposition")
		if a.status == http.StatusOK && (strings.Trim(d, `; ="_-.0123456789`+
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || strings.Count(d, `"`) != 2) {
			t.Errorf("%.40q: %s", stored, d)
		}
		if a.header.Get("Set-Cookie") != "" {
			t.Error("a name sets a header")
		}
	}
}

// percentAll is percent without a bound.
func percentAll(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// The page of an ended job leads to the jobs before and after it in its conversation. If there is none after it, the
// page leads to the form of a reply. The form sends the message with a key that is the same if it is sent twice, and
// goes to the page of the new job. A refused reply keeps the message.
func TestRepliesToAnAgent(t *testing.T) {
	at := here + id(1).String()
	j := agentJob()
	if a := get(t, j, at+"/job"); strings.Contains(a.body, at+"/reply") || strings.Contains(a.body, "Conversation") {
		t.Error("a visitor without the scope submit is offered a reply")
	}
	page := send(t, j, by(at+"/job", nil, belay.ScopeSubmit))
	if !strings.Contains(page.body, at+"/reply") {
		t.Fatal("the page does not lead to the form of a reply")
	}
	form := send(t, j, by(at+"/reply", nil, belay.ScopeSubmit))
	form.says("Reply", "Message")
	op := form.root.class("act")[0].all("input")
	values := url.Values{"message": {"go on\n"}}
	for _, x := range op {
		values.Set(x.attr["name"], x.attr["value"])
	}
	for range 2 {
		got := send(t, j, by(at+"/reply", values, belay.ScopeSubmit))
		if to := here + id(7).String() + "/job"; got.status != http.StatusSeeOther || got.header.Get("Location") != to {
			t.Errorf("the reply: %d to %q", got.status, got.header.Get("Location"))
		}
	}
	if want := id(1).String() + " go on\n " + values.Get("op"); len(j.replies) != 2 || j.replies[0] != want ||
		j.replies[1] != want {
		t.Errorf("the replies are %q", j.replies)
	}
	j.refuse = &belay.Error{Code: belay.CodeConflict, Message: "continued by another job"}
	if got := send(t, j, by(at+"/reply", values, belay.ScopeSubmit)); got.status != http.StatusConflict {
		t.Errorf("a refused reply: %d", got.status)
	} else {
		got.says("Continued by another job", "go on")
	}
	j.replies = nil
	for _, r := range []*http.Request{
		by(at+"/reply", values, belay.ScopeRead, belay.ScopeOperate),
		by(at+"/reply", url.Values{"message": {" "}, "op": values["op"]}, belay.ScopeSubmit),
		by(at+"/reply", url.Values{"message": {"go on"}}, belay.ScopeSubmit),
	} {
		if got := send(t, j, r); got.status < 400 || len(j.replies) > 0 {
			t.Errorf("%s: %d", r.URL, got.status)
		}
	}

	for _, title := range append([]string{"now the changelog"}, hostile...) {
		j.after = []belay.Execution{{ID: id(8), Workflow: "agent", Labels: map[string]string{"prompt": title}}}
		page = send(t, j, by(at+"/job", nil, belay.ScopeSubmit))
		checkTame(t, page)
		if strings.Contains(page.body, at+"/reply") || !strings.Contains(page.body, here+id(8).String()+"/job") {
			t.Errorf("the page of a continued job offers a reply, or does not lead to the next job")
		}
	}
	j.one.Input = []byte(`{"prompt": "more", "repo": "r", "continues": {"job": "` + id(6).String() + `"}}`)
	if a := get(t, j, at+"/job"); !strings.Contains(a.body, here+id(6).String()+"/job") {
		t.Error("the page does not lead to the job before it")
	}
	for _, change := range []func(e *belay.Execution){
		func(e *belay.Execution) { e.State = belay.Running },
		func(e *belay.Execution) { e.Output = []byte(`{"text": "the agent did not run"}`) },
		func(e *belay.Execution) { e.Input = []byte(`{"prompt": "without a repository"}`) },
	} {
		j := agentJob()
		change(j.one)
		if a := send(t, j, by(at+"/job", nil, belay.ScopeSubmit)); strings.Contains(a.body, at+"/reply") {
			t.Errorf("a reply is offered for %+v", j.one)
		}
	}
}

// The page of a job that waits shows the question of the agent, and leads to a form for the answer. Any question is
// inert.
func TestTheQuestionOfAnAgent(t *testing.T) {
	for _, question := range append([]string{"May I?"}, hostile...) {
		j := agentJob()
		j.one.State, j.one.Output = belay.Waiting, nil
		text, err := json.Marshal(question)
		if err != nil {
			t.Fatal(err)
		}
		j.files["questions"] = []string{
			"{\"number\":1,\"text\":\"an earlier one\",\"signal\":\"answer-1-a\"}\n",
			`{"number":2,"text":` + string(text) + ",\"signal\":\"answer-2-b\"}\n",
		}
		a := get(t, j, here+id(1).String()+"/job")
		checkTame(t, a)
		form := send(t, j, by(answerPath(id(1), "answer-2-b"), nil, belay.ScopeSubmit))
		checkTame(t, form)
		if n := len(form.root.all("pre")); n != 1 {
			t.Errorf("%.20q: the form has %d questions", question, n)
		}
		if question != "May I?" {
			continue
		}
		form.says("Answer the agent", "May I?")
		send(t, j, by(answerPath(id(1), "answer-1-a"), nil, belay.ScopeSubmit)).says("an earlier one")
		for _, name := range []string{"answer-3-c", "go", ""} {
			if a := send(t, j, by(answerPath(id(1), name), nil, belay.ScopeSubmit)); len(a.root.all("pre")) != 0 {
				t.Errorf("the signal %q has a question\n%s", name, a.body)
			}
		}
		a.says("May I?", "Answer the agent")
		if strings.Contains(a.body, "an earlier one") {
			t.Error("the page shows an answered question")
		}
		if want := "/signal?approval=answer&amp;name=answer-2-b"; !strings.Contains(a.body, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}

// The page of the execution of an agent that asks leads to the form for the answer, and not to that of a signal.
func TestTheExecutionOfAnAgentLeadsToTheAnswer(t *testing.T) {
	j := agentJob()
	j.one.State, j.one.Output = belay.Waiting, nil
	at := here + id(1).String()
	for name, want := range map[string]string{
		"answer-2-b": answerPath(id(1), "answer-2-b"), "answer-<b>&": answerPath(id(1), "answer-<b>&"),
		"go": at + "/signal",
	} {
		j.why.Execution = id(1)
		j.why.Remedies = []belay.Remedy{{
			Do: belay.RemedySignal, Of: belay.RemedyExecution, ID: id(1).String(), Signal: name, Title: "Send it",
		}}
		page := send(t, j, by(at, nil, belay.ScopeSubmit))
		checkTame(t, page)
		var got []string
		for _, l := range page.root.class("button") {
			got = append(got, l.words()+" "+l.attr["href"])
		}
		label := "Answer the agent "
		if name == "go" {
			label = "Send it "
		}
		if diff := cmp.Diff([]string{label + want}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if a := send(t, j, by(at, nil, belay.ScopeRead)); len(a.root.class("button")) != 0 {
			t.Errorf("%s: a key without the scope submit gets a form", name)
		}
	}
	j.one.Workflow = "w"
	j.why.Remedies[0].Signal = "answer-2-b"
	if a := send(t, j, by(at, nil, belay.ScopeSubmit)); strings.Contains(a.body, "Answer the agent") {
		t.Error("an execution without an agent has an answer")
	}
}

// The form of an answer sends what the API sends, so that the first answer counts, whatever its way.
func TestAnAnswerOnAPageIsThatOfTheAPI(t *testing.T) {
	j := agentJob()
	j.one.State, j.one.Output = belay.Waiting, nil
	at := here + id(1).String()
	form := fieldsOnPage(send(t, j, by(at+"/signal?approval=answer&name=answer-2-b", nil, belay.ScopeSubmit)))
	form.Set("f0", "yes")
	send(t, j, by(at+"/signal", form, belay.ScopeSubmit))
	want := belay.SignalRequest{
		Execution: id(1), Name: "answer-2-b", Payload: json.RawMessage(`"yes"`),
		Actor: "anna", Op: wire.OpOf(id(1).String() + " answer-2-b"),
	}
	if diff := cmp.Diff([]belay.SignalRequest{want}, j.signals); diff != "" {
		t.Error(diff)
	}
	j.refusal = &belay.Error{Code: belay.CodeIdempotencyMismatch}
	a := send(t, j, by(at+"/signal", form, belay.ScopeSubmit))
	if a.says("answered already"); a.status != http.StatusConflict {
		t.Errorf("another answer: %d", a.status)
	}
}

// Any text of an agent is inert, in every form of its output, and the page and its reads are bounded.
func TestHostileJobs(t *testing.T) {
	long := strings.Repeat(`xxxxxxxxxxxxxx<"`, 10<<16) // ten megabytes in one line
	for _, s := range append(hostile, long, strings.Repeat("\n", 1<<20), strings.Repeat("\xff", 1<<20)) {
		j := agentJob()
		text, _ := json.Marshal(s)
		j.one.Input = []byte(`{"prompt": ` + string(text) + `, "repo": ` + string(text) + `, "steps": [{"argv": [` +
			string(text) + `]}]}`)
		j.one.Output = []byte(`{"text": ` + string(text) + `, "denied": [` + string(text) + `], "notes": [` +
			string(text) + `], "walls": ` + string(text) + `, "changes": {"patch": "p", "lost": ` + string(text) + `}}`)
		lines := s + "\n{\"type\":\"say\",\"text\":" + string(text) + "}\n{\"type\":\"do\",\"text\":" +
			string(text) + "}\n" + s
		j.files["output"], j.files["p"] = nil, nil
		for text := lines; text != ""; {
			n := min(len(text), belay.MaxChunk)
			j.files["output"], j.files["p"] = append(j.files["output"], text[:n]), append(j.files["p"], text[:n])
			text = text[n:]
		}
		a := get(t, j, here+id(1).String()+"/job")
		checkTame(t, a)
		if len(a.body) > 1<<20 || a.status != http.StatusOK {
			t.Errorf("%.20q: %d, %d bytes", s, a.status, len(a.body))
		}
		if most := 40 * belay.MaxChunk; j.sent > most {
			t.Errorf("%.20q: %d bytes read", s, j.sent)
		}
	}
}

// The page of the checkpoints shows values with their sizes, and for checkpoints of the same name the difference.
func TestCheckpoints(t *testing.T) {
	f := running()
	at := here + id(1).String() + "/checkpoints"
	big := `"` + strings.Repeat("x", 100<<10) + `"`
	f.events = []belay.Event{
		{Seq: 1, Kind: "submitted", At: noon},
		{Seq: 2, Kind: "step", At: noon, Name: "fetch", Data: []byte(`{"a":1,"b":[1,2]}`)},
		{Seq: 3, Kind: "state", At: noon, Name: "", Pruned: true},
		{Seq: 4, Kind: "step", At: noon, Name: "fetch", Data: []byte(`{"a":2,"b":[1,2]}`)},
		{Seq: 5, Kind: "step", At: noon, Name: "fetch", Data: []byte(`{"a":2,"b":[1,2]}`)},
		{Seq: 6, Kind: "step", At: noon, Name: "fetch", Data: []byte(big)},
		{Seq: 7, Kind: "signal", At: noon, Name: "go", Data: []byte(`"now"`)},
	}
	f.one.Seq = 7
	f.list = func(q belay.Filter) (belay.Page, error) {
		if q.Parent != id(1) || q.Limit > mostChildren {
			t.Errorf("%+v", q)
		}
		return belay.Page{Next: "x", Executions: []belay.Execution{
			{
				ID: id(5), Workflow: "part", ParentKey: "one", State: belay.Failed,
				Error: &belay.Failure{Message: "it broke"},
			},
		}}, nil
	}
	a := get(t, f, at)
	a.says("part", "it broke", "All children", "Compared with seq 2", `- "a": 1,`, `+ "a": 2,`,
		"The value is the same as that of seq 4", "Its data is gone", "too large for a comparison with seq 5",
		"100.0 KiB", "go")
	if strings.Contains(a.body, strings.Repeat("x", savedShown)) {
		t.Error("the page has a large value as a whole")
	}
	get(t, f, here+id(1).String()).says("Checkpoints and children")
	if a := get(t, f, at+"?after=x"); a.status != http.StatusBadRequest {
		t.Errorf("%d", a.status)
	}
}

// Any text in checkpoints and children is inert, and the page stays bounded, however large they are.
func TestHostileCheckpoints(t *testing.T) {
	for _, s := range append(hostile, strings.Repeat("[", 60<<10), strings.Repeat("a\n", 30<<10)) {
		f := poisoned(s)
		text, _ := json.Marshal(s)
		f.events = nil
		for i := range 150 {
			f.events = append(f.events, belay.Event{
				Seq: int64(i + 1), Kind: []string{"step", "state", s}[i%3], At: ago(time.Minute), Name: s,
				Data: []byte(fmt.Sprintf(`{"n": %d, "text": %s}`, i, text)),
			})
		}
		f.one.Seq = 150
		for _, q := range []string{"", "?after=0", "?after=" + percent(s)} {
			a := get(t, f, here+id(1).String()+"/checkpoints"+q)
			checkTame(t, a)
			if len(a.body) > 1<<20 {
				t.Errorf("%.20q: %d bytes", s, len(a.body))
			}
		}
	}
}
