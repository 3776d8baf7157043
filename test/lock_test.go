package test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// external submits an external execution: no worker claims it, and a client becomes its owner by
// locking it.
func (p *place) external(args ...string) belay.ExecutionID {
	p.t.Helper()
	r := p.belay(append([]string{"submit", "loop", "--external"}, args...)...).want(0)
	id, err := belay.ParseExecutionID(strings.TrimSpace(r.out))
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// holding starts a command with belay lock exec, and returns when the command runs.
func (p *place) holding(id belay.ExecutionID, name, script string) *started {
	p.t.Helper()
	x := p.start(p.command("lock", "exec", id.String(), "--owner", name, "--ttl", "2s", "--grace", "200ms", "--", "sh",
		"-c", "echo up $BELAY_TOKEN; "+script))
	x.until("its command runs", func() bool { return strings.Contains(x.out.String(), "up ") })
	return x
}

// Rule: a command that runs under a lock owns the execution: the command gets the token, it can
// save checkpoints with the lock's id, and its exit code ends the execution. If the execution is
// reopened, the next command gets the checkpoint.
func TestACommandUnderALock(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve()
	id := p.external("--input", `{"n":41}`)
	save := `read in; echo "input $in, checkpoint $BELAY_CHECKPOINT, token $BELAY_TOKEN"
curl -sS --fail-with-body -X PUT ` + a.url +
		`/v1/executions/$BELAY_EXECUTION/checkpoint -H 'Content-Type: application/json' \
  -H "Lease-Id: $BELAY_LOCK_ID" -H "Lease-Token: $BELAY_TOKEN" -d '{"data": {"at": 7}}' > /dev/null || exit 9; `
	r := p.belay("lock", "exec", id.String(), "--owner", "ann", "--", "sh", "-c", save+"exit 3").want(3)
	if !strings.Contains(r.out, `input {"n":41}, checkpoint , token `) {
		t.Errorf("the first\n%s", r)
	}
	if e := p.execution(id); e.State != belay.Failed || string(e.Output) != `{"exit_code":3}` {
		t.Errorf("after exit code 3 the execution is %s with %s", e.State, e.Output)
	}
	r = p.belay("lock", "exec", id.String(), "--owner", "ann", "--reopen", "--", "sh", "-c", save).want(0)
	if !strings.Contains(r.out, `checkpoint {"at":7}`) && !strings.Contains(r.out, `checkpoint {"at": 7}`) {
		t.Errorf("the second\n%s", r)
	}
	if e := p.execution(id); e.State != belay.Succeeded {
		t.Errorf("after exit code 0 the execution is %s", e.State)
	}
	p.belay("lock", "exec", p.external().String(), "--", "no-such-command-here").want(127)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	p.clean()
}

// Rule: an execution has one owner at a time (guarantee G1). The refusal of a second owner names
// the current owner and the remaining time. An operator may steal the lock, with a reason. Belay
// then kills the command of the old owner before the next command can own the execution, with a
// greater token.
func TestALockIsStolen(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := p.external("--on-lost", "requeue")
	first := p.holding(id, "ann", busy(p.path("never")))
	p.belay("lock", "exec", id.String(), "--owner", "bob", "--", "true").want(belay.CodeLeaseHeld.Exit()).saying("ann")
	if r := p.belay("get", id.String()).want(0); !strings.Contains(r.out, "ann, from outside; its lease ends in ") {
		t.Errorf("get does not name the owner\n%s", r)
	}
	if r := p.belay("workers", "ls").want(0); !strings.Contains(r.out, "ann") {
		t.Errorf("the owner is not listed\n%s", r)
	}
	p.belay("lock", "steal", id.String(), "--reason", "ann is on holiday").want(0)
	first.wait(patience).want(belay.CodeLeaseLost.Exit())
	second := p.holding(id, "bob", busy(p.path("free")))
	var one, two int64
	if _, err := fmt.Sscanf(first.out.String()+second.out.String(), "up %d\nup %d", &one, &two); err != nil ||
		two <= one {
		t.Errorf("G1: tokens %d and %d, %v", one, two, err)
	}
	second.ctrlC()
	second.wait(patience).want(130)
	if e := p.execution(id); e.State != belay.Pending {
		t.Errorf("after the interrupt the execution is %s", e.State)
	}
	third := p.holding(id, "cleo", "trap '' TERM; "+busy(p.path("never")))
	p.belay("cancel", id.String()).want(0)
	third.wait(patience).want(130)
	if e := p.execution(id); e.State != belay.Cancelled {
		t.Errorf("after the cancel the execution is %s", e.State)
	}
	p.clean()
}

// Rule: belay freezes a command whose lock it cannot renew, before another owner can get the
// execution. The command continues if the server is back while the lock is still valid.
func TestACommandIsFrozenWhileItsServerIsAway(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, _ := p.serve()
	id, end := p.external(), p.path("end")
	x := p.holding(id, "ann", busy(end))
	server.signal(syscall.SIGSTOP)
	x.until("the command is frozen", func() bool { return strings.Contains(x.err.String(), "the command is frozen") })
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := x.err.String(); strings.Contains(e, "goes on") {
		t.Errorf("the command continues while the server is away\n%s", e)
	}
	server.signal(syscall.SIGCONT)
	x.wait(patience).want(0).saying("the command goes on")
	if e := p.execution(id); e.State != belay.Succeeded {
		t.Errorf("the execution is %s", e.State)
	}
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	p.clean()
}

// Rule: if belay lock exec dies, its command is killed, and the engine notices the loss of the
// owner when the lock expires (guarantee G6). The execution then fails, unless its policy says
// otherwise.
func TestAnOwnerOfACommandIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, _ := p.serve()
	id := p.external()
	x := p.holding(id, "ann", busy(p.path("never")))
	x.signal(syscall.SIGKILL)
	killed := time.Now()
	x.wait(patience)
	until(t, "the execution has failed", func() bool { return p.execution(id).State == belay.Failed })
	// 2 s are the TTL; 1 s is the time within which G6 promises that Belay notices the loss after
	// the TTL; and 1 s is for a slow machine.
	if took := time.Since(killed); took > 2*time.Second+2*time.Second {
		t.Errorf("G6: noticed after %s", took)
	}
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	p.clean()
}
