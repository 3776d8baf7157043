package test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// token is the secret that a repository's server requires. It must not appear in any place that the
// test checks.
const token = "t0ken-5f2b8c1d9e"

// vault serves a bare copy of a repository over https to clients that know the token.
type vault struct {
	*httptest.Server
	dir, ca string
}

func (p *place) vault() *vault {
	p.t.Helper()
	v := &vault{dir: p.path("vault"), ca: p.path("ca.pem")}
	repo := p.repository()
	for _, name := range []string{"own", "named"} {
		p.git(p.root, "clone", "-q", "--bare", repo, filepath.Join(v.dir, name+".git"))
		p.git(filepath.Join(v.dir, name+".git"), "update-server-info")
	}
	files := http.FileServer(http.Dir(v.dir))
	v.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "bot" || password != token {
			w.Header().Set("WWW-Authenticate", `Basic realm="vault"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	}))
	p.t.Cleanup(v.Close)
	if err := os.WriteFile(v.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.Certificate().Raw}),
		0o644); err != nil {
		p.t.Fatal(err)
	}
	return v
}

// as returns the URL of a repository with the token in it.
func (v *vault) as(name string) string {
	return strings.Replace(v.URL, "https://", "https://bot:"+token+"@", 1) + "/" + name + ".git"
}

// watchProcessList looks for the token in the arguments of all processes, until the test calls
// stop. It ignores the commands in which the test itself writes the token.
func watchProcessList(t *testing.T) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range lines {
				raw, _ := os.ReadFile(path)
				if line := string(raw); strings.Contains(line, token) && !strings.Contains(line, "belay\x00run") &&
					!strings.Contains(line, "belay\x00submit") {
					t.Errorf("a list of processes shows the token: %q", line)
					return
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	return func() {
		close(done)
		looking.Wait()
	}
}

// mustNotContainToken fails the test if a file below a directory contains the token.
func mustNotContainToken(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if strings.Contains(string(raw), token) {
			t.Errorf("the token is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Rule: credentials in the configuration, in a credentials file, and in the command line of a
// user's own belay run give access to their repositories, and appear nowhere else: neither in
// stored data, logs, pages and answers, nor in a list of processes.
func TestCredentialsDoNotLeak(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v := p.vault()
	config, file := p.path("belay.yaml"), p.path("credentials")
	text := fmt.Sprintf("agent:\n  command: [cat, notes.txt]\n  repo: %s\n  repos: ['%s/named']\n  "+
		"git_credentials: %s\n", v.as("own"), v.URL, file)
	for path, text := range map[string]string{config: text, file: v.as("named") + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop := watchProcessList(t)
	cmd := withEnv(p.command("serve", "--listen", "127.0.0.1:0", "--config", config), "SSL_CERT_FILE="+v.ca)
	x := p.start(cmd)
	x.until("the server is ready", func() bool { return ready.MatchString(x.err.String()) })
	a := agents{api{t, ready.FindString(x.err.String())}, p, x}
	seen := ""
	for _, more := range []string{"", `"repo":` + jsonText(v.URL+"/named.git")} {
		var id string
		if more == "" {
			id = a.ask("p")
		} else {
			id = a.ask("p", more)
		}
		if got := a.wantEnd(id, "completed", 0.0); got.string("result") != "notes\n" {
			t.Errorf("the job says %s", got.text)
		}
		for _, path := range []string{"/jobs/" + id, "/jobs/" + id + "/log", "/v1/executions/" + id, "/v1/executions/" +
			id + "/history?data=true", "/v1/executions/" + id + "/explain", "/executions/" + id, "/executions",
			"/", "/dead", "/workers", "/queues", "/v1/executions", "/v1/workers", "/metrics"} {
			seen += a.want(http.StatusOK, "GET", path, "").text
		}
		seen += p.belay("get", id).want(0).out + p.belay("get", id, "-o", "json").want(0).out
	}
	for _, path := range []string{"/execute", "/v1/executions"} {
		for _, repo := range []string{v.as("own"), v.as("named"), strings.Replace(v.URL, "https://", "https://"+token+
			"@", 1) + "/own.git"} {
			body := `{"prompt":"p","repo":` + jsonText(repo) + `}`
			if path != "/execute" {
				body = `{"workflow":"agent","input":` + body + `}`
			}
			if got := a.want(http.StatusUnprocessableEntity, "POST", path, body); !strings.Contains(got.text,
				"agent.git_credentials") {
				t.Errorf("%s does not say what to do: %s", path, got.text)
			} else {
				seen += got.text
			}
		}
	}
	for _, args := range [][]string{
		{"submit", "agent", "--input", `{"prompt":"p","repo":` + jsonText(v.as("own")) + `}`},
		{"submit", "command", "--repo", v.as("own"), "--", "true"},
	} {
		r := p.belay(args...).want(65).saying("agent.git_credentials")
		seen += r.out + r.err
	}
	r := p.start(withEnv(p.command("run", "--repo", v.as("own"), "--", "cat", "notes.txt"), "SSL_CERT_FILE="+
		v.ca)).wait(patience).want(0)
	if r.out != "notes\n" {
		t.Errorf("%s", r)
	}
	check := p.belay("serve", "--config", config, "--check-config").want(0)
	if !strings.Contains(check.out, v.URL+"/own.git") {
		t.Errorf("%s", check)
	}
	seen += r.out + r.err + check.out + check.err
	for _, e := range p.executions() {
		all, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		seen += string(all) + p.belay("get", e.ID.String(), "-o", "json").want(0).out
	}
	mustNotContainToken(t, p.data)
	end := a.stop()
	stop()
	if seen += end.out + end.err; strings.Contains(seen, token) {
		t.Errorf("the token is shown: …%s…", seen[max(0, strings.Index(seen, token)-300):strings.Index(seen, token)])
	}
	mustNotContainToken(t, p.data)
}
