package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// working starts a belay run whose command has changed its workspace and now waits.
func (p *place) working(repo, script string) *started {
	p.t.Helper()
	mark := p.path("working")
	x := p.start(p.command("run", "--repo", repo, "--key", "work", "--", "sh", "-c", script+"; echo > "+mark+
		"; exec sleep 600"))
	x.until("the job has changed its workspace", func() bool { _, err := os.Lstat(mark); return err == nil })
	return x
}

// spaces is the JSON output of belay workspaces ls.
type spaces struct {
	Workspaces []struct {
		ID, Execution, State, Where, Path string
	}
	Bases   []struct{ Repo, Branch string }
	Garbage []struct{ Kind, ID, Why string }
}

func (p *place) spaces() (s spaces) {
	p.t.Helper()
	r := p.belay("workspaces", "ls", "-o", "json").want(0)
	if err := json.Unmarshal([]byte(r.out), &s); err != nil {
		p.t.Fatalf("%v\n%s", err, r)
	}
	return s
}

const changes = `echo one >> new.txt; git add -A; git -c user.name=A -c user.email=a@example.org commit -qm 'a commit of the job'; echo two >> new.txt`

// restored checks that a directory contains the commit and the edit that the script (the constant
// named changes) makes.
func (p *place) restored(dir string) {
	p.t.Helper()
	if got := read(p.t, filepath.Join(dir, "new.txt")); got != "one\ntwo\n" {
		p.t.Errorf("new.txt contains %q", got)
	}
	if got := p.git(dir, "log", "-1", "--format=%s"); got != "a commit of the job" {
		p.t.Errorf("HEAD is at %q", got)
	}
	if got := p.git(dir, "status", "--porcelain"); got != "M new.txt" && got != " M new.txt" {
		p.t.Errorf("status %q", got)
	}
}

// Rule: after a job's end, a user can write the job's changes to files and check them out.
func TestChangesOfAnEndedJob(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	repo := p.repository()
	p.run("--repo", repo, "--key", "work", "--", "sh", "-c", changes+"; exit 3").want(3)
	p.belay("workspaces", "salvage", "work", "--to", p.cwd).want(0)
	found, err := filepath.Glob(filepath.Join(p.cwd, "ex_*"))
	if err != nil || len(found) != 2 || !strings.HasSuffix(found[0], ".bundle") ||
		!strings.HasSuffix(found[1], ".patch") {
		t.Errorf("written: %v, %v", found, err)
	}
	p.belay("workspaces", "salvage", "work", "--to", p.cwd).want(73).saying("exists") // belay overwrites no file
	dir := p.path("checkout")
	r := p.belay("workspaces", "restore", "work", dir).want(0)
	if !strings.Contains(r.out, "1 commits, 1 files") {
		t.Errorf("%s", r)
	}
	p.restored(dir)
	p.belay("workspaces", "restore", "work", dir).want(73).saying("is not empty")
	if s := p.spaces(); len(s.Workspaces) != 0 || len(s.Bases) != 1 || s.Bases[0].Branch != "main" ||
		len(s.Garbage) != 0 {
		t.Errorf("the workspaces are %+v", s)
	}
}

