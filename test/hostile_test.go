package test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// hostileEnv returns the environment of a server whose agent runs its prompt as a script. It sets
// limits for jobs that are so low that a job at its limits does not harm the machine.
func hostileEnv(more ...string) []string {
	return append([]string{
		`BELAY_AGENT_COMMAND=["bash"]`, "BELAY_AGENT_MAX_PROCESSES=200", "BELAY_AGENT_MAX_MEMORY=256MiB",
		"BELAY_AGENT_MAX_CPU=1",
		"BELAY_AGENT_MAX_DISK=64MiB", "BELAY_AGENT_GRACE=500ms",
	}, more...)
}

// attacked is a server under attack, with the files that must stay unchanged.
type attacked struct {
	agents
	repo, secret, canary string
	head                 string // the commit of repo's HEAD
	jobs                 string // the directory of the workspaces
}

// marker is the content of the secret and appears in no other file.
const marker = "the-secret-of-somebody-else"

func attack(t *testing.T, env ...string) *attacked {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("jobs get users and limits of their own only where the server is root")
	}
	p := newPlace(t)
	x := &attacked{repo: p.repository(), secret: p.path("secret.txt"), canary: p.path("outside/canary"),
		jobs: filepath.Join(p.data, "workspaces", "jobs")}
	if err := os.WriteFile(x.secret, []byte(marker+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The mode of this directory allows every user to write, so only the sandbox can prevent a
	// write.
	if err := os.Mkdir(filepath.Dir(x.canary), 0o777); err != nil {
		t.Fatal(err)
	}
	for dir, mode := filepath.Dir(x.canary), os.FileMode(0o777); dir != "/" && dir != "/tmp"; dir,
		mode = filepath.Dir(dir), 0o755 {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	x.head = p.git(x.repo, "rev-parse", "HEAD")
	x.agents = p.assisted(hostileEnv(env...), "--agent-repo", x.repo)
	return x
}

// neighbour is the script of an honest job, which runs at the same time as a hostile job.
const neighbour = `set -e
for i in 1 2 3 4 5; do echo line $i >> honest.txt; git add honest.txt; git -c user.name=N -c user.email=n@example.org commit -qm "commit $i"; done
git fsck --no-progress 2>&1; git log --oneline | wc -l; ls`

// runBesideHonestJob runs a hostile job and an honest job at the same time, and checks that the
// honest job succeeds and that the server is unharmed. It returns the result of the hostile job.
func (x *attacked) runBesideHonestJob(script string, more ...string) answer {
	x.api.t.Helper()
	bad := x.ask(script, more...)
	good := x.ask(neighbour)
	if got := x.wantEnd(good, "completed", 0.0); got.string("result") != "6\nREADME\nhonest.txt\nnotes.txt\nsrc\n" {
		x.api.t.Errorf("the honest job beside it says %q", got.string("result"))
	}
	end := x.ended(bad)
	x.untouched(bad)
	return end
}

// untouched checks that the job has changed nothing outside its workspace and has left no process
// and no file behind.
func (x *attacked) untouched(id string) {
	t := x.api.t
	t.Helper()
	if _, err := os.Lstat(x.canary); err == nil {
		t.Errorf("a program of the job ran or wrote outside: %s", read(t, x.canary))
	}
	if got := read(t, x.secret); got != marker+"\n" {
		t.Errorf("the secret is %q", got)
	}
	if got := x.git(x.repo, "rev-parse", "HEAD"); got != x.head {
		t.Errorf("the source is at %s", got)
	}
	if got := x.git(x.repo, "status", "--porcelain"); got != "" {
		t.Errorf("the source has changed: %s", got)
	}
	if got := x.git(x.repo, "config", "--list", "--local"); strings.Contains(got, "trap") {
		t.Errorf("the source is configured with %s", got)
	}
	x.wantHealth(false, 0, 0, 10)
	until(t, "no workspace is left", func() bool {
		left, err := os.ReadDir(x.jobs)
		return err == nil && len(left) == 0
	})
	if left := x.ofJobs(); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	e := x.want(http.StatusOK, "GET", "/v1/executions/"+id, "")
	if strings.Contains(e.text, marker) {
		t.Errorf("the secret got out: %s", clip(e.text))
	}
	for _, name := range []string{"step-1.bundle", "step-1.patch"} {
		if got := x.artifactText(id, name); strings.Contains(got.text, marker) {
			t.Errorf("the secret got out in %s", name)
		}
	}
	if r := x.belay("get", id).want(0); strings.ContainsAny(r.out, "\x00\x1b\x07") {
		t.Errorf("belay get passes on what moves the cursor: %q", r.out)
	}
}

// artifactText returns an artifact of an execution by its name; the status is 404 if the
// execution has no such artifact.
func (a api) artifactText(id, name string, headers ...string) answer {
	a.t.Helper()
	got := a.call("GET", "/v1/executions/"+id+"/logs/"+name, "", append([]string{"Accept", "application/octet-stream"},
		headers...)...)
	if got.status != http.StatusOK && got.string("code") != "not_found" {
		a.t.Errorf("%s of %s: %s", name, id, got.text)
	}
	return got
}

// ofJobs lists the processes that belay in this test's directory has started, except for the
// server: the processes of jobs.
func (x *attacked) ofJobs() (left []string) {
	for _, p := range x.processes() {
		if pid, _, _ := strings.Cut(p, " "); pid != strconv.Itoa(x.server.cmd.Process.Pid) {
			left = append(left, p)
		}
	}
	return left
}

// resident returns the peak memory of the server, in bytes.
func (x *attacked) resident() int {
	x.server.t.Helper()
	used := x.server.resident()
	if used == 0 {
		x.server.t.Fatal("the server has ended")
	}
	return used
}

// resident returns the peak memory of the process, in bytes, or 0 if the process has ended.
func (x *started) resident() int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// Rule: the server ends a job that takes too many processes, or too much memory or disk, and gives
// the reason. The server itself, and another job that runs at the same time, are not affected.
func TestAJobThatTakesTooMuchIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		script, timeout, status, why string
	}{
		"fork bomb": {
			`bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 600`, "5", "timeout",
			"more than 200 processes at a time",
		},
		"memory hog": {
			`exec python3 -c 'x = bytearray(1 << 30); print(len(x))'`, "60", "failed", "more than 256 MiB of memory",
		},
		"many hogs": {
			`for i in $(seq 8); do python3 -c 'x = bytearray(64 << 20); import time; time.sleep(600)' & done; wait; exit 1`, "5", "timeout", "more than 256 MiB of memory",
		},
		"disk filler": {`dd if=/dev/zero of=big bs=1M count=2000 2>&1; sleep 600`, "60", "failed",
			"more than its quota of 64.0 MiB"},
		"tmp filler": {`dd if=/dev/zero of=$TMPDIR/big bs=1M count=2000 2>&1; sleep 600`, "60", "failed",
			"more than its quota of 64.0 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			x := attack(t)
			end := x.runBesideHonestJob(c.script, `"timeout_seconds":`+c.timeout)
			told := x.want(http.StatusOK, "GET", "/v1/executions/"+end.string("job_id"), "").text
			if end.string("status") != c.status || !strings.Contains(told, c.why) {
				t.Errorf("want %s with %q; the job ended as %s", c.status, c.why, told)
			}
		})
	}
}

