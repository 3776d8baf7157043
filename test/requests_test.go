package test

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: an HTTP request that was submitted to a server is sent to a host that the configuration allows,
// with a secret of the configuration. After kill -9 in the middle of the request, the next server sends the
// request again with the same idempotency key. The secret is in no file of the data directory, no answer of
// the API, no page and no log, although the receiver echoes it.
func TestARequestSurvivesAKilledServer(t *testing.T) {
	t.Parallel()
	const token = "t0ken-of-the-blackbox"
	p := newPlace(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var keys []string
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		n := len(keys)
		mu.Unlock()
		switch n {
		case 1:
			close(arrived)
			<-release
		case 2:
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		rw.Header().Set("X-Echo", r.Header.Get("Authorization"))
		fmt.Fprintf(rw, "answer %d for %s", n, r.Header.Get("Authorization"))
	}))
	defer receiver.Close()
	defer close(release)
	host := receiver.Listener.Addr().String()
	secret := p.path("token")
	must(t, os.WriteFile(secret, []byte(token+"\n"), 0o600))
	args := []string{
		"--http-egress", "public," + host, "--secrets-allow", `["TOKEN from file:` + secret + ` for http to ` + host + `"]`,
	}
	first, a := p.serve(args...)
	id := a.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow": "http", "input": {"url": "`+receiver.URL+
		`/x", "body": {"n": 1}, "auth": {"bearer": "${{ secrets.TOKEN }}"}}}`).string("id")
	<-arrived
	first.signal(syscall.SIGKILL)
	first.wait(patience)
	second, a := p.serve(args...)
	until(t, "the request has ended", func() bool {
		return a.call("GET", "/v1/executions/"+id, "").string("state") == "succeeded"
	})
	mu.Lock()
	if len(keys) != 3 || keys[0] != id+"-1" || keys[1] != keys[0] || keys[2] != keys[0] {
		t.Errorf("the keys: %q", keys)
	}
	mu.Unlock()
	x := a.want(http.StatusOK, "GET", "/v1/executions/"+id, "")
	if x.at("output", "body") != "answer 3 for Bearer [TOKEN]" {
		t.Errorf("%s", x.text)
	}
	seen := x.text + first.err.String() + second.err.String()
	for _, path := range []string{
		"/v1/executions/" + id + "/history?data=true", "/executions/" + id,
	} {
		seen += a.want(http.StatusOK, "GET", path, "").text
	}
	seen += p.run("get", id).out + p.run("serve", "--check-config", "--secrets-allow", args[3]).out
	if strings.Contains(seen, token) {
		t.Errorf("the secret is shown: %s", seen)
	}
	second.signal(syscall.SIGTERM)
	second.wait(patience)
	must(t, filepath.WalkDir(p.path("data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte(token)) {
			t.Errorf("the secret is in %s", path)
		}
		return err
	}))
}

// Rule: belay submit sends a request by hand. A credential in the input is refused before it is stored, and
// a request to an address inside is refused by the server, with the setting that would allow it.
func TestRequestsByHand(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, "hello")
	}))
	defer receiver.Close()
	_, a := p.serve("--http-egress", "public,"+receiver.Listener.Addr().String())
	submit := func(input string, more ...string) result {
		return p.belay(append([]string{"submit", "http", "--server", a.url, "--wait", "--input", input}, more...)...)
	}
	submit(`{"url": "`+receiver.URL+`"}`).want(0).showing(`"status":200`, `"body":"hello"`)
	submit(`{"url": "`+receiver.URL+`"}`, "--on-no-worker", "fail").want(0)
	submit(`{"url": "http://me:pw@example.org/"}`).want(belay.CodeInvalid.Exit()).saying("secrets.PASSWORD")
	submit(`{"url": "http://169.254.169.254/latest/meta-data/"}`).want(1).saying("http.egress")
	submit(`{"url": "` + a.url + `/v1/keys"}`).want(1).saying("http.egress")
	if got := a.call("POST", "/v1/executions", `{"workflow": "http", "input": {"url": "http://me:pw@example.org/"}}`); got.status !=
		http.StatusUnprocessableEntity || strings.Contains(got.text, "pw@") {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// Rule: belay worker sends HTTP requests only if its configuration says so, and then with its own secrets.
func TestAWorkerSendsRequests(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, len(r.Header.Get("X-Key")))
	}))
	defer receiver.Close()
	host := receiver.Listener.Addr().String()
	_, a := p.serve("--http-concurrency", "0")
	w := p.command("worker", "--server", a.url, "--concurrency", "0", "--http-concurrency", "3", "--http-egress", host,
		"--secrets-allow", `["KEY from env:THE_KEY for http to `+host+`"]`)
	w.Env = append(w.Env, "THE_KEY=0123456789")
	p.start(w).says("the worker takes work")
	p.belay("submit", "http", "--server", a.url, "--wait", "--input",
		`{"url": "`+receiver.URL+`", "headers": {"X-Key": "${{ secrets.KEY }}"}}`).want(0).showing(`"body":"10"`)
	p.belay("worker", "--server", a.url, "--concurrency", "0").want(64).saying("--http-concurrency")
}
