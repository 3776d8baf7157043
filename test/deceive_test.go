//go:build linux

package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Rule: in any mode of the sandbox, under serve and under worker, a job cannot use the server's
// rights to read files of other users, and cannot get the server's credentials. The jobs try it
// with links: one job replaces a repository in its own directory by a link, and another job
// replaces files by links while the server saves these files. In addition, the test checks that the
// patch of a job with a large sparse file still contains the job's other files.
func TestJobsCannotDeceiveTheirServer(t *testing.T) {
	for _, m := range modes {
		for _, kind := range []string{"serve", "worker"} {
			t.Run(m.name+"-"+kind, func(t *testing.T) {
				t.Parallel()
				if os.Geteuid() != 0 && !m.user {
					t.Skip("only root can be root")
				}
				x, v := prepareDeceit(t, m)
				x.begin(kind)
				sparse, opened := x.submit(x.token, "sparse"), x.openedBy(v)
				stop, lends := x.lends()
				x.swapsItsRepository()
				x.keepsOthers(sparse)
				x.keepsCredentials(v, opened)
				x.swapsFiles(lends)
				stop()
				x.stop()
				x.neverStored(v)
			})
		}
	}
}

// prepareDeceit makes the files that the jobs attack, and a vault that requires a credential.
func prepareDeceit(t *testing.T, m mode) (*storm, *vault) {
	t.Helper()
	x, v := prepareStorm(t, m, ""), newPlace(t).vault()
	config := strings.Replace(read(t, x.path("belay.yaml")), "save_every: 0", "save_every: 200ms", 1)
	x.write("belay.yaml", config)
	x.write("credentials", v.as("named")+"\n")
	x.env = []string{"SSL_CERT_FILE=" + v.ca, "PATH=" + x.path("bin") + ":" + os.Getenv("PATH")}
	x.spec["private"], x.spec["witness"], x.spec["length"] = x.path("home/private"), x.path("bin/witness"), len(marker)
	x.spec["halves"] = []string{token[:6], token[6:]}
	x.git(x.root, "init", "-q", "-b", "main", x.path("home/private"))
	x.write("home/private/private.txt", marker)
	x.git(x.path("home/private"), "add", "-A")
	x.git(x.path("home/private"), "commit", "-qm", "private")
	x.witness()
	x.winsEachRace()
	x.allow(filepath.Join(x.data, "workspaces", "jobs")+"/*", filepath.Join(x.path("elsewhere"), "workspaces", "jobs")+
		"/*", v.URL+"/*")
	x.hand()
	return x, v
}

// winsEachRace makes the server run a script in place of git. If the current directory has the
// job's file named ready, the script first appends a secret to that file. Then it runs git. The
// script can read the secret, because it has the server's rights.
func (x *storm) winsEachRace() {
	x.api.t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		x.api.t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n[ ! -f ready ] || cat '%s' >>ready 2>/dev/null\nexec '%s' \"$@\"\n",
		x.path("home/.ssh/id_ed25519"), git)
	if err := os.WriteFile(x.path("bin/git"), []byte(script), 0o755); err != nil {
		x.api.t.Fatal(err)
	}
}

// made waits until one of the jobs makes a file of the given name in its checkout, and returns the
// directory of the checkout.
func (x *storm) made(name string) string {
	x.api.t.Helper()
	var found []string
	if !poll(patience, func() bool {
		found, _ = filepath.Glob(filepath.Join(x.jobs, "*", "checkout", name))
		return len(found) == 1
	}) {
		x.api.t.Fatalf("no job has made %s: %s\n%s", name, x.call("GET", "/v1/executions", "", x.headers()...).text,
			x.holder().dump())
	}
	return filepath.Dir(found[0])
}

// verdictOf returns the last line that a job's attacker printed.
func (x *storm) verdictOf(id string) (v verdict, end answer) {
	x.api.t.Helper()
	end = x.ended(id)
	for line := range strings.Lines(end.string("output")) {
		_ = json.Unmarshal([]byte(line), &v)
	}
	return v, end
}

// swapsItsRepository starts a job that again and again replaces its repository by a link and back,
// and starts other jobs on that repository at the same time.
func (x *storm) swapsItsRepository() {
	x.api.t.Helper()
	swapper := x.submit(x.token, "swap-repo")
	dir := x.made("armed")
	if v, end := x.verdictOf(x.try(dir+"/honest", "loot")); v.Detail != "the checkout has the job's own files: evil" {
		x.api.t.Errorf("a repository that is not swapped: %s", end.text)
	}
	var ids []string
	for range 8 {
		ids = append(ids, x.tryUntil(dir+"/evil", "loot"))
	}
	for _, id := range ids {
		v, end := x.verdictOf(id)
		if v.Outcome == "open" {
			x.api.t.Errorf("a repository that was swapped: %s", v.Detail)
		}
		x.api.t.Logf("swapped: %s %s", v.Detail, end.string("error"))
	}
	if by := read(x.api.t, x.path("outside/ran")); by != "" {
		x.api.t.Errorf("programs of the source ran, as users %q", strings.Fields(by))
	}
	x.want(http.StatusAccepted, "POST", "/jobs/"+swapper+"/cancel", "", x.headers()...)
}

