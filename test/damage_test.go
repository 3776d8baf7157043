package test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Rule: belay refuses a data directory whose write-ahead log was removed after a crash, with one
// line that says what to do, and doctor reports the directory as damaged. A user who accepts the
// loss starts a new epoch (a new range of larger tokens) with belay restore --epoch, and continues
// (guarantees G1 and G3).
func TestADataDirectoryWithoutItsLog(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve()
	a.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow": "w"}`)
	server.signal(syscall.SIGKILL)
	server.wait(patience)
	for _, name := range []string{"belay.db-wal", "belay.db-shm"} {
		if err := os.Remove(filepath.Join(p.data, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"ls"}, {"run", "--repo", "none", "--", "true"}, {"serve", "--listen", "127.0.0.1:0"},
		{"backup", p.path("copy.db")},
	} {
		r := p.belay(args...)
		if r.code == 0 || !strings.Contains(r.err, "acknowledged are missing") ||
			!strings.Contains(r.err, "belay restore --epoch") {
			t.Errorf("belay %s does not notice the damage, or does not say what to do\n%s", args[0], r)
		}
	}
	p.belay("doctor").want(69).showing("bad", "damaged")
	p.belay("restore", "--epoch").want(0)
	p.run("--repo", "none", "--", "true").want(0)
	p.sound()
}

// Rule: a server that finds a damaged page is no longer ready, and its readiness check gives the
// reason.
func TestAServerWithDamagedPagesIsNotReady(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve()
	for range 40 {
		a.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow": "w", "input": "`+strings.Repeat("x", 20_000)+
			`"}`)
	}
	server.signal(syscall.SIGTERM)
	server.wait(patience)
	damage(t, filepath.Join(p.data, "belay.db"))
	server, a = p.serve()
	until(t, "the server finds the damage", func() bool {
		got := a.call("GET", "/v1/executions", "")
		for _, e := range list(got.at("executions")) {
			if a.call("GET", "/v1/executions/"+e, "").status >= 500 {
				return true
			}
		}
		return got.status >= 500
	})
	r := a.want(http.StatusServiceUnavailable, "GET", "/readyz", "")
	if !strings.Contains(r.text, "damaged") {
		t.Errorf("the answer does not give the reason: %s", r.text)
	}
	if !strings.Contains(a.want(http.StatusOK, "GET", "/metrics", "").text, "belay_store_damaged 1") {
		t.Error("the metrics do not show the damage")
	}
	if log := server.err.String(); !strings.Contains(log, "damaged") {
		t.Errorf("the log does not mention the damage\n%s", log)
	}
	p.belay("doctor").want(69).showing("bad", "damaged")
}

// damage overwrites the pages of the database that contain inputs.
func damage(t *testing.T, file string) {
	t.Helper()
	text := []byte(read(t, file))
	const page = 4096
	n := 0
	for at := page; at+page <= len(text); at += page {
		if p := text[at : at+page]; strings.Count(string(p), "x") > page/2 || p[0] == 0x0d &&
			strings.Contains(string(p), "xxxx") {
			copy(p, strings.Repeat("\xff", 64))
			n++
		}
	}
	if n == 0 {
		t.Fatal("nothing to damage was found")
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// list returns the ids of the items of a JSON array.
func list(v any) (ids []string) {
	all, _ := v.([]any)
	for _, e := range all {
		m, _ := e.(map[string]any)
		id, _ := m["id"].(string)
		ids = append(ids, id)
	}
	return ids
}
