package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lockTTL is the TTL of the owners in these tests, in seconds.
const lockTTL = 2

// agent starts the example of an owner in Python (examples/outside-owner/agent.py). It locks an
// execution and sends heartbeats.
func (p *place) agent(a api, name string, args ...string) *started {
	p.t.Helper()
	script, err := filepath.Abs("../examples/outside-owner/agent.py")
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command("python3", append([]string{
		"-B", script, "--server", a.url, "--name", name, "--ttl", fmt.Sprint(lockTTL), "--turns", "200", "--pace",
		"0.1",
	}, args...)...)
	cmd.Dir, cmd.Env = p.cwd, p.environment("NO_PROXY=127.0.0.1")
	return p.start(cmd)
}

func (x *started) prints(text string) {
	x.t.Helper()
	x.until("the process prints "+text, func() bool { return strings.Contains(x.out.String(), text) })
}

func (x *started) execution() string {
	x.prints("with token")
	for _, word := range strings.Fields(x.out.String()) {
		if strings.HasPrefix(word, "ex_") {
			return word
		}
	}
	x.t.Fatalf("no execution\n%s", x.dump())
	return ""
}

// Rule: an external execution has one outside owner (an owner that is no worker) at a time. The
// death of an owner is noticed within its TTL plus one second, all watchers see the loss, and the
// next owner continues from the last checkpoint.
func TestTheNextOutsideOwnerContinuesFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	first := p.agent(a, "first", "--on-lost", "requeue")
	id := first.execution()
	events := a.watch(id)
	first.prints("saved turn 3")

	second := p.agent(a, "second", "--on-lost", "requeue").wait(patience)
	if second.code != 4 || !strings.Contains(second.out, "held by first with token") {
		t.Fatalf("the second owner did not learn who has the lock\n%s", second)
	}
	refused := a.want(409, "POST", "/v1/executions/"+id+"/lock", `{"owner":"third"}`)
	expires, _ := refused.at("holder", "expires_in_ms").(float64)
	if refused.string("holder", "owner") != "first" || expires <= 0 || expires > lockTTL*1000 ||
		refused.header.Get("Retry-After") == "" {
		t.Errorf("the refusal names no holder and expiry: %s", refused.text)
	}

	killed := time.Now()
	first.signal(syscall.SIGKILL)
	lost := await(t, events, "lost")
	if after := lost.at.Sub(killed); after > (lockTTL+1)*time.Second {
		t.Errorf("a watcher saw the loss after %s", after)
	}
	if now := a.want(200, "GET", "/v1/executions/"+id, ""); now.string("state") != "pending" {
		t.Errorf("after the loss the execution is %s", now.text)
	}

	next := p.agent(a, "next", "--on-lost", "requeue")
	next.prints("goes on after turn")
	next.prints("saved turn")
	next.signal(syscall.SIGTERM)
	if end := next.wait(patience); end.code != 0 {
		t.Errorf("asked to stop\n%s", end)
	}
	if now := a.want(200, "GET", "/v1/executions/"+id, ""); now.string("state") != "waiting" {
		t.Errorf("after the suspend the execution is %s", now.text)
	}
	for seq := 0.0; len(events) > 0; {
		e := <-events
		if seq != 0 && e.seq != seq+1 {
			t.Errorf("event %g arrived after event %g", e.seq, seq)
		}
		seq = e.seq
	}
}

// Rule: an owner that is stopped for longer than its TTL and then continues writes nothing more,
// and ends by itself.
func TestAnOutsideOwnerPastItsTTLStops(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	first := p.agent(a, "first", "--on-lost", "requeue")
	id := first.execution()
	first.prints("saved turn 2")
	first.signal(syscall.SIGSTOP)
	if !poll(patience, func() bool { return a.call("GET", "/v1/executions/"+id, "").string("state") == "pending" }) {
		t.Fatal("the stopped owner did not lose the execution")
	}
	second := p.agent(a, "second", "--on-lost", "requeue")
	second.prints("saved turn")
	first.signal(syscall.SIGCONT)
	if end := first.wait(patience); end.code != 3 || !strings.Contains(end.out, "lost:") {
		t.Errorf("continued late\n%s", end)
	}
	second.prints("saved turn 6")
	if text := second.out.String(); strings.Contains(text, "lost") {
		t.Errorf("the second owner was disturbed\n%s", text)
	}
}