// tryUntil repeats a request until the server accepts it. The server refuses it while a link is in
// the place of the repository.
func (x *storm) tryUntil(repo string, attacks ...string) (id string) {
	x.api.t.Helper()
	body := x.prompt(repo, attacks...)
	until(x.api.t, "a repository that is swapped is accepted", func() bool {
		id = x.call("POST", "/execute", body, x.headers()...).string("job_id")
		return id != ""
	})
	return id
}

// lends starts a job that passes open file descriptors of its directories to other jobs. Until the
// test calls stop, lends also swaps the job's files with links.
func (x *storm) lends() (stop func(), id string) {
	x.api.t.Helper()
	id = x.submit(x.token, "lend")
	checkout := x.made("ready")
	tmp := filepath.Join(filepath.Dir(checkout), "tmp")
	done := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for i := range 40 {
				_ = unix.Renameat2(unix.AT_FDCWD, checkout+"/file"+strconv.Itoa(i), unix.AT_FDCWD,
					tmp+"/link"+strconv.Itoa(i), unix.RENAME_EXCHANGE)
			}
		}
	})
	stop = sync.OnceFunc(func() { close(done); over.Wait() })
	x.api.t.Cleanup(stop)
	return stop, id
}

// swapsFiles checks the stored changes of a job whose files were swapped while they were saved.
func (x *storm) swapsFiles(id string) {
	x.api.t.Helper()
	if v, end := x.verdictOf(x.submit(x.token, "borrow")); v.Outcome != "closed" {
		x.api.t.Errorf("a descriptor was passed from job to job: %s", end.text)
	}
	until(x.api.t, "the job's changes are stored", func() bool { return x.stored("kept with the rest") })
	x.want(http.StatusAccepted, "POST", "/jobs/"+id+"/cancel", "", x.headers()...)
	x.ended(id)
	if x.stored(marker) {
		x.api.t.Error("the stored changes of a job contain a file that only the server's user may read")
	}
}

// stored reports whether a text is in the store.
func (x *storm) stored(text string) bool {
	for _, name := range []string{"belay.db", "belay.db-wal"} {
		if raw, err := os.ReadFile(filepath.Join(x.data, name)); err == nil && strings.Contains(string(raw), text) {
			return true
		}
	}
	return false
}

// keepsOthers checks that the patch of a job with a sparse file contains the job's other files.
func (x *storm) keepsOthers(id string) {
	x.api.t.Helper()
	v, end := x.verdictOf(id)
	patch := end.string("changes", "patch")
	if patch == "" || !strings.Contains(x.artifactText(id, patch, x.headers()...).text, "+to be kept") {
		x.api.t.Errorf("beside a sparse file (%s) the other files are not in the patch: %s", v.Outcome, end.text)
	}
}

// openedBy starts a job on a repository for which the server has a credential.
func (x *storm) openedBy(v *vault) string {
	x.api.t.Helper()
	if !has(x.api.t, "agent.git_credentials") {
		return ""
	}
	return x.try(v.URL+"/named.git", "credential", "work")
}

// keepsCredentials checks that the job's attacker found no credential. It also checks that the
// server does not reuse a clone for a job with a wrong credential, if the server made the clone
// with the right credential.
func (x *storm) keepsCredentials(v *vault, id string) {
	x.api.t.Helper()
	for _, route := range []string{"/execute", "/v1/executions"} {
		body := `{"prompt":"{}","repo":` + jsonText(v.as("own")) + `}`
		if route != "/execute" {
			body = `{"workflow":"agent","input":` + body + `}`
		}
		if got := x.call("POST", route, body, x.headers()...); got.status != http.StatusUnprocessableEntity ||
			strings.Contains(got.text, token) {
			x.api.t.Errorf("%s takes a credential in a URL: %s", route, got.text)
		}
	}
	if id == "" {
		return
	}
	if _, end := x.verdictOf(id); !strings.Contains(end.text, "git worked") || !strings.Contains(end.string("output"),
		`"credential","outcome":"closed"`) {
		x.api.t.Errorf("a job on a repository that a credential opened: %s", end.text)
	}
	x.write("credentials", strings.Replace(v.as("named"), token, "other", 1)+"\n")
	if err := os.Lchown(x.path("credentials"), x.uid, x.uid); err != nil {
		x.api.t.Fatal(err)
	}
	if end := x.ended(x.try(v.URL+"/named.git", "work")); strings.Contains(end.text, "git worked") {
		x.api.t.Errorf("a warm clone answers another credential: %s", end.text)
	}
}

// neverStored checks that no file that the server or the worker has written contains the
// credential.
func (x *storm) neverStored(*vault) {
	x.api.t.Helper()
	for _, dir := range []string{x.data, x.path("elsewhere"), x.path("tmp")} {
		if _, err := os.Lstat(dir); err == nil {
			mustNotContainToken(x.api.t, dir)
		}
	}
	for _, s := range x.procs {
		if strings.Contains(s.out.String()+s.err.String(), token) {
			x.api.t.Errorf("the credential is in the log: %s", s.dump())
		}
	}
}
