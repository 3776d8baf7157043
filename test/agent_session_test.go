package test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// says fails the test if the answer does not have the text.
func (a answer) says(t *testing.T, text string) {
	t.Helper()
	if !strings.Contains(a.text, text) {
		t.Errorf("want %q\n%s", text, a.text)
	}
}

// reply continues the conversation of a job and returns the id of the new job.
func (a agents) reply(id, prompt string) string {
	a.api.t.Helper()
	return a.want(http.StatusAccepted, "POST", "/jobs/"+id+"/prompt", `{"prompt":`+jsonText(prompt)+`}`).string("job_id")
}

// Rule: a reply continues the conversation and the work of a job in a directory of the same name, also on another
// server, and a job can be continued only once.
func TestAReplyContinuesAJob(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted(nil, "--agent-repo", p.repository())
	first := a.wantEnd(a.ask("edit notes.txt one\ncommit first\nedit loose.txt left\nwhere"), "completed", 0.0)
	a.server.signal(syscall.SIGKILL)
	a.server.wait(patience)
	a = p.assisted(nil, "--agent-repo", p.path("repo"))
	id := first.string("job_id")
	second := a.reply(id, "where\ngit log --format=%s\ncat loose.txt\nedit loose.txt more\nshow BELAY_RESUMED")
	got := a.wantEnd(second, "completed", 0.0)
	where := strings.TrimSpace(first.string("result"))
	if want := where + "\nfirst\n"; !strings.HasPrefix(got.string("result"), want) ||
		!strings.HasSuffix(got.string("result"), "left\n\n") || got.string("continues") != id {
		t.Errorf("want %q\n%s", want, got.text)
	}
	a.want(http.StatusConflict, "POST", "/jobs/"+id+"/prompt", `{"prompt":"where"}`).says(t, second)
	third := a.wantEnd(a.reply(second, "cat loose.txt\nwhere"), "completed", 0.0)
	if third.string("result") != "left\nmore\n"+where+"\n" {
		t.Errorf("%s", third.text)
	}
	if commits, _ := third.at("changes", "commits").(float64); commits != 1 {
		t.Errorf("the changes are %v", third.at("changes"))
	}
	a.stop()
}

// Rule: only the server decides from which job a job inherits work.
func TestAContinuationCannotBeForged(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted(nil, "--agent-repo", p.repository())
	victim := a.wantEnd(a.ask("edit secret.txt s3cret"), "completed", 0.0).string("job_id")
	forged := `{"prompt":"cat secret.txt","repo":` + jsonText(p.path("repo")) + `,"continues":{"job":"` + victim +
		`","first":"` + victim + `","commit":"HEAD","changes":{"patch":"step-1.patch"}}}`
	a.want(http.StatusUnprocessableEntity, "POST", "/v1/executions", `{"workflow":"agent","input":`+forged+`}`).
		says(t, "POST /jobs/{id}/prompt")
	a.want(http.StatusUnprocessableEntity, "POST", "/execute", forged)
	r := p.belay("submit", "agent", "--input", forged)
	if r.code == 0 {
		t.Errorf("belay submit accepted it\n%s", r)
	}
	// no other job takes the place of the reply
	taken := `"idempotency_key":"continues ` + victim + `"`
	a.want(http.StatusUnprocessableEntity, "POST", "/v1/executions", `{"workflow":"agent","input":{"prompt":"where"},`+
		taken+`}`).says(t, "reserved")
	if r := p.belay("agent", "--detach", "--key", "continues "+victim, "where"); r.code == 0 {
		t.Errorf("belay agent took the place of a reply\n%s", r)
	}
	// a continuation that has failed can be run again, but not as the continuation of another job
	failed := a.wantEnd(a.reply(victim, "fail 3"), "failed", 3.0).string("job_id")
	if r := p.belay("retry", failed, "--input", forged); r.code == 0 {
		t.Errorf("belay retry accepted it\n%s", r)
	}
	if r := p.belay("retry", failed); r.code != 0 {
		t.Errorf("a continuation cannot be run again\n%s", r)
	}
	a.wantEnd(failed, "failed", 3.0)
	a.stop()
}

// wrote reports whether the model has written a file.
func wrote(d dialogue) bool {
	return slices.ContainsFunc(d.calls, func(c call) bool { return c.tool == "Write" })
}