// Rule: Belay refuses every request of a stale owner permanently, and gives the reason. If an
// owner's request names no lock, the refusal says that the request needs one.
func TestAStaleLockIsRefusedEverything(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	at := a.want(201, "POST", "/v1/executions",
		`{"workflow":"w","dispatch":"external","on_lost":"requeue"}`).header.Get("Location")
	a.want(428, "PUT", at+"/checkpoint", `{"data":1}`)
	lock := a.want(201, "POST", at+"/lock", `{"owner":"first","ttl":"1s"}`)
	id, token := lock.string("lease", "lock_id"), fmt.Sprint(int64(lock.at("lease", "token").(float64)))
	lease := []string{"Lease-Id", id, "Lease-Token", token}
	a.want(200, "PUT", at+"/lock/"+id, "")
	a.want(200, "PUT", at+"/checkpoint", `{"data":{"n":1}}`, lease...)
	a.want(428, "PUT", at+"/checkpoint", `{"data":1}`, "Lease-Id", id)
	if !poll(patience, func() bool { return a.call("GET", at, "").string("state") == "pending" }) {
		t.Fatal("the lock did not expire")
	}
	next := a.want(201, "POST", at+"/lock", `{"owner":"second"}`)
	if n, _ := next.at("checkpoint", "data", "n").(float64); n != 1 {
		t.Errorf("the next owner got %v", next.at("checkpoint"))
	}
	for _, try := range [][3]string{
		{"PUT", "/checkpoint", `{"data":2}`}, {"PUT", "/lock/" + id, ""}, {"POST", "/lock/" + id + "/release",
			`{"outcome":"complete"}`},
		{"POST", "/lock/" + id + "/release", `{"outcome":"suspend"}`},
	} {
		got := a.want(412, try[0], at+try[1], try[2], lease...)
		if got.string("code") != "lease_lost" || got.string("cause") == "" {
			t.Errorf("%s %s: %s", try[0], try[1], got.text)
		}
	}
}

// Rule: by default, an execution that loses its outside owner fails, and its error names that
// owner.
func TestALostOutsideOwnerFailsTheExecutionByDefault(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	first := p.agent(a, "first")
	id := first.execution()
	first.prints("saved turn 1")
	killed := time.Now()
	first.signal(syscall.SIGKILL)
	ended := a.want(200, "GET", "/v1/executions/"+id, "", "Prefer", "wait=30")
	if ended.string("state") != "failed" || !strings.Contains(ended.string("error", "message"), "first") {
		t.Errorf("the execution is %s", ended.text)
	}
	if after := time.Since(killed); after > (lockTTL+1)*time.Second {
		t.Errorf("the end took %s", after)
	}
	if refused := p.agent(a, "second").wait(patience); refused.code != 1 {
		t.Errorf("a failed one was locked\n%s", refused)
	}
	again := p.agent(a, "again", "--reopen")
	again.prints("goes on after turn")
}

// Rule: the owner in shell, a script of thirty lines, owns an execution, and stops its work when a
// request is refused because another owner has the lock. The test is not parallel, because the
// script starts a process for each heartbeat, and has to be in time.
func TestAnOwnerInShell(t *testing.T) {
	p := newPlace(t)
	_, a := p.serve()
	script, err := filepath.Abs("../examples/outside-owner/owner.sh")
	if err != nil {
		t.Fatal(err)
	}
	owner := func(name, pace string) *started {
		cmd := exec.Command("sh", script, a.url, "talk", name)
		cmd.Dir, cmd.Env = p.cwd, p.environment("PACE="+pace)
		return p.start(cmd)
	}
	first := owner("first", "0.3")
	first.prints("first saved 2")
	if second := owner("second", "0.1").wait(patience); second.code != 4 || !strings.Contains(second.err, `"first"`) {
		t.Errorf("the second owner did not learn who has the lock\n%s", second)
	}
	first.signal(syscall.SIGKILL)
	_ = syscall.Kill(-first.cmd.Process.Pid, syscall.SIGKILL) // also kills the process that sends the heartbeats
	id := first.execution()
	if !poll(patience, func() bool { return a.call("GET", "/v1/executions/"+id, "").string("state") == "pending" }) {
		t.Fatal("the killed owner did not lose the execution")
	}
	next := owner("next", "0.1").wait(patience)
	if next.code != 0 || strings.Contains(next.out, "from 0\n") || !strings.Contains(next.out, "next completed") {
		t.Errorf("the next owner did not continue\n%s", next)
	}
}

// Rule: an operator can steal a lock. The audit log records the steal, and the refusal of the
// owner's next request reports it.
func TestAStolenLock(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	first := p.agent(a, "first", "--on-lost", "requeue")
	id := first.execution()
	a.want(422, "POST", "/v1/executions/"+id+"/lock/steal", `{}`)
	a.want(200, "POST", "/v1/executions/"+id+"/lock/steal", `{"reason":"it hangs","actor":"ann"}`)
	if end := first.wait(patience); end.code != 3 {
		t.Errorf("the owner continues\n%s", end)
	}
	history := a.want(200, "GET", "/v1/executions/"+id+"/history", "").text
	if !strings.Contains(history, `"steal"`) || !strings.Contains(history, "it hangs") ||
		!strings.Contains(history, "ann") {
		t.Errorf("the history does not say who and why: %s", history)
	}
	a.want(201, "POST", "/v1/executions/"+id+"/lock", `{"owner":"second"}`)
}