// Rule: belay shows a workspace in use and does not touch it. For a workspace that a dead process
// has left, belay shows the reason why it will be removed. The job's changes are available before
// and after the removal, and no program that the job has put into the workspace ever runs.
func TestChangesOfAJobWhoseServerDied(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	repo := p.repository()
	canary := p.path("canary")
	trap := `printf '#!/bin/sh\necho ran >> ` + canary + `\n' > .git/trap; chmod +x .git/trap
for k in core.fsmonitor core.pager core.sshCommand diff.external filter.x.clean filter.x.smudge; do git config $k "$PWD/.git/trap"; done
mkdir -p .git/hooks; for h in post-checkout post-index-change pre-commit reference-transaction; do cp .git/trap .git/hooks/$h; done
echo '* filter=x' > .git/info/attributes; rm -f ` + canary
	x := p.working(repo, changes+"; git tag here; echo talk > $HOME/notes; "+trap)
	s := p.spaces()
	if len(s.Workspaces) != 1 || s.Workspaces[0].Where != "in use" || s.Workspaces[0].State != "running" ||
		len(s.Garbage) != 0 {
		t.Fatalf("while the job runs: %+v", s)
	}
	run := s.Workspaces[0].ID
	p.belay("workspaces", "salvage", run).want(73).saying("in use")
	p.belay("workspaces", "salvage", "work").want(66).saying("has no saved work yet")
	if r := p.belay("workspaces", "gc").want(0); !strings.Contains(r.out, "no leftovers") {
		t.Errorf("%s", r)
	}
	if r := p.belay("workspaces", "ls").want(0); !strings.Contains(r.out, "in use") ||
		!strings.Contains(r.out, "BASE CLONE") {
		t.Errorf("%s", r)
	}
	x.signal(syscall.SIGKILL)
	x.wait(patience)
	until(t, "the workspace has no owner", func() bool { s = p.spaces(); return len(s.Garbage) == 1 })
	if s.Workspaces[0].Where != "left by a dead process" || s.Garbage[0].ID != run {
		t.Errorf("after the kill: %+v", s)
	}
	p.belay("workspaces", "restore", "work", p.path("before")).want(0)
	p.restored(p.path("before"))
	if r := p.belay("workspaces", "gc", "--dry-run").want(0); !strings.Contains(r.out,
		"the process that owned it is gone") || len(p.spaces().Garbage) != 1 {
		t.Errorf("%s", r)
	}
	p.belay("workspaces", "gc").want(0)
	if _, err := os.Lstat(s.Workspaces[0].Path); err == nil {
		t.Error("the workspace is still there")
	}
	if s = p.spaces(); len(s.Workspaces) != 1 || s.Workspaces[0].Where != "kept" || s.Workspaces[0].ID != run {
		t.Errorf("kept: %+v", s)
	}
	for i, id := range []string{"work", run} {
		dir, home := p.path("after"+string(rune('0'+i))), p.path("home"+string(rune('0'+i)))
		if r := p.belay("workspaces", "restore", id, dir, "--home", home).want(0); !strings.Contains(r.out,
			"the hooks post-checkout") {
			t.Errorf("%s", r)
		}
		p.restored(dir)
		if got := read(t, filepath.Join(home, "notes")); got != "talk\n" {
			t.Errorf("HOME has %q", got)
		}
		if got := p.git(dir, "rev-parse", "here"); got != p.git(dir, "rev-parse", "HEAD") {
			t.Errorf("the tag is at %q", got)
		}
	}
	p.belay("workspaces", "restore", "work", p.path("x"), "--home", p.path("home0")).want(73).saying("is not empty")
	p.belay("workspaces", "salvage", "work", "--to", p.cwd).want(0)
	if found, err := filepath.Glob(filepath.Join(p.cwd, "ex_*.home.tar.gz")); err != nil || len(found) != 1 {
		t.Errorf("written: %v, %v", found, err)
	}
	if _, err := os.Lstat(canary); err == nil {
		t.Errorf("a program of the job has run: %s", read(t, canary))
	}
	if r := p.belay("__complete", "workspaces", "restore", "").want(0); !strings.Contains(r.out, run) ||
		!strings.Contains(r.out, "ex_") {
		t.Errorf("completed to %s", r)
	}
}

// Rule: belay workspaces refuses impossible requests, and the refusal says what to do.
func TestWorkspacesRefusals(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if r := p.belay("workspaces", "ls").want(0); !strings.Contains(r.out, "no workspaces here") {
		t.Errorf("%s", r)
	}
	if _, err := os.Lstat(p.data); err == nil {
		t.Error("a command that only reads made a data directory")
	}
	p.belay("workspaces", "salvage", "ex_nonsense").want(64)
	p.belay("workspaces", "salvage").want(64)
	p.belay("workspaces", "restore", "one").want(64).saying("a directory")
	p.belay("workspaces", "tidy").want(64).saying("ls, salvage, restore, apply and gc")
	p.run("--repo", "none", "--key", "empty", "--", "true").want(0)
	p.belay("workspaces", "salvage", "nosuch").want(66)
	p.belay("workspaces", "salvage", "empty").want(66).saying("has no work: it changed nothing")
}