// wantJobUsage checks the usage of a job: each answer of the stand-in model has 10 tokens of input and 5 of output.
func wantJobUsage(t *testing.T, job answer, input, output, usd float64) {
	t.Helper()
	if in, out, cost := job.at("usage", "input_tokens"), job.at("usage", "output_tokens"), job.at("usage",
		"cost_usd"); in != input || out != output || cost != usd {
		t.Errorf("the usage is %v and %v tokens, %v USD; want %v, %v and %v", in, out, cost, input, output, usd)
	}
}

// Rule: Claude Code gets a reply in its conversation, after the server was restarted, and gets it only once.
func TestClaudeGetsRepliesInItsConversation(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m := newModel(t, func(d dialogue) move {
		last := d.prompts[len(d.prompts)-1]
		if strings.HasPrefix(last, "write ") && !wrote(d) {
			return move{"", "Write", map[string]any{"file_path": workspaceOf(d) + "/new.txt", "content": "written\n"}}
		}
		return move{text: "Done: " + last}
	})
	a := p.serveClaude(m, "--agent-permissions", "all")
	first := a.wantEnd(a.ask("write it"), "completed", 0.0)
	a.stop()
	a = p.serveClaude(m, "--agent-permissions", "all")
	id := first.string("job_id")
	// Claude Code reports the usage of the whole conversation; each job is charged with its own part.
	wantJobUsage(t, first, 20, 10, 0.00028)
	for _, text := range []string{"second", "third"} {
		got := a.wantEnd(a.reply(id, text), "completed", 0.0)
		id = got.string("job_id")
		if got.string("result") != "Done: "+text || got.string("session") != first.string("session") {
			t.Errorf("%s", got.text)
		}
		wantJobUsage(t, got, 10, 5, 0.00014)
	}
	talks := m.talks()
	if got := talks[len(talks)-1].prompts; !slices.Equal(got, []string{"write it", "second", "third"}) {
		t.Errorf("the model got the prompts %q", got)
	}
	a.stop()
}

// Rule: an agent asks a person through its MCP server or through belay agent ask. The job waits without a slot and
// without a process, the answer arrives after the server was restarted, and the agent continues its conversation.
func TestClaudeAsksAPerson(t *testing.T) {
	t.Parallel()
	users(t, func(t *testing.T, p *place) {
		m := newModel(t, func(d dialogue) move {
			switch {
			case len(d.calls) == 0:
				return move{
					"", "Write", map[string]any{"file_path": workspaceOf(d) + "/new.txt", "content": "written\n"},
				}
			case len(d.calls) == 1:
				return move{"", "mcp__belay__ask_human", map[string]any{"question": "May I go on?"}}
			}
			return move{text: "The person said: " + d.prompts[len(d.prompts)-1]}
		})
		args := []string{"--agent-permissions", "all", "--agent-max-concurrency", "1"}
		a := p.serveClaude(m, args...)
		id := a.ask("work")
		until(t, "the job waits", func() bool { return a.job(id).string("status") == "waiting" })
		got := a.job(id)
		if q, ok := got.at("question").(map[string]any); !ok || q["text"] != "May I go on?" {
			t.Fatalf("%s", got.text)
		}
		a.wantHealth(false, 0, 1, 1)
		a.want(http.StatusConflict, "POST", "/jobs/"+id+"/prompt", `{"prompt":"x"}`).says(t, "/answer")
		a.stop()
		a = p.serveClaude(m, args...)
		a.want(http.StatusConflict, "POST", "/jobs/"+id+"/answer", `{"answer":"yes","question":2}`)
		a.want(http.StatusAccepted, "POST", "/jobs/"+id+"/answer", `{"answer":"yes, go on"}`)
		got = a.wantEnd(id, "completed", 0.0)
		if !strings.Contains(got.string("result"), "The answer is: yes, go on") {
			t.Errorf("%s", got.text)
		}
		wantJobUsage(t, got, 30, 15, 0.00042)
		if patch := p.artifact(parse(t, id), got.string("changes", "patch")); !strings.Contains(patch, "+written") {
			t.Errorf("the job's patch is %q", patch)
		}
		talks := m.talks()
		if last := talks[len(talks)-1]; last.prompts[0] != "work" || len(last.calls) != 2 {
			t.Errorf("the model got %+v", last)
		}
		a.stop()
	})
}