// Rule: the server ends a job that fills its disk before other jobs on the same disk run out of
// space: on a disk of 192 MiB a quota of 64 MiB leaves room for an honest job.
func TestAJobIsEndedBeforeItFillsTheDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	dir, err := os.MkdirTemp("", "belay-small-disk-")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=192m,mode=755"); err != nil {
		t.Skipf("mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
		_ = os.Remove(dir)
	})
	x := attack(t, "WORKSPACE_DIR="+dir)
	x.jobs = filepath.Join(dir, "jobs")
	bad := x.ask(`for i in $(seq 50); do dd if=/dev/zero of=big$i bs=1M count=8 2>/dev/null; sleep 0.05; done; sleep 600`, `"timeout_seconds":60`)
	good := x.ask(neighbour)
	x.wantEnd(good, "completed", 0.0)
	if end := x.ended(bad); end.string("status") != "failed" || !strings.Contains(end.text, "quota") {
		t.Errorf("the job ended as %s", end.text)
	}
	x.wantEnd(x.ask(neighbour), "completed", 0.0)
	x.untouched(bad)
}

// Rule: no process that a job has started outlives the job, whatever the process does to escape.
// The job still gets the result of its own command.
func TestNoProcessOutlivesItsJob(t *testing.T) {
	t.Parallel()
	x := attack(t)
	end := x.runBesideHonestJob(`for i in 1 2 3; do
  setsid bash -c 'trap "" TERM HUP INT; (trap "" TERM; while :; do sleep 1; done) & disown; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &
  env -i setsid nohup sleep 6000 >/dev/null 2>&1 &
done
cd /; disown -a; sleep 0.3; echo gone; exit 0`)
	if end.string("status") != "completed" || end.string("result") != "gone\n" {
		t.Errorf("the job ended as %s", end.text)
	}
}

