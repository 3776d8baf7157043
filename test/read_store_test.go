package test

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// Rule: commands that change nothing can read a database without a server and without an engine,
// even as a user of the database who may only read. The commands create no table and print no
// password.
func TestCommandsReadADatabaseWithoutAServer(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	s := pgtest.Shared(t)
	address := s.Database(t)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	sql := func(text string) string {
		t.Helper()
		out, err := s.Query(strings.Trim(at.Path, "/"), text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	p := newPlace(t)
	p.belay("ls", "--store", address).want(66).saying("no Belay data in the database yet")
	p.belay("doctor", "--store", address).want(69).showing("bad", "no Belay data in the database yet")
	if n := sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); n != "0" {
		t.Errorf("reading has made %s tables", n)
	}
	d := openDatabase(t, address)
	out, err := d.Submit(t.Context(), belay.Submission{Workflow: "ended"}, belay.Submission{Workflow: "open"})
	if err != nil {
		t.Fatal(err)
	}
	ended, open := out[0].ID, out[1].ID
	if _, err := d.Control(t.Context(), belay.Control{Execution: ended, Action: belay.ActionCancel}); err != nil {
		t.Fatal(err)
	}
	d.close()

	role := "reader_" + strings.ToLower(rand.Text())
	sql("CREATE ROLE " + role + " LOGIN; ALTER ROLE " + role + " SET default_transaction_read_only = on; " +
		"GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + role)
	reader := strings.Replace(address, "user=postgres", "user="+role, 1)
	for _, c := range []struct{ args, shows string }{
		{"ls", open.String()}, {"ls -o json", open.String()}, {"ls --state cancelled", ended.String()},
		{"get @last", "open"}, {"get -o json " + ended.String(), `"cancelled"`},
		{"explain " + open.String(), "no worker is connected"}, {"watch " + ended.String(), "submitted"},
		{"workers ls", "no workers"}, {"doctor", "can be read"}, {"doctor -o json", "1 pending, 1 cancelled"},
		{"__complete get", open.String()},
	} {
		args := strings.Fields(c.args)
		if args[0] == "__complete" {
			args = append(args, "--store", reader, "")
		} else {
			args = append(args, "--store", reader)
		}
		r := p.belay(args...).want(0).showing(c.shows)
		if strings.Contains(r.err, "no engine") {
			t.Errorf("the command speaks of the engine of a data directory\n%s", r)
		}
		cmd := p.command(strings.Fields(strings.TrimPrefix(c.args, "__complete "))...)
		cmd.Env = append(cmd.Env, "BELAY_STORE="+reader+"&password="+secret)
		if r := p.start(cmd).wait(patience); strings.Contains(r.out+r.err, secret) {
			t.Errorf("the password is shown\n%s", r)
		} else if !strings.HasPrefix(c.args, "__complete") {
			r.want(0).showing(c.shows)
		}
	}
}

// Rule: a command that cannot read the store that the user names says why, ends with the exit code
// for the reason, and does not read another store instead.
func TestAStoreThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("--repo", "none", "--key", "k", "--", "true").want(0)
	const down = "postgres://me@127.0.0.1:1/x" // no program listens on port 1
	for _, args := range []string{"ls", "get k", "explain k", "workers ls", "keys ls", "serve --listen 127.0.0.1:0"} {
		p.belay(append(strings.Fields(args), "--store", down)...).want(69).saying("no connection to the database")
	}
	p.belay("doctor", "--store", down).want(69).showing("bad", "no connection to the database", down)
	p.belay("ls", "--store", "postgres://me:hunter2@db/x").want(65).saying("everybody on this machine can read")
	p.belay("ls", "--store", "memory:").want(65).saying("sqlite:DIR")
	p.belay("ls", "--store", "sqlite:"+p.path("none")).want(66).saying("no Belay data")
	for _, other := range []string{"--server=http://127.0.0.1:1", "--data=" + p.data} {
		p.belay("ls", "--store", down, other).want(64).saying("give one of them")
	}
	elsewhere := newPlace(t)
	elsewhere.belay("get", "k", "--store", "sqlite:"+p.data).want(0).showing("succeeded")
	elsewhere.belay("ls", "--help").want(0).showing("--store")
	elsewhere.belay("__complete", "ls", "--store", "").want(0).showing("postgres://", "sqlite:")
}