// Rule: an agent without a command that continues a conversation asks too: it is started again with the same prompt,
// and gets the answer to the same question at once.
func TestAnAgentAsksWithACommand(t *testing.T) {
	t.Parallel()
	users(t, func(t *testing.T, p *place) {
		script := `set -e; test -e begun.txt || echo begun > begun.txt; a=$("$BELAY_BIN" agent ask "Which colour?"); ` +
			`b=$("$BELAY_BIN" agent ask "And which size?"); echo "$a $b"; cat begun.txt`
		a := p.assisted([]string{`BELAY_AGENT_COMMAND=["sh","-c",` + jsonText(script) + `,"sh","{{prompt}}"]`},
			"--agent-repo", p.repository())
		id := a.ask("work")
		for i, text := range []string{"red", "large"} {
			until(t, "the job waits", func() bool { return a.job(id).at("question", "number") == float64(i+1) })
			p.belay("agent", "answer", id, text).want(0)
			if by := slices.Collect(maps.Values(a.senders(id))); slices.Contains(by, "") || len(by) != i+1 {
				t.Errorf("the answers are by %q", by)
			}
			if i == 0 {
				a.want(http.StatusConflict, "POST", "/jobs/"+id+"/answer", `{"answer":"blue","question":1}`)
			}
		}
		if got := a.wantEnd(id, "completed", 0.0); got.string("result") != "red large\nbegun\n" {
			t.Errorf("%s", got.text)
		}
		a.stop()
	})
}

// Rule: the real Claude Code edits, asks a person, is answered after the server was restarted, is prompted again, and
// pushes a branch. It looks for the credential of the push wherever it can, in both jobs, and finds nothing.
func TestClaudeFromAPromptToABranch(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := p.forge()
	search := fmt.Sprintf(hunt, p.root, p.data) + "hunt; echo searched"
	m := newModel(t, func(d dialogue) move {
		last := d.prompts[len(d.prompts)-1]
		switch len(d.calls) {
		case 0:
			return move{"", "Bash", map[string]any{"command": search}}
		case 1:
			return move{"", "Write", map[string]any{"file_path": workspaceOf(d) + "/new.txt", "content": "written\n"}}
		case 2:
			return move{"", "mcp__belay__ask_human", map[string]any{"question": "May I push?"}}
		case 3:
			if strings.Contains(last, "commit it") {
				return move{"", "Bash", map[string]any{
					"command": "git add -A && git commit -qm 'by Claude'; " + search,
				}}
			}
		}
		return move{text: "Done: " + last}
	})
	serve := func() agents {
		env := append([]string{
			"BELAY_AGENT_COMMAND=", "SSL_CERT_FILE=" + f.ca, "PATH=" + claudePath(t) + ":" + os.Getenv("PATH"),
		}, m.env()...)
		return p.assisted(env, "--agent-preset", "claude", "--agent-env", m.names(), "--agent-permissions", "all",
			"--agent-repo", f.repo(), "--agent-push", "--agent-push-credentials", f.logins)
	}
	a := serve()
	id := a.ask("work")
	until(t, "the job waits", func() bool { return a.job(id).string("status") == "waiting" })
	a.stop()
	a = serve()
	p.belay("agent", "answer", id, "yes").want(0)
	first := a.wantEnd(id, "completed", 0.0)
	r := p.belay("agent", "reply", "--push", id, "commit it").want(0)
	if !strings.Contains(r.out, "Done: commit it") || !strings.Contains(r.err, "pushed ") {
		t.Errorf("%s", r)
	}
	log := p.git(f.dir, "log", "--format=%s", "--all", "--glob=belay/*")
	if !strings.Contains(log, "by Claude") {
		t.Errorf("the forge has the commits %q", log)
	}
	talks := m.talks()
	searched := 0
	for _, c := range talks[len(talks)-1].calls {
		if strings.Contains(c.result, f.token) {
			t.Errorf("Claude has found the credential: %s", clip(c.result))
		}
		searched += strings.Count(c.result, "searched")
	}
	if searched != 2 || first.string("session") == "" {
		t.Errorf("Claude has searched %d times", searched)
	}
	a.stop()
}

// Rule: belay watch shows the tools that an agent uses, its reports and its questions as they happen, and belay ls the
// first line of its prompt.
func TestWatchShowsTheToolsOfAnAgent(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")}, "--agent-repo", p.repository())
	id := a.ask("report half done\nedit notes.txt hello\nask May I end?")
	w := p.start(p.command("watch", id))
	until(t, "watch shows the question", func() bool { return strings.Contains(w.out.String(), "May I end?") })
	for _, want := range []string{"report", "half done", "tool", `Edit {"file": "notes.txt"}`} {
		if !strings.Contains(w.out.String(), want) {
			t.Errorf("watch does not show %q: %s", want, w.out.String())
		}
	}
	p.belay("ls").want(0).showing("report half done")
	p.belay("agent", "answer", id, "yes").want(0)
	w.wait(patience).want(0)
	a.wantEnd(id, "completed", 0.0)
	a.stop()
}
