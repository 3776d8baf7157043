//go:build linux

package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/peer"
	"github.com/belaydev/belay/internal/server"
)

// TestMain also lets the test binary run as a supervisor of jobs and as a hostile job.
func TestMain(m *testing.M) {
	process.Main(process.Helper{Name: "attack", Run: attack})
	if url := os.Getenv("SERVER_TEST_ATTACK"); url != "" {
		os.Args = append([]string{"attack"}, strings.Fields(url)...)
		os.Exit(attack())
	}
	os.Exit(m.Run())
}

// attack sends requests that need a key to the server at os.Args[1], and prints the status of each
// answer. At the end it sends submissions of the workflow "left" without waiting for the answers.
func attack() int {
	url, victim := os.Args[1], os.Args[2]
	for _, r := range [][3]string{
		{http.MethodPost, "/v1/executions", `{"workflow": "stolen"}`},
		{http.MethodPost, "/v1/batch", `{"ops": [{"submit": {"workflow": "stolen"}}]}`},
		{http.MethodGet, "/v1/executions/" + victim, ""},
		{http.MethodPost, "/v1/executions/" + victim + "/cancel", "{}"},
		{http.MethodPost, "/v1/keys", `{"name": "stolen", "scopes": ["admin"]}`},
		{http.MethodPost, "/v1/workers", `{"name": "w", "workflows": [{"workflow": "w"}], "capacity": 1}`},
		{http.MethodGet, "/executions/" + victim, ""},
		{http.MethodGet, "/metrics", ""},
	} {
		status, text, err := try(context.Background(), http.DefaultClient, r[0], url+r[1], r[2])
		fmt.Println(status, r[0], r[1], strings.TrimSpace(text), err)
	}
	body := `{"workflow": "left"}`
	for range 20 {
		if c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
			_, _ = fmt.Fprintf(c, "POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
				"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			_ = c.Close()
		}
	}
	fmt.Println("done")
	return 0
}

// guarded starts a server that protects itself from jobs.
func guarded(t *testing.T, listen string, jobs server.Jobs, more ...func(*config.Config)) *running {
	t.Helper()
	return start(t, setup{
		cfg: func(c *config.Config) {
			c.Listen = net.JoinHostPort(listen, "0")
			for _, set := range more {
				set(c)
			}
		},
		jobs: func(context.Context) (server.Jobs, error) { return jobs, nil },
	})
}