// Rule: a job may print a gibibyte, and neither the memory nor the disk usage of the server grows
// by that amount. Bytes that are not text, or that move a cursor, harm no reader of the output.
func TestAJobWithMuchOutput(t *testing.T) {
	t.Parallel()
	x := attack(t)
	end := x.runBesideHonestJob(`head -c 1073741824 /dev/zero; printf '\033[2J\033]0;owned\007\000\377\376end'`,
		`"timeout_seconds":300`)
	if end.string("status") != "completed" {
		t.Errorf("the job ended as %s", clip(end.text))
	}
	if had := x.resident(); had > 512<<20 {
		t.Errorf("the server had %d MiB", had>>20)
	}
	var stored int64
	for _, name := range []string{"belay.db", "belay.db-wal"} {
		if info, err := os.Lstat(filepath.Join(x.data, name)); err == nil {
			stored += info.Size()
		}
	}
	if stored > 256<<20 {
		t.Errorf("the store has %d MiB", stored>>20)
	}
	end = x.runBesideHonestJob(`printf '\033[2J\033]0;owned\007\000\377\376end\r\n'`)
	if end.string("status") != "completed" || !strings.Contains(end.string("result"), "end") {
		t.Errorf("the job ended as %s", end.text)
	}
}

// trap returns a script that makes a program in the workspace, the trap. When the trap runs, it
// writes a note into a file outside of the workspace.
func (x *attacked) trap() string {
	return `printf '#!/bin/sh\necho ran as $(id -u): $0 >> ` + x.canary +
		`\n' > .git/trap; chmod +x .git/trap; trap=$PWD/.git/trap
`
}

// proveTheTrap runs a trap in a repository without protection, and checks that the trap writes its
// note.
func (x *attacked) proveTheTrap() {
	x.api.t.Helper()
	dir := x.path("trapped")
	x.git(x.root, "clone", "-q", x.repo, dir)
	cmd := exec.Command("sh", "-ec", x.trap()+`git config core.fsmonitor "$trap"`)
	cmd.Dir, cmd.Env = dir, x.gitEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		x.api.t.Fatalf("%v: %s", err, out)
	}
	x.git(dir, "status")
	if err := os.Remove(x.canary); err != nil {
		x.api.t.Fatalf("the trap does not work, so it proves nothing: %v", err)
	}
}

// hostileCommit commits all files without running a hook or a file monitor of the repository.
const hostileCommit = `
git -c core.hooksPath=/dev/null -c core.fsmonitor= add -A; git -c core.hooksPath=/dev/null -c core.fsmonitor= -c user.name=J -c user.email=j@example.org commit -qm "work of the job" 2>&1 || true
echo more >> notes.txt
`

