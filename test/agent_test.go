package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// agents is a running server with an agent service, with methods that call the server as clients
// do.
type agents struct {
	api
	*place
	server *started
}

// smallAgent returns the command of a test agent that carries out its prompt line by line.
func smallAgent(t *testing.T, flags ...string) string {
	t.Helper()
	path, err := filepath.Abs("../examples/agent-service/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	argv, err := json.Marshal(append(append([]string{program(t, "python3"), path}, flags...), "--", "{{prompt}}"))
	if err != nil {
		t.Fatal(err)
	}
	return string(argv)
}

// program finds a program in PATH that every user may run, since each job runs it as the job's own
// user.
func program(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err == nil && forEverybody(path) {
			return filepath.Join(dir, name)
		}
	}
	t.Fatalf("there is no %s in PATH that every user may run", name)
	return ""
}

func forEverybody(path string) bool {
	for want := os.FileMode(0o005); ; want = 0o001 {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&want != want {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}

// assisted starts a server whose agent is the small test agent. env adds variables to the
// environment of the server.
func (p *place) assisted(env []string, args ...string) agents {
	p.t.Helper()
	cmd := p.command(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(p.environment("BELAY_AGENT_COMMAND="+smallAgent(p.t)), env...)
	x := p.start(cmd)
	x.until("the server is ready", func() bool { return ready.MatchString(x.err.String()) })
	return agents{api{p.t, ready.FindString(x.err.String())}, p, x}
}

// killAndRestart kills the server and starts another in its place. It returns when the new server has
// cleaned up the dead server's workspaces.
func (a agents) killAndRestart(env []string, args ...string) agents {
	a.api.t.Helper()
	a.server.signal(syscall.SIGKILL)
	a.server.wait(patience)
	old, err := filepath.Glob(filepath.Join(a.data, "workspaces", "jobs", "*", "owner.json"))
	if err != nil {
		a.api.t.Fatal(err)
	}
	was := make(map[string]string)
	for _, file := range old {
		was[file] = read(a.api.t, file)
	}
	b := a.assisted(env, args...)
	for file, text := range was {
		until(a.api.t, "the workspaces of the dead server are gone", func() bool {
			now, err := os.ReadFile(file) // the job's next run may have made the file anew
			return err != nil || string(now) != text
		})
	}
	return b
}

// stop stops the server gracefully and checks that no process and no workspace is left.
func (a agents) stop() result {
	a.api.t.Helper()
	a.server.signal(syscall.SIGTERM)
	r := a.server.wait(patience).want(0)
	a.clean()
	return r
}

// jsonText returns a text as a JSON string.
func jsonText(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// ask submits a prompt to the agent and returns the job's id.
func (a agents) ask(prompt string, more ...string) string {
	a.api.t.Helper()
	body := `{"prompt":` + jsonText(prompt)
	for _, m := range more {
		body += "," + m
	}
	got := a.want(http.StatusAccepted, "POST", "/execute", body+"}")
	if got.string("status") != "queued" || got.header.Get("Location") != "/jobs/"+got.string("job_id") {
		a.api.t.Fatalf("accepted with %s, %v", got.text, got.header)
	}
	return got.string("job_id")
}

func (a agents) job(id string) answer {
	a.api.t.Helper()
	return a.want(http.StatusOK, "GET", "/jobs/"+id, "")
}

// ended waits for the end of a job.
func (a agents) ended(id string) answer {
	a.api.t.Helper()
	for range 5 {
		if got := a.want(http.StatusOK, "GET", "/jobs/"+id+"?wait=30", ""); got.at("finished_at") != nil {
			return got
		}
	}
	a.api.t.Fatalf("job %s does not end", id)
	return answer{}
}

func (a agents) wantEnd(id, status string, code any) answer {
	a.api.t.Helper()
	got := a.ended(id)
	if got.string("status") != status || got.at("exit_code") != code {
		a.api.t.Fatalf("the job ended as %s", got.text)
	}
	return got
}

func (a agents) wantHealth(busy bool, active, queued, capacity int) {
	a.api.t.Helper()
	want := fmt.Sprintf(`{"status":"ok","busy":%v,"active":%d,"queued":%d,"capacity":%d}`, busy, active, queued,
		capacity)
	var got string
	if !poll(patience, func() bool {
		got = strings.TrimSpace(a.want(http.StatusOK, "GET", "/health", "").text)
		return got == want
	}) {
		a.api.t.Fatalf("health is %s, want %s", got, want)
	}
}

// hold returns a prompt that makes the agent create a file and then wait until the test calls free.
func (a agents) hold(name string) string {
	return "touch $TMPDIR/" + name + "\nuntil $TMPDIR/free-" + name + "\nfreed " + name
}

// held returns the path of the file that the agent has created for the prompt of hold, or "" while
// no agent runs that prompt.
func (a agents) held(name string) string {
	a.api.t.Helper()
	found, err := filepath.Glob(filepath.Join(a.data, "workspaces", "jobs", "*", "tmp", name))
	if err != nil {
		a.api.t.Fatal(err)
	}
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

func (a agents) holds(name string) {
	a.api.t.Helper()
	until(a.api.t, name+" runs", func() bool { return a.held(name) != "" })
}

func (a agents) free(name string) {
	a.api.t.Helper()
	at := a.held(name)
	if at == "" {
		a.api.t.Fatalf("%s does not run", name)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(at), "free-"+name), nil, 0o644); err != nil {
		a.api.t.Fatal(err)
	}
}

// Rule: two jobs run at the same time, each in its own workspace. The agent's output is the job's
// result, and the workspaces are removed at the end of the jobs.
func TestTwoExecutesRunAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted(nil, "--agent-repo", p.repository())
	one, two := a.ask("where\n"+a.hold("one")), a.ask("where\n"+a.hold("two"))
	a.holds("one")
	a.holds("two")
	a.wantHealth(false, 2, 0, 10)
	if got := a.job(one); got.string("status") != "running" || got.at("exit_code") != nil || got.at("result") != nil ||
		got.at("finished_at") != nil || got.at("started_at") == nil {
		t.Errorf("while it runs: %s", got.text)
	}
	a.free("one")
	a.free("two")
	first, second := a.wantEnd(one, "completed", 0.0).string("result"), a.wantEnd(two, "completed",
		0.0).string("result")
	place1, said1, _ := strings.Cut(first, "\n")
	place2, said2, _ := strings.Cut(second, "\n")
	if place1 == place2 || !strings.HasPrefix(place1, p.data) || said1 != "freed one\n" || said2 != "freed two\n" {
		t.Errorf("the results are %q and %q", first, second)
	}
	a.wantHealth(false, 0, 0, 10)
	a.stop()
}

// Rule: jobs beyond MAX_CONCURRENCY wait in the order of their arrival, and are not refused.
func TestAThirdJobWaitsForASlot(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted([]string{"MAX_CONCURRENCY=2"})
	ids := make(map[string]string)
	for _, name := range []string{"a", "b", "c", "d"} {
		ids[name] = a.ask(a.hold(name))
		if name <= "b" {
			a.holds(name)
		}
	}
	a.wantHealth(true, 2, 2, 2)
	if got := a.job(ids["c"]); got.string("status") != "queued" || got.at("started_at") != nil {
		t.Errorf("the third is %s", got.text)
	}
	a.free("a")
	a.holds("c")
	if a.held("d") != "" || a.job(ids["d"]).string("status") != "queued" {
		t.Error("the fourth runs beside the second and the third")
	}
	a.wantEnd(ids["a"], "completed", 0.0)
	for _, name := range []string{"b", "c"} {
		a.free(name)
	}
	a.holds("d")
	a.free("d")
	for _, name := range []string{"b", "c", "d"} {
		a.wantEnd(ids[name], "completed", 0.0)
	}
	a.wantHealth(false, 0, 0, 2)
}

// Rule: each job has its own timeout, which begins when its agent starts, not while it waits for a
// slot. When the time is over, the server kills the agent, and the job's error says so.
func TestATimeoutDoesNotCountTheQueue(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted([]string{"MAX_CONCURRENCY=1"}, "--agent-grace", "100ms", "--agent-repos", p.path("repo"))
	before := a.ask(a.hold("before"))
	patient := a.ask("sleep 0.1\nin time", `"timeout_seconds":4`)
	late := a.ask("edit left.txt half\nsleep 600", `"timeout_seconds":3`, `"repo":`+jsonText(p.repository()))
	a.holds("before")
	if !a.server.after(4500 * time.Millisecond) { // longer than either job may run
		t.Fatal("the server has ended")
	}
	a.free("before")
	a.wantEnd(before, "completed", 0.0)
	if got := a.wantEnd(patient, "completed", 0.0); got.string("result") != "in time\n" {
		t.Errorf("%s", got.text)
	}
	got := a.wantEnd(late, "timeout", 124.0)
	if !strings.Contains(got.string("error"), "ran out of time") || got.string("changes", "patch") != "step-1.patch" {
		t.Errorf("after the timeout: %s", got.text)
	}
	if patch := p.artifact(parse(t, late), "step-1.patch"); !strings.Contains(patch, "+half") {
		t.Errorf("the job's changes are %q", patch)
	}
	a.stop()
}

// Rule: /jobs returns a job until JOB_TTL_SECONDS after the job's end; the job's execution is kept.
func TestJobsAreEvicted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted([]string{"JOB_TTL_SECONDS=2"})
	id := a.ask("done")
	end := a.wantEnd(id, "completed", 0.0)
	finished, err := time.Parse(time.RFC3339Nano, end.string("finished_at"))
	if err != nil {
		t.Fatal(err)
	}
	held := a.ask(a.hold("held"))
	a.holds("held")
	until(t, "the job is evicted", func() bool {
		return a.call("GET", "/jobs/"+id, "").status == http.StatusNotFound
	})
	if since := time.Since(finished); since < 2*time.Second {
		t.Errorf("the job was evicted after %s", since)
	}
	for _, call := range []string{"GET /jobs/" + id + "/log", "POST /jobs/" + id + "/cancel", "DELETE /jobs/" + id} {
		method, path, _ := strings.Cut(call, " ")
		a.want(http.StatusNotFound, method, path, "")
	}
	a.want(http.StatusOK, "GET", "/v1/executions/"+id, "")
	if got := a.job(held); got.string("status") != "running" {
		t.Errorf("a job that runs is %s", got.text)
	}
	a.free("held")
	a.wantEnd(held, "completed", 0.0)
}

// Rule: no more than MAX_QUEUE_DEPTH jobs run or wait, however many requests arrive at once, also
// after a restart of the server. The server refuses a further request, and says after which time to
// repeat it. It still accepts a repeat of an accepted request.
func TestJobsBeyondTheQueueDepthAreRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	env := []string{"MAX_CONCURRENCY=2", "MAX_QUEUE_DEPTH=5"}
	a := p.assisted(env, bare...)
	free := p.path("free")
	storm := func() map[int]int {
		var all sync.WaitGroup
		var mu sync.Mutex
		statuses := make(map[int]int)
		for range 30 {
			all.Go(func() {
				got := a.call("POST", "/execute", `{"prompt":`+jsonText("until "+free)+`}`)
				mu.Lock()
				defer mu.Unlock()
				statuses[got.status]++
				if got.status == http.StatusTooManyRequests && (got.header.Get("Retry-After") == "" ||
					got.string("code") != "queue_full") {
					t.Errorf("refused with %v %s", got.header, got.text)
				}
			})
		}
		all.Wait()
		return statuses
	}
	keyed := `{"prompt":` + jsonText("until "+free) + `}`
	first := a.want(http.StatusAccepted, "POST", "/execute", keyed, "Idempotency-Key", "k").string("job_id")
	if got := storm(); got[http.StatusAccepted] != 4 || got[http.StatusTooManyRequests] != 26 {
		t.Errorf("the storm was answered with %v", got)
	}
	a.wantHealth(true, 2, 3, 2)
	chat := a.want(http.StatusServiceUnavailable, "POST", "/v1/chat/completions",
		`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	if chat.header.Get("Retry-After") == "" || chat.string("error", "code") != "queue_full" ||
		chat.string("error", "message") == "" {
		t.Errorf("a chat was refused with %v %s", chat.header, chat.text)
	}
	again := a.want(http.StatusAccepted, "POST", "/execute", keyed, "Idempotency-Key", "k")
	if again.string("job_id") != first || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the repeat got %s", again.text)
	}
	a.want(http.StatusUnprocessableEntity, "POST", "/execute", `{"prompt":"another"}`, "Idempotency-Key", "k")

	a.server.signal(syscall.SIGKILL)
	a.server.wait(patience)
	a = p.assisted(env, bare...)
	if got := storm(); got[http.StatusTooManyRequests] != 30 {
		t.Errorf("after a restart the storm was answered with %v", got)
	}
	if err := os.WriteFile(free, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	a.wantEnd(first, "completed", 0.0)
	a.wantHealth(false, 0, 0, 2)
	if got := storm(); got[http.StatusAccepted] < 5 {
		t.Errorf("when there is room again the storm was answered with %v", got)
	}
	a.stop()
}

// Rule: a job reports correctly how it ended; a failed job is not retried and leaves no dead
// letter.
func TestJobsReportHowTheyEnded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted(nil, "--agent-repo", p.repository())
	got := a.wantEnd(a.ask("edit new.txt text\nfail 7", `"metadata":{"team":["a",1]}`), "failed", 7.0)
	if got.string("error") != "the agent ended with exit code 7" ||
		!strings.Contains(got.text, `"metadata":{"team":["a",1]}`) || got.string("changes", "patch") == "" {
		t.Errorf("%s", got.text)
	}
	failed := p.execution(parse(t, got.string("job_id")))
	if failed.Attempt != 1 || failed.State != belay.Failed {
		t.Errorf("the execution is %+v", failed)
	}
	dead := regexp.MustCompile(`(?m)^belay_dead_letters\{.*\} (.*)$`).FindAllStringSubmatch(a.want(http.StatusOK, "GET",
		"/metrics", "").text, -1)
	if len(dead) == 0 || slices.ContainsFunc(dead, func(n []string) bool { return n[1] != "0" }) {
		t.Errorf("a failed job left a dead letter: %q", dead)
	}
	got = a.wantEnd(a.ask("hello", `"ref":"no-such-branch"`), "error", nil)
	if !strings.Contains(got.string("error"), "no-such-branch") {
		t.Errorf("%s", got.text)
	}

	id := a.ask("edit part.txt part\n" + a.hold("held"))
	a.holds("held")
	a.want(http.StatusAccepted, "POST", "/jobs/"+id+"/cancel", "")
	got = a.wantEnd(id, "error", 143.0)
	if !strings.HasPrefix(got.string("error"), "cancelled") || got.string("changes", "patch") == "" {
		t.Errorf("%s", got.text)
	}
	a.want(http.StatusAccepted, "DELETE", "/jobs/"+id, "") // a second cancel of the same job
	a.want(http.StatusNotFound, "GET", "/jobs/ex_00000000000000000000000000", "")
	a.want(http.StatusNotFound, "GET", "/jobs/nonsense", "")
	a.stop()
}

// Rule: the server refuses a request for a job that cannot run, and stores nothing of it.
func TestExecuteRefusesWhatCannotRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	repo := p.repository()
	a := p.assisted(nil, "--agent-repo", repo, "--agent-repos", `["https://git.example/team/*"]`)
	for body, status := range map[string]int{
		`{}`:                                  http.StatusUnprocessableEntity,
		`{"prompt":""}`:                       http.StatusUnprocessableEntity,
		`{"prompt":" "}`:                      http.StatusUnprocessableEntity,
		`{"prompt":7}`:                        http.StatusUnprocessableEntity,
		`{"prompt":"a","colour":1}`:           http.StatusUnprocessableEntity,
		`{"prompt":"a","timeout_seconds":0}`:  http.StatusUnprocessableEntity,
		`{"prompt":"a","timeout_seconds":-1}`: http.StatusUnprocessableEntity,
		`{"prompt":"a","budget":{"cost":0}}`:  http.StatusUnprocessableEntity,
		`{"prompt":"a","budget":12.5}`:        http.StatusUnprocessableEntity,
		`{"prompt":"a","repo":"/etc"}`:        http.StatusForbidden,
		`{"prompt":"a","repo":"https://git.example/team/../x"}`:                  http.StatusUnprocessableEntity,
		`{"prompt":"a","repo":"https://git.example/team/%2e%2e/x"}`:              http.StatusUnprocessableEntity,
		`{"prompt":"a","repo":"https://git.example.evil/team/x"}`:                http.StatusForbidden,
		`{"prompt":"a","repo":"https://bot:token@git.example/team/x"}`:           http.StatusUnprocessableEntity,
		`{"prompt":"a","repo":"/no/such/path"}`:                                  http.StatusForbidden,
		`{"prompt":"a","ref":"--upload-pack=touch"}`:                             http.StatusUnprocessableEntity,
		`{"prompt":` + jsonText(strings.Repeat("x", 130<<10)) + `}`:              http.StatusRequestEntityTooLarge,
		`{"prompt":"a","metadata":` + jsonText(strings.Repeat("y", 1<<20)) + `}`: http.StatusRequestEntityTooLarge,
		`{"prompt":"a"`: http.StatusBadRequest,
		``:              http.StatusBadRequest,
	} {
		if got := a.call("POST", "/execute", body); got.status != status || got.string("code") == "" {
			t.Errorf("%s: %d, want %d: %s", clip(body), got.status, status, got.text)
		}
	}
	if all := p.executions(); len(all) != 0 {
		t.Errorf("%d executions are stored", len(all))
	}
}

// Rule: the agent gets a prompt as one argument, byte for byte. No shell reads the prompt, and the
// agent cannot read it as an option.
func TestAPromptIsOneArgument(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	show := `["sh","-c","for a in \"$@\"; do printf '<%s>' \"$a\"; done","sh","{{prompt}}"]`
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + show})
	for prompt, want := range map[string]string{
		"$(touch " + p.path("pwned") + ")":  "<$(touch " + p.path("pwned") + ")>",
		"`id`; rm -rf / 'x' \"y\" \\ \n\t*": "<`id`; rm -rf / 'x' \"y\" \\ \n\t*>",
		"--help":                            "< --help>",
		"{{prompt}} \u00e9\u4e16":           "<{{prompt}} \u00e9\u4e16>",
	} {
		if got := a.wantEnd(a.ask(prompt), "completed", 0.0).string("result"); got != want {
			t.Errorf("%q arrived as %q", prompt, got)
		}
	}
	if exists(p.path("pwned")) {
		t.Error("a shell executed a prompt")
	}
	a.stop()

	a = p.assisted([]string{`BELAY_AGENT_COMMAND=["cat"]`})
	long := strings.Repeat("0123456789abcdef", 20<<10)
	if got := a.wantEnd(a.ask(long), "completed", 0.0).string("result"); got != long[len(long)-256<<10:] {
		t.Errorf("%d bytes of the prompt came back from standard input", len(got))
	}
}

// Rule: a secret from a file is in the agent's environment and nowhere else: neither in stored data
// nor in answers nor in the log.
func TestASecretStaysASecret(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const secret = "s3cr3t-7f1e2d9c"
	file := p.path("token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := p.assisted([]string{"TOKEN_FILE=" + file, "PLAIN=passed", "OTHER=not-passed"}, "--agent-env", "TOKEN,PLAIN")
	got := a.wantEnd(a.ask("show TOKEN\nshow PLAIN\nshow OTHER\nshow TOKEN_FILE"), "completed", 0.0)
	if got.string("result") != "[TOKEN]\npassed\n\n\n" {
		t.Errorf("the agent said %q", got.string("result"))
	}
	end := a.stop()
	if strings.Contains(got.text+end.out+end.err, secret) {
		t.Error("the secret is in an answer or in the log")
	}
	err := filepath.WalkDir(p.data, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			b, rerr := os.ReadFile(path)
			if strings.Contains(string(b), secret) {
				t.Errorf("the secret is in %s", path)
			}
			err = rerr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Rule: a job has the strongest sandbox that the machine allows, and the log describes it: under
// root, a job has its own user, cannot write outside its workspace and cannot see another job's
// files.
func TestAJobIsSandboxed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	mark := filepath.Join(filepath.Dir(filepath.Dir(p.root)), filepath.Base(filepath.Dir(p.root))+"-outside")
	script := `id -u; echo x > "$1" 2>/dev/null; echo x > /etc/belay-test 2>/dev/null; ls "` + p.data +
		`/workspaces/jobs" 2>/dev/null; cat "` + p.data +
		`/belay.db" 2>/dev/null | wc -c; touch ok && echo wrote; ulimit -c`
	argv, err := json.Marshal([]string{"sh", "-c", script, "sh", "{{prompt}}"})
	if err != nil {
		t.Fatal(err)
	}
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + string(argv)}, "--agent-repo", p.repository())
	one, two := a.wantEnd(a.ask(mark), "completed", 0.0).string("result"), a.wantEnd(a.ask(mark), "completed",
		0.0).string("result")
	a.server.says("an agent runs")
	if !strings.Contains(a.server.err.String(), "no new privileges") {
		t.Errorf("the log does not describe the sandbox of an agent\n%s", a.server.err.String())
	}
	if os.Geteuid() == 0 {
		first, rest, _ := strings.Cut(one, "\n")
		second, _, _ := strings.Cut(two, "\n")
		if first == "0" || first == second || strings.Count(rest, "run_") > 1 ||
			!strings.Contains("\n"+rest, "\n0\nwrote\n") {
			t.Errorf("the jobs said %q and %q", one, two)
		}
		if exists(mark) || exists("/etc/belay-test") {
			t.Error("a job has written outside its workspace")
		}
	}
	a.stop()
}

// Rule: the program of an agent is the first of its name in PATH that the job's user may run:
// programs that only root may run are skipped.
func TestProgramsThatOnlyRootMayRunAreSkipped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's jobs have users of their own")
	}
	t.Parallel()
	p := newPlace(t)
	closed := filepath.Join(p.root, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(closed, "python3"), []byte("#!/bin/sh\necho closed\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs("../examples/agent-service/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	argv, err := json.Marshal([]string{"python3", path, "--", "{{prompt}}"})
	if err != nil {
		t.Fatal(err)
	}
	a := p.assisted([]string{
		"BELAY_AGENT_COMMAND=" + string(argv), "PATH=" + closed + ":" + filepath.Dir(program(t, "python3")) +
			":/usr/bin:/bin",
	})
	a.wantEnd(a.ask("hello"), "completed", 0.0)
	a.stop()
}
