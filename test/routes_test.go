package test

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// Rule: every route applies the rules of /execute to submissions for agents: the queue depth, the
// allowed repositories, the form of prompts. No route's answer reveals which paths exist on the
// server.
func TestEveryRouteAppliesTheRulesForAgents(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted([]string{"MAX_CONCURRENCY=1", "MAX_QUEUE_DEPTH=3"}, "--agent-repos",
		`["https://git.example/team/*"]`)
	free := p.path("free")
	prompt := `{"prompt":` + jsonText("until "+free) + `}`
	submit := func(input string) string { return `{"workflow":"agent","input":` + input + `}` }
	batch := func(input string) string { return `{"ops":[{"submit":` + submit(input) + `}]}` }

	refused := make(map[string]string)
	for _, repo := range []string{p.repository(), p.root, p.path("none"), "/etc", "/etc/passwd",
		"git@git.example:team/x", "https://elsewhere.example/x"} {
		input := `{"prompt":"a","repo":` + jsonText(repo) + `}`
		for _, got := range []answer{a.call("POST", "/execute", input), a.call("POST", "/v1/executions", submit(input)),
			a.call("POST", "/v1/batch", batch(input))} {
			detail := got.string("detail")
			if got.status == http.StatusOK { // a batch has a status for each operation
				_, detail, _ = strings.Cut(got.text, `"detail":"`)
				detail, _, _ = strings.Cut(detail, `"`)
			} else if got.status != http.StatusForbidden {
				t.Errorf("%s: %d %s", repo, got.status, got.text)
			}
			refused[detail] = repo
		}
	}
	if len(refused) != 1 {
		t.Errorf("the answers reveal which paths exist: %q", refused)
	}
	for _, input := range []string{`{}`, `{"prompt":""}`, `{"prompt":"a","timeout":"-1s"}`,
		`{"prompt":"a","repo":"https://git.example/team/%2e%2e/x"}`, `[]`, `{"prompt":"a","ref":"--upload-pack=x"}`} {
		a.want(http.StatusUnprocessableEntity, "POST", "/v1/executions", submit(input))
	}
	if all := p.executions(); len(all) != 0 {
		t.Fatalf("%d executions are stored", len(all))
	}

	first := a.want(http.StatusAccepted, "POST", "/execute", prompt).string("job_id")
	second := a.want(http.StatusCreated, "POST", "/v1/executions", submit(prompt), "Idempotency-Key", "k").string("id")
	if got := a.want(http.StatusOK, "POST", "/v1/batch", batch(prompt)); !strings.Contains(got.text, `"submitted"`) {
		t.Errorf("the third place: %s", got.text)
	}
	for route, body := range map[string]string{"/execute": prompt, "/v1/executions": submit(prompt)} {
		if got := a.want(http.StatusTooManyRequests, "POST", route, body); got.string("code") != "queue_full" ||
			got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v %s", route, got.header, got.text)
		}
	}
	if got := a.want(http.StatusOK, "POST", "/v1/batch", batch(prompt)); !strings.Contains(got.text, `"queue_full"`) {
		t.Errorf("a batch: %s", got.text)
	}
	p.belay("submit", "agent", "--input", prompt).want(75).saying("the limit is 3")
	if again := a.want(http.StatusOK, "POST", "/v1/executions", submit(prompt), "Idempotency-Key",
		"k").string("id"); again != second {
		t.Errorf("a repeat found %s, want %s", again, second)
	}
	a.want(http.StatusOK, "POST", "/v1/executions/"+second+"/cancel", "{}")
	fourth := a.want(http.StatusAccepted, "POST", "/execute", prompt).string("job_id")
	p.belay("retry", second).want(75).saying("the limit is 3")
	p.belay("retry", second, "--input", `{"prompt":"a","repo":"/etc"}`).want(77)
	if err := os.WriteFile(free, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{first, fourth} {
		a.wantEnd(id, "completed", 0.0)
	}
	a.wantHealth(false, 0, 0, 1)
	a.stop()
}

// Rule: every route checks the form of a command. If the server itself would run the command, the
// route also checks agent.repos. The command of a user's own belay run may use any repository.
func TestEveryRouteAppliesTheRulesForCommands(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	repo := p.repository()
	_, a := p.serve("--concurrency", "1")
	submit := func(more string) string {
		return `{"workflow":"command"` + more + `,"input":{"repo":` + jsonText(repo) +
			`,"steps":[{"name":"a","argv":["true"]}]}}`
	}
	a.want(http.StatusForbidden, "POST", "/v1/executions", submit(""))
	// The server accepts any repository for another queue, because the workers of that queue check
	// the repository.
	a.want(http.StatusCreated, "POST", "/v1/executions", submit(`,"queue":"elsewhere"`))
	a.want(http.StatusUnprocessableEntity, "POST", "/v1/executions",
		`{"workflow":"command","input":{"repo":"https://bot:`+token+
			`@git.example/x","steps":[{"name":"a","argv":["true"]}]}}`)
	a.want(http.StatusUnprocessableEntity, "POST", "/v1/executions", `{"workflow":"command","input":{"steps":[]}}`)
	p.run("--repo", repo, "--", "true").want(0)
	p.run("--server", a.url, "--repo", repo, "--", "true").want(0)
	p.belay("submit", "command", "--wait", "--", "true").want(0)
	mustNotContainToken(t, p.data)
}