// Rule: nothing in a job's workspace runs with the server's rights, during the job or later; no
// link leads the server out of the workspace; and nothing prevents the removal of the workspace.
func TestProgramsInAWorkspaceNeverRunAsTheServer(t *testing.T) {
	t.Parallel()
	x := attack(t)
	x.proveTheTrap()
	for name, c := range map[string]struct{ script, lost string }{
		"core.fsmonitor": {script: hostileCommit + x.trap() +
			`git config core.fsmonitor "$trap"; git config core.fsmonitorHookVersion 2`},
		"every program that git can be configured to run": {script: hostileCommit + x.trap() +
			`for k in core.pager core.editor core.sshCommand core.askPass core.gitProxy core.alternateRefsCommand \
 diff.external diff.x.textconv diff.x.command merge.x.driver filter.x.clean filter.x.smudge filter.x.process filter.git-crypt.clean credential.helper gpg.program \
 uploadpack.packObjectsHook pager.diff sequence.editor; do git config $k "$trap"; done
 echo '* filter=x diff=x merge=x' > .gitattributes; mkdir -p .git/info; cp .gitattributes .git/info/attributes`},
		"hooks": {script: hostileCommit + x.trap() +
			`mkdir -p .git/hooks; for h in post-checkout post-commit post-index-change pre-commit reference-transaction fsmonitor-watchman pre-auto-gc update post-update; do
 cp .git/trap .git/hooks/$h; done; git config core.hooksPath "$PWD/.git/hooks"`},
		"an included configuration": {script: hostileCommit + x.trap() +
			`printf '[core]\n fsmonitor = %s\n' "$trap" > .git/more; git config include.path more; cp .git/more $HOME/.gitconfig`},
		"submodules": {script: x.trap() + `printf '[submodule "x"]\n path = x\n url = ext::sh -c "echo ran >> ` +
			x.canary + `"\n update = !echo ran >> ` + x.canary + `\n' > .gitmodules
git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x; cp .gitmodules .git/m; git config -f .git/config --add include.path m; mkdir -p x; echo "gitdir: /" > x/.git` + hostileCommit},
		"symbolic links": {script: `ln -s ` + x.secret + ` link.txt; ln -s ` + filepath.Dir(x.secret) +
			` dir; rm -rf src; ln -s ` + filepath.Dir(x.secret) + ` src; ln -sf ` + x.secret + ` notes.txt
ln -s ` + x.secret + ` .gitignore; mkdir -p deep; ln -s / deep/root; ln ` + x.secret + ` hard.txt 2>/dev/null` +
			hostileCommit + `rm -f notes.txt; ln -s ` + x.secret + ` notes.txt; true`},
		"a .git that is a file": {script: hostileCommit + `rm -rf .git; echo "gitdir: ` + x.repo + `/.git" > .git`,
			lost: "its .git cannot be used"},
		"a .git that is a link": {script: hostileCommit + `rm -rf .git; ln -s ` + x.repo + `/.git .git`,
			lost: "its .git cannot be used"},
		"objects of others": {
			script: hostileCommit + `echo ` + x.repo + `/.git/objects > .git/objects/info/alternates`,
			lost:   "refers to objects",
		},
		"refs that lead away": {
			script: hostileCommit + `rm -f .git/HEAD; ln -s ` + x.secret + ` .git/HEAD`, lost: "the value of HEAD",
		},
		"no way back": {
			script: hostileCommit + `mkfifo pipe .git/pipe; mkdir -p a/b/c; : > a/b/c/f; chmod 000 a/b/c a/b a; chmod 000 .git/refs; chmod 500 .`,
		},
		"a very deep directory": {script: hostileCommit + `python3 -c 'import os
for i in range(1500): os.mkdir("d"); os.chdir("d")'`},
		"names that are not for eyes": {script: `printf x > "$(printf 'a\033[2Jb\nc\377')"; printf x > '-rf'; printf x > '; touch ` + strings.ReplaceAll(x.canary, "/", ":") + `'` + hostileCommit},
		"a workspace that is gone":    {script: hostileCommit + `cd ..; rm -rf checkout home tmp 2>/dev/null; true`},
	} {
		t.Run(name, func(t *testing.T) {
			x.api.t, x.place.t = t, t
			end := x.runBesideHonestJob(c.script+"\nexit 0", `"timeout_seconds":60`)
			if end.string("status") != "completed" {
				t.Errorf("the job ended as %s", end.text)
			}
			if c.lost != "" && !strings.Contains(end.string("changes", "lost"), c.lost) {
				t.Errorf("the result does not say what is lost: %s", end.text)
			}
			// Restoring the job's changes must not run the trap either.
			dir := x.path("again-" + strings.ReplaceAll(name, " ", "-"))
			if end.at("changes") != nil {
				r := x.belay("workspaces", "restore", end.string("job_id"), dir)
				if r.code != 0 && !strings.Contains(r.err, "belay: ") {
					t.Errorf("%s", r)
				}
				x.untouched(end.string("job_id"))
			}
		})
	}
}

// Rule: a job cannot see and cannot change anything of the server and of other jobs: neither their
// processes, nor their files, nor their environment.
func TestAJobCannotSeeOthers(t *testing.T) {
	t.Parallel()
	x := attack(t, "BELAY_TEST_SECRET="+marker)
	hold := x.ask(`echo `+marker+` > mine.txt; echo $PWD; sleep 20`, `"timeout_seconds":30`)
	until(t, "the other job runs", func() bool {
		left, _ := filepath.Glob(filepath.Join(x.data, "workspaces", "jobs", "*", "checkout", "mine.txt"))
		return len(left) == 1
	})
	id := x.ask(`id -u
cat ` + x.secret + ` ` + x.data + `/workspaces/jobs/*/checkout/mine.txt ` + x.data +
		`/belay.db /proc/*/environ 2>/dev/null | tr '\0' '\n' | grep -a ` + marker[:5] + `''` + marker[5:] +
		` && echo SAW
ls -d /proc/[0-9]* | wc -l
kill -9 -1; kill -9 ` + strconv.Itoa(x.server.cmd.Process.Pid) + ` 2>/dev/null
echo x > ` + x.canary + `; touch /tmp/belay-hostile-canary /var/tmp/belay-hostile-canary /dev/shm/belay-hostile-canary
grep NoNewPrivs /proc/self/status; ls /proc/self/fd | wc -l; env | grep -c SECRET
true`)
	end := x.ended(id)
	text := x.call("GET", "/jobs/"+id+"/log", "").text + end.text
	if strings.Contains(text, "SAW") {
		t.Errorf("the job saw data of others: %s", clip(text))
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if _, err := os.Lstat(filepath.Join(dir, "belay-hostile-canary")); err == nil {
			t.Errorf("the job wrote to %s", dir)
			_ = os.Remove(filepath.Join(dir, "belay-hostile-canary"))
		}
	}
	if got := x.job(hold); got.string("status") != "running" {
		t.Errorf("the other job is %s", got.text)
	}
	x.want(http.StatusAccepted, "POST", "/jobs/"+hold+"/cancel", "")
	x.ended(hold)
	x.untouched(id)
}
