package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// holder returns the process that runs the jobs: the worker or the server.
func (x *storm) holder() *started { return x.procs[len(x.procs)-1] }

// stop stops the processes that the test has started, the worker before its server.
func (x *storm) stop() {
	x.api.t.Helper()
	for _, s := range slices.Backward(x.procs) {
		s.signal(syscall.SIGTERM)
		s.wait(patience)
	}
}

// held returns the description of the jobs' sandbox that the log contains.
func (x *storm) held() string {
	if by := heldBy.FindStringSubmatch(x.holder().err.String()); by != nil {
		return by[1]
	}
	return "nothing that the log names"
}

// begin starts the server, and the worker if it is to run the jobs.
func (x *storm) begin(kind string) {
	x.api.t.Helper()
	x.jobs = filepath.Join(x.data, "workspaces", "jobs")
	args := []string{"serve", "--listen", "127.0.0.1:0", "--config", x.path("belay.yaml")}
	if kind == "worker" {
		args = append(args, "--agent-local=false")
	}
	server := x.launch(args...)
	server.until("the server is ready", func() bool { return ready.MatchString(server.err.String()) })
	x.url = ready.FindString(server.err.String())
	x.spec["port"] = strings.TrimPrefix(x.url, "http://")
	if kind != "worker" {
		// The server requires no key from users of this machine if it can distinguish them from
		// jobs.
		if got := x.call("GET", "/v1/executions", ""); got.status != http.StatusOK {
			x.key = x.makeKey("admin")
		}
		return
	}
	x.key = x.makeKey("admin")
	key := x.path("worker.key")
	x.write("worker.key", x.makeKey("worker"))
	if err := os.Lchown(key, x.uid, x.uid); err != nil {
		x.api.t.Fatal(err)
	}
	data := x.path("elsewhere")
	x.jobs = filepath.Join(data, "workspaces", "jobs")
	x.spec["base"] = filepath.Join(data, "workspaces", "base")
	w := x.launch("worker", "--server", x.url, "--key-file", key, "--config", x.path("belay.yaml"), "--data", data,
		"--concurrency", "0")
	w.says("takes work")
}

func (x *storm) launch(args ...string) *started {
	x.api.t.Helper()
	s := x.start(x.as(args...))
	x.procs = append(x.procs, s)
	x.spec["belay"] = append(x.spec["belay"].([]int), s.cmd.Process.Pid)
	return s
}

func (x *storm) makeKey(scope string) string {
	x.api.t.Helper()
	cmd := x.as("keys", "create", "--data", x.data, "--name", "walls-"+scope, "--scope", scope)
	return strings.TrimSpace(x.start(cmd).wait(patience).want(0).out)
}

func (x *storm) headers() []string {
	if x.key == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + x.key}
}

// submit submits a prompt that lists the attacks to try.
func (x *storm) submit(token string, attacks ...string) string {
	x.api.t.Helper()
	spec := map[string]any{"try": attacks, "token": token}
	for name, value := range x.spec {
		spec[name] = value
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		x.api.t.Fatal(err)
	}
	return x.want(http.StatusAccepted, "POST", "/execute", `{"prompt":`+jsonText(string(raw))+`}`,
		x.headers()...).string("job_id")
}

// victim starts the job that the other jobs attack, and waits until all of its processes run.
func (x *storm) victim() string {
	x.api.t.Helper()
	id := x.submit(x.token, "victim")
	gone := func() bool {
		return x.want(http.StatusOK, "GET", "/jobs/"+id, "", x.headers()...).at("finished_at") != nil
	}
	var dirs []string
	var pids []int
	ready := func() bool {
		dirs, _ = filepath.Glob(filepath.Join(x.jobs, "*", "checkout", "mine.txt"))
		if len(dirs) == 1 {
			pids = napping(x.token)
		}
		return len(pids) == 1 || gone()
	}
	if !poll(patience, ready) || len(pids) != 1 {
		x.api.t.Fatalf("the other job does not run: %s\n%s", x.call("GET", "/jobs/"+id, "", x.headers()...).text,
			x.holder().dump())
	}
	x.spec["victim_pid"], x.spec["victim_dir"] = pids[0], filepath.Dir(dirs[0])
	x.spec["victim_tmp"] = filepath.Join(filepath.Dir(filepath.Dir(dirs[0])), "tmp")
	return id
}

// collect waits for the end of a job, and reads the verdicts that the job wrote. If there are no
// verdicts, it returns the reason.
func (x *storm) collect(id string, last map[string]verdict) (why string) {
	x.api.t.Helper()
	var end answer
	for range 20 {
		if end = x.want(http.StatusOK, "GET", "/jobs/"+id+"?wait=30", "",
			x.headers()...); end.at("finished_at") != nil {
			break
		}
	}
	tried := map[string]verdict{}
	for line := range strings.Lines(end.string("output")) {
		var v verdict
		if json.Unmarshal([]byte(line), &v) == nil && v.Attack != "" {
			tried[v.Attack] = v
		}
	}
	if len(tried) == 0 {
		return fmt.Sprintf("a job tried nothing: %s\n%s", end.text, x.holder().dump())
	}
	for name, v := range tried {
		if v.Outcome == "trying" {
			v.Detail = "the job was ended: " + end.string("error")
		}
		last[name] = v
	}
	return ""
}

// napping lists the processes that an attacker has left running; the token is in their arguments.
func napping(token string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if words := strings.Split(string(args), "\x00"); len(words) > 2 && words[1] == "nap" && words[2] == token {
			pids = append(pids, pid)
		}
	}
	return pids
}
