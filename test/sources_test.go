package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// traps is a script that configures a repository so that git would run the program $1 wherever git
// can run programs: in its configuration and as its hooks.
const traps = `for k in core.fsmonitor core.sshCommand core.pager core.editor core.alternateRefsCommand diff.external diff.x.textconv diff.x.command merge.x.driver \
	filter.x.clean filter.x.smudge filter.x.process gpg.program credential.helper uploadpack.packObjectsHook remote.origin.uploadpack; do git config $k "$1"; done
git config core.hooksPath "$PWD/.git/hooks"; git config protocol.ext.allow always; git config uploadpack.allowAnySHA1InWant true
mkdir -p .git/hooks; for h in post-checkout pre-commit post-index-change reference-transaction pre-push update post-update; do cp "$1" .git/hooks/$h; done`

// unpacks is a script that makes a repository of a few kilobytes whose checkout takes a gibibyte.
const unpacks = `blob=$(dd if=/dev/zero bs=1M count=1 2>/dev/null | git hash-object -w --stdin)
tree=$(for i in $(seq 10); do printf '100644 blob %s\tf%s\n' $blob $i; done | git mktree)
for n in 1 2; do tree=$(for i in $(seq 10); do printf '040000 tree %s\td%s\n' $tree $i; done | git mktree); done
git update-ref refs/heads/main $(git -c user.name=A -c user.email=a@example.org commit-tree -m bomb $tree)`

// source makes a repository by a script. If this test runs as root, source gives the repository to
// a user who is neither the server's user nor root.
func (x *storm) source(name, script string) string {
	x.api.t.Helper()
	dir, witness := x.path(name), x.path("bin/witness")
	x.git(x.root, "init", "-q", "-b", "main", dir)
	cmd := exec.Command("sh", "-ec", script, "sh", witness)
	cmd.Dir, cmd.Env = dir, x.environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		x.api.t.Fatalf("%v: %s", err, out)
	}
	if os.Geteuid() == 0 {
		err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil {
				err = os.Lchown(path, foreignUser, foreignUser)
			}
			if err == nil && d.Type()&os.ModeSymlink == 0 {
				err = os.Chmod(path, 0o755)
			}
			return err
		})
	}
	if err != nil {
		x.api.t.Fatal(err)
	}
	return dir
}

// foreignUser is the id of a user that is none of these: root, the user of a job, the user of the
// base clones.
const foreignUser = 61_999

// Rule: a hostile repository harms neither the server nor other jobs, on serve and on worker, in
// each mode of the sandbox. Programs that its configuration names do not run, the limits of a job
// stop the checkout of a repository that unpacks to a gibibyte, and a job ends even if its
// repository would block git forever.
func TestHostileRepositoriesDoNoHarm(t *testing.T) {
	for _, m := range modes {
		for _, kind := range []string{"serve", "worker"} {
			t.Run(m.name+"-"+kind, func(t *testing.T) {
				t.Parallel()
				if os.Geteuid() != 0 && !m.user {
					t.Skip("only root can be root")
				}
				x := prepareStorm(t, m, "")
				ran := x.witness()
				armed := `echo '* filter=x diff=x merge=x' > .gitattributes; echo one > file; git add -A; git -c user.name=A -c user.email=a@example.org commit -qm one
` + traps + `; rm -f ` + ran + `; echo two > file`
				trap, shared := x.source("trap", armed), x.source("shared", armed)
				// The directory is like the system's temporary directory: every user may write into
				// it, and only the files in it belong to another user.
				if err := errors.Join(os.Lchown(shared, x.uid, x.uid), os.Chmod(shared, 0o777|
					os.ModeSticky)); err != nil {
					t.Fatal(err)
				}
				bomb, hangs := x.source("bomb", unpacks),
					x.source("hangs", "git -c user.name=A -c user.email=a@example.org commit -q --allow-empty -m "+
						"one; rm .git/HEAD; mkfifo .git/HEAD")
				_ = os.Remove(ran)
				x.allow(trap, shared, bomb, hangs)
				x.begin(kind)
				began := time.Now()
				ids := []string{x.work(trap), x.work(shared), x.work(bomb), x.work(hangs)}
				for i, want := range []string{"git worked", "git worked", "quota of 32.0 MiB", "not a regular file"} {
					if end := x.ended(ids[i]); !strings.Contains(end.text, want) {
						t.Errorf("%s: the job ended without %q: %s", []string{"trap", "shared", "bomb", "hangs"}[i],
							want,
							end.text)
					}
				}
				if took := time.Since(began); took > 3*time.Minute {
					t.Errorf("the jobs took %s", took)
				}
				if by := read(t, ran); by != "" {
					t.Errorf("programs of the source ran, as users %q", strings.Fields(by))
				}
				x.stop()
			})
		}
	}
}

// witness makes the program bin/witness and returns the path of a file. When the program runs, it
// writes its user into that file.
func (x *storm) witness() (ran string) {
	x.api.t.Helper()
	ran = x.path("outside/ran")
	if err := os.WriteFile(x.path("bin/witness"), []byte("#!/bin/sh\nid -u >> "+ran+"\ncat\n"), 0o755); err != nil {
		x.api.t.Fatal(err)
	}
	return ran
}

// allow adds repositories to agent.repos.
func (x *storm) allow(repos ...string) {
	x.api.t.Helper()
	f, err := os.OpenFile(x.path("belay.yaml"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = fmt.Fprintf(f, "  repos: ['%s']\n", strings.Join(repos, "', '"))
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		x.api.t.Fatal(err)
	}
}

// work submits a prompt with which the attacker only runs git in a workspace of a repository.
func (x *storm) work(repo string) string {
	x.api.t.Helper()
	return x.try(repo, "work")
}

// try submits a prompt with which the attacker tries attacks in a workspace of a repository.
func (x *storm) try(repo string, attacks ...string) string {
	x.api.t.Helper()
	return x.want(http.StatusAccepted, "POST", "/execute", x.prompt(repo, attacks...), x.headers()...).string("job_id")
}

// prompt returns the body of the request that try sends.
func (x *storm) prompt(repo string, attacks ...string) string {
	x.api.t.Helper()
	spec := maps.Clone(x.spec)
	spec["try"], spec["token"] = attacks, x.token
	raw, err := json.Marshal(spec)
	if err != nil {
		x.api.t.Fatal(err)
	}
	return fmt.Sprintf(`{"prompt":%s,"repo":%s}`, jsonText(string(raw)), jsonText(repo))
}

func (x *storm) ended(id string) (end answer) {
	x.api.t.Helper()
	for range 10 {
		if end = x.want(http.StatusOK, "GET", "/jobs/"+id+"?wait=30", "",
			x.headers()...); end.at("finished_at") != nil {
			return end
		}
	}
	x.api.t.Fatalf("the job does not end: %s\n%s", end.text, x.holder().dump())
	return end
}
