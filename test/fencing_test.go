package test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// twoOwners moves an execution from one owner to another, and returns the stale token and the
// current one.
func twoOwners(a api) (execution string, stale, current int64) {
	a.t.Helper()
	at := a.want(201, "POST", "/v1/executions",
		`{"workflow":"w","dispatch":"external","on_lost":"requeue"}`).header.Get("Location")
	token := func() int64 {
		lock := a.want(201, "POST", at+"/lock", `{"owner":"somebody"}`)
		return int64(lock.at("lease", "token").(float64))
	}
	stale = token()
	a.want(200, "POST", at+"/lock/steal", `{"reason":"a test"}`)
	return at[len("/v1/executions/"):], stale, token()
}

// Rule: the fencing recipe of the docs for a table, with the SQL statement of the docs and real
// tokens, refuses a stale owner.
func TestATableRefusesAStaleOwner(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	execution, stale, current := twoOwners(a)
	text, err := os.ReadFile("../examples/fencing/sink.sql")
	if err != nil {
		t.Fatal(err)
	}
	create, write, ok := strings.Cut(string(text), ");")
	if !ok {
		t.Fatal("the recipe has no two statements")
	}
	db, err := sql.Open("sqlite", p.path("sink.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(create + ");"); err != nil {
		t.Fatal(err)
	}
	put := func(token, amount int64) error {
		var got int64
		return db.QueryRow(write, execution, token, amount).Scan(&got)
	}
	for _, step := range []struct {
		token, amount int64
		want          error
	}{{stale, 1, nil}, {current, 2, nil}, {stale, 3, sql.ErrNoRows}, {current, 4, nil}} {
		if err := put(step.token, step.amount); !errors.Is(err, step.want) {
			t.Errorf("token %d: %v, want %v", step.token, err, step.want)
		}
	}
	var amount int64
	if err := db.QueryRow("SELECT amount FROM balance WHERE execution = ?", execution).Scan(&amount); err != nil ||
		amount != 4 {
		t.Errorf("the amount is %d, %v", amount, err)
	}
}

// Rule: the fencing recipe for an HTTP service refuses a stale owner.
func TestAServiceRefusesAStaleOwner(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	execution, stale, current := twoOwners(a)
	script, err := filepath.Abs("../examples/fencing/sink.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-B", script)
	cmd.Env = p.environment()
	x := p.start(cmd)
	x.prints("http://")
	sink := api{t, strings.TrimSpace(x.out.String())}
	put := func(want int, token string) {
		t.Helper()
		sink.want(want, http.MethodPut, "/things/a", "{}", "Fencing-Scope", execution, "Fencing-Token", token)
	}
	put(200, fmt.Sprint(current))
	put(412, fmt.Sprint(stale))
	put(200, fmt.Sprint(current))
	put(428, "")
}

// Rule: the fencing recipe for a git repository, a hook that requests the current owner from Belay,
// refuses a stale owner.
func TestARepositoryRefusesAStaleOwner(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	execution, stale, current := twoOwners(a)
	hook, err := os.ReadFile("../examples/fencing/pre-receive")
	if err != nil {
		t.Fatal(err)
	}
	git := func(dir string, args ...string) result {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = p.environment("NO_PROXY=127.0.0.1", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.com")
		return p.start(cmd).wait(patience)
	}
	must := func(r result) {
		t.Helper()
		if r.code != 0 {
			t.Fatal(r)
		}
	}
	bare, clone := p.path("bare.git"), p.path("clone")
	must(git(p.root, "init", "-q", "--bare", bare))
	must(git(bare, "config", "receive.advertisePushOptions", "true"))
	must(git(bare, "config", "belay.server", a.url))
	if err := os.WriteFile(filepath.Join(bare, "hooks", "pre-receive"), hook, 0o700); err != nil {
		t.Fatal(err)
	}
	must(git(p.root, "init", "-q", clone))
	push := func(token int64) result {
		t.Helper()
		must(git(clone, "commit", "-q", "--allow-empty", "-m", "work"))
		return git(clone, "push", "-q", "-o", "execution="+execution, "-o", fmt.Sprintf("token=%d", token), bare,
			"HEAD:refs/heads/main")
	}
	if r := push(stale); r.code == 0 || !strings.Contains(r.err, "is stale") {
		t.Errorf("before the owner has pushed\n%s", r)
	}
	must(push(current))
	if r := push(stale); r.code == 0 || !strings.Contains(r.err, "is stale") {
		t.Errorf("after the owner has pushed\n%s", r)
	}
	must(push(current))
	must(git(clone, "commit", "-q", "--allow-empty", "-m", "work"))
	if r := git(clone, "push", "-q", bare, "HEAD:refs/heads/main"); r.code == 0 {
		t.Errorf("a push without a token passed\n%s", r)
	}
}