// attacked checks the output of an attack: every request was refused, and the store is unchanged.
func attacked(t *testing.T, what string, r *running, said string) {
	t.Helper()
	answers := strings.Split(strings.TrimSpace(said), "\n")
	if last := answers[len(answers)-1]; last != "done" || len(answers) < 9 {
		t.Fatalf("%s: the attack did not end:\n%s", what, said)
	}
	for _, a := range answers[:len(answers)-1] {
		if !strings.HasPrefix(a, "403 ") {
			t.Errorf("%s: %s", what, a)
		} else if !strings.Contains(a, "belay keys create --name NAME --scope read,submit --data belay-data") {
			t.Errorf("%s: the answer does not say what to do: %s", what, a)
		}
	}
	page, err := r.engine.Executions(t.Context(), belay.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Executions {
		if e := &page.Executions[i]; e.Workflow != "w" || e.State != belay.Pending {
			t.Errorf("%s: an execution of %q is %s", what, e.Workflow, e.State)
		}
	}
	if has, err := r.engine.HasKeys(t.Context()); has || err != nil {
		t.Errorf("%s: there is a key: %v", what, err)
	}
	if workers, err := r.engine.Workers(t.Context()); len(workers) > 0 || err != nil {
		t.Errorf("%s: there is a worker: %v", what, err)
	}
}

// addresses are loopback addresses that a server may listen on.
var addresses = []string{"127.0.0.1", "::1", "127.8.9.10"}

// Every request of a job without a key is refused, at any loopback address and with any kind of
// isolation. Requests that the job sends without waiting for an answer have no effect either. A
// process that belongs to no job is still answered.
func TestAJobGetsNothingWithoutAKey(t *testing.T) {
	kinds := []process.Isolation{process.UserNamespace, process.Subreaper}
	if os.Geteuid() == 0 {
		kinds = append(kinds, process.PIDNamespace)
	}
	judge := &peer.Judge{InJob: process.InJob, Shared: true}
	for _, host := range addresses {
		r := guarded(t, host, server.Jobs{Judge: judge})
		c := http1(t)
		victim := r.submit(c)
		for _, kind := range kinds {
			var out strings.Builder
			_, err := process.Run(t.Context(), process.Command{
				ID: fmt.Sprintf("attack-%d-%d", os.Getpid(), time.Now().UnixNano()), Args: []string{"attack", r.url,
					victim}, Helper: true, Dir: "/",
				Isolation: kind, Output: func(_ context.Context, c process.Chunk) error {
					out.Write(c.Data)
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			attacked(t, string(kind)+" over "+host, r, out.String())
		}
		r.submit(c)
	}
}

// The server also refuses every request without a key from a job that runs as a system user of its
// own. It recognises such a job only by the user of the job's socket.
func TestAJobWithAUserOfItsOwnGetsNothingWithoutAKey(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	const user, other = 0x70000007, 65534
	judge := &peer.Judge{InJob: process.InJob, Users: func(uid uint32) bool { return uid == user }}
	for _, host := range addresses {
		r := guarded(t, host, server.Jobs{Judge: judge})
		victim := r.submit(http1(t))
		as := func(uid uint32) string {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = []string{"SERVER_TEST_ATTACK=" + r.url + " " + victim}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatal(err, string(out))
			}
			return string(out)
		}
		attacked(t, "user "+fmt.Sprint(user)+" over "+host, r, as(user))
		if said := as(other); !strings.HasPrefix(said, "201 ") {
			t.Errorf("a user who has no jobs: %s", said)
		}
	}
}

// If the server cannot find out which callers are jobs, every caller needs a key. The refusal and
// the log give the reason, and say how to make a key. The server answers /healthz without a key.
// With insecure_no_auth no caller needs a key.
func TestKeysAreDemandedWhereJobsCannotBeToldApart(t *testing.T) {
	jobs := server.Jobs{Demand: "jobs cannot be recognised here"}
	r := guarded(t, "127.0.0.1", jobs)
	c := http1(t)
	status, text := r.do(c, http.MethodGet, "/v1/executions", "")
	var p struct{ Detail string }
	if err := json.Unmarshal([]byte(text), &p); err != nil || status != http.StatusUnauthorized || r.open {
		t.Errorf("%d, open %v: %s", status, r.open, text)
	}
	const how = "make one with: belay keys create --name me --scope admin --data belay-data"
	for where, said := range map[string]string{"the answer": p.Detail, "the log": r.log.String()} {
		if !strings.Contains(said, jobs.Demand) || !strings.Contains(said, how) {
			t.Errorf("%s says %q", where, said)
		}
	}
	if status, _ := r.do(c, http.MethodGet, "/healthz", ""); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
	key, err := r.engine.CreateKey(t.Context(), belay.KeySpec{Name: "me", Scopes: []belay.Scope{belay.ScopeAdmin}})
	if err != nil {
		t.Fatal(err)
	}
	if status, text := r.do(c, http.MethodGet, "/v1/executions", "", "Authorization",
		"Bearer "+key.Secret); status != http.StatusOK {
		t.Errorf("with a key: %d %s", status, text)
	}
	r = guarded(t, "127.0.0.1", jobs, func(c *config.Config) { c.InsecureNoAuth = true })
	if r.submit(http1(t)); !r.open {
		t.Error("callers need a key despite insecure_no_auth")
	}
}

// A worker that runs jobs of other people needs a key if it connects over the port, because its
// jobs could otherwise do everything that the worker may do. Other workers need no key.
func TestAWorkerThatRunsJobsOfOthersNeedsAKey(t *testing.T) {
	runsForOthers := func(spec *belay.WorkerSpec) bool {
		return slices.ContainsFunc(spec.Workflows, func(r belay.Registration) bool { return r.Workflow == "command" })
	}
	for _, insecure := range []bool{false, true} {
		r := start(t, setup{cfg: func(c *config.Config) { c.InsecureNoAuth = insecure }, runsForOthers: runsForOthers})
		open := func(workflow string, header ...string) int {
			status, text := r.do(http1(t), http.MethodPost, "/v1/workers", `{"name": "w", "workflows": [{"workflow": "`+
				workflow+`"}], "capacity": 1}`, header...)
			if status == http.StatusForbidden &&
				!strings.Contains(text, "belay keys create --name worker --scope worker") {
				t.Errorf("the refusal does not say what to do: %s", text)
			}
			return status
		}
		if got := open("other"); got != http.StatusCreated {
			t.Errorf("a worker of another kind: %d", got)
		}
		if got := open("command"); (got == http.StatusCreated) != insecure {
			t.Errorf("insecure %v: %d", insecure, got)
		}
		key, err := r.engine.CreateKey(t.Context(), belay.KeySpec{Name: "w", Scopes: []belay.Scope{belay.ScopeWorker}})
		if err != nil {
			t.Fatal(err)
		}
		if got := open("command", "Authorization", "Bearer "+key.Secret); got != http.StatusCreated {
			t.Errorf("with a key: %d", got)
		}
	}
}

// The server calls Options.Jobs before it listens, and does not start if Options.Jobs returns an
// error.
func TestAServerThatCannotTellItsJobsDoesNotListen(t *testing.T) {
	broken := errors.New("no way to tell")
	r := start(t, setup{jobs: func(context.Context) (server.Jobs, error) { return server.Jobs{}, broken }})
	if err := r.wait(); !errors.Is(err, broken) {
		t.Errorf("it ended with %v", err)
	}
}

// A server that does not run as root also refuses every request of a job without a key. As root,
// this test runs TestAJobGetsNothingWithoutAKey again as another user.
func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("every test of this run is without root")
	}
	dir, err := os.MkdirTemp("", "belay-server-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", "^TestAJobGetsNothingWithoutAKey$")
	cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}
