package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// acknowledgements are the submissions that the server acknowledged to clients.
type acknowledgements struct {
	mu  sync.Mutex
	ids []string
}

func (a *acknowledgements) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.ids...)
}

// hammer submits from several clients at once until the server no longer answers.
func (a api) hammer(all *sync.WaitGroup, told *acknowledgements, clients int) {
	for i := range clients {
		all.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			c := &http.Client{Transport: transport, Timeout: patience}
			for n := 0; ; n++ {
				body := fmt.Sprintf(`{"workflow":"w","input":{"client":%d,"n":%d}}`, i, n)
				r, err := c.Post(a.url+"/v1/executions", "application/json", strings.NewReader(body))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
				if r.StatusCode != http.StatusCreated {
					return
				}
				location := r.Header.Get("Location")
				told.mu.Lock()
				told.ids = append(told.ids, location[strings.LastIndexByte(location, '/')+1:])
				told.mu.Unlock()
			}
		})
	}
}

// Rule: every submission that the server acknowledged is in the store after any number of kill -9,
// and after a graceful shutdown (guarantee G3).
func TestAcknowledgedSubmissionsSurviveKills(t *testing.T) {
	t.Parallel()
	r := dice(t)
	p := newPlace(t)
	var told acknowledgements
	rounds := 4
	for i := range rounds {
		x, a := p.serve()
		var all sync.WaitGroup
		had := len(told.list())
		a.hammer(&all, &told, 4)
		x.until("a submission is acknowledged", func() bool { return len(told.list()) > had+10 })
		x.after(between(r, 0, 100*time.Millisecond))
		if i == rounds-1 {
			x.signal(syscall.SIGTERM)
			x.wait(patience).want(0)
		} else {
			x.signal(syscall.SIGKILL)
			x.wait(patience)
		}
		all.Wait()
	}
	store := p.reader()
	for _, text := range told.list() {
		id, err := belay.ParseExecutionID(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Execution(t.Context(), id); err != nil {
			t.Errorf("acknowledged and lost: %v", err)
		}
	}
	t.Logf("%d acknowledged", len(told.list()))
	p.sound()
}

// Rule: a graceful shutdown ends streams and long polls so that their clients can connect to
// another server, logs the shutdown, and exits with 0. The first log line names the server's
// addresses.
func TestAServerStopsGracefully(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x, a := p.serve()
	if said := x.err.String(); !strings.Contains(said, "sqlite:"+p.data) ||
		!strings.Contains(said, `keys="none needed"`) || !strings.Contains(said, "pages="+a.url) {
		t.Errorf("the line of a ready server does not name its addresses\n%s", said)
	}
	id := a.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow":"w"}`).string("id")
	events := a.watch(id)
	claimed := a.claim()
	x.signal(syscall.SIGTERM)
	x.wait(10*time.Second).want(0).saying("belay is stopping", "belay has stopped")
	for range events { // reads until the server ends the stream
	}
	if status := <-claimed; status != http.StatusNoContent && status != http.StatusServiceUnavailable {
		t.Errorf("the claim that waited got %d", status)
	}
	p.clean()
}

// claim opens a worker session and sends a claim that waits. It returns once the server has read
// the request. The channel delivers the status of the answer, or 0 if there is none.
func (a api) claim() <-chan int {
	a.t.Helper()
	worker := a.want(http.StatusCreated, "POST", "/v1/workers",
		`{"name":"w","workflows":[{"workflow":"none"}],"capacity":1}`).string("id")
	reads, status := make(chan struct{}), make(chan int, 1)
	trace := &httptrace.ClientTrace{Got100Continue: func() { close(reads) }}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(a.t.Context(), trace), http.MethodPost,
		a.url+"/v1/workers/"+worker+"/claim", strings.NewReader(`{"number":1,"slots":1,"wait_ms":60000}`))
	if err != nil {
		a.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Expect", "100-continue") // the server sends 100 Continue when it reads the body
	go func() {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: patience}}
		response, err := c.Do(request)
		if err != nil {
			status <- 0
			return
		}
		_ = response.Body.Close()
		status <- response.StatusCode
	}()
	select {
	case <-reads:
	case <-time.After(patience):
		a.t.Fatal("the claim is not read")
	}
	return status
}

// Rule: with --concurrency the server runs the built-in workflows itself. A first SIGTERM lets
// running executions finish; a second one ends everything at once and loses nothing.
func TestAServerThatRunsExecutions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	free := p.path("free")
	command := func(script string) string {
		return fmt.Sprintf(`{"workflow":"command","input":{"steps":[{"name":"s","argv":["sh","-c",%q]}]}}`, script)
	}
	x, a := p.serve(append(bare, "--concurrency", "2", "--grace", "1m")...)
	id := a.want(http.StatusCreated, "POST", "/v1/executions",
		command("touch "+p.path("one")+"; "+busy(free))).string("id")
	x.until("the command runs", func() bool { return exists(p.path("one")) })
	x.signal(syscall.SIGTERM)
	x.says("belay is stopping")
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x.wait(patience).want(0)
	if e := p.execution(parse(t, id)); e.State != belay.Succeeded {
		t.Errorf("the execution that ran at the first SIGTERM is %s", e.State)
	}

	x, a = p.serve(append(bare, "--concurrency", "2", "--grace", "1h")...)
	id = a.want(http.StatusCreated, "POST", "/v1/executions",
		command("touch "+p.path("two")+"; "+busy(p.path("never")))).string("id")
	x.until("the command runs", func() bool { return exists(p.path("two")) })
	x.signal(syscall.SIGTERM)
	x.says("belay is stopping")
	x.signal(syscall.SIGTERM)
	x.wait(10 * time.Second).want(130)
	until(t, "its command is gone", func() bool { return len(p.processes()) == 0 })
	if e := p.execution(parse(t, id)); e.State != belay.Running {
		t.Errorf("the interrupted execution is %s before an engine started again", e.State)
	}
	x, _ = p.serve()
	until(t, "the execution is reclaimed", func() bool { return p.execution(parse(t, id)).State == belay.Pending })
	x.signal(syscall.SIGTERM)
	x.wait(patience).want(0)
	p.sound()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func parse(t *testing.T, text string) belay.ExecutionID {
	t.Helper()
	id, err := belay.ParseExecutionID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Rule: if the disk fails a write, the server ends at once, says what to do, and answers no more
// requests. Everything that it acknowledged before is in the store.
func TestAServerEndsWhenItsDiskFails(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatalf("strace is needed: %v (scripts/need.sh strace)", err)
	}
	cmd := p.command("serve", "--listen", "127.0.0.1:0")
	// strace makes each fsync of a thread fail after the thread's 24th fsync. The count is per
	// thread, so the test cannot predict at which commit the first failure comes.
	cmd.Args = append([]string{
		strace, "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e",
		"inject=fsync,fdatasync:error=EIO:when=25+",
		"-P", filepath.Join(p.data, "belay.db-wal"), cmd.Path,
	}, cmd.Args[1:]...)
	cmd.Path = strace
	x := p.start(cmd)
	x.until("the server is ready", func() bool { return ready.MatchString(x.err.String()) })
	a := api{t, ready.FindString(x.err.String())}
	var all sync.WaitGroup
	var told acknowledgements
	a.hammer(&all, &told, 2)
	x.wait(patience).want(70).saying("the store has failed", "check the disk")
	all.Wait()
	if len(told.list()) == 0 {
		t.Error("nothing was acknowledged before")
	}
	store := p.reader()
	for _, text := range told.list() {
		if _, err := store.Execution(t.Context(), parse(t, text)); err != nil {
			t.Errorf("acknowledged and lost: %v", err)
		}
	}
	p.sound()
}

// Rule: a server with errors in its configuration does not start, and each error names its line.
// --check-config prints each effective value and its source.
func TestAServerReadsItsConfiguration(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	file := filepath.Join(p.cwd, "belay.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("listen: 127.0.0.1:0\nlimits:\n  conections: 7\ngrace: soon\n")
	p.belay("serve", "--config", "belay.yaml").want(65).saying(
		"belay.yaml:3: limits.conections: there is no such key; did you mean connections?",
		`belay.yaml:4: grace: "soon" is not valid`)
	p.belay("serve", "--config", "none.yaml").want(66).saying("none.yaml")
	p.belay("serve", "--listen", "here").want(65).saying("--listen", "HOST:PORT")
	write("listen: 127.0.0.1:0\nretention: 1h\n")
	r := p.belay("serve", "--config", "belay.yaml", "--grace", "3", "--check-config", "-o", "json").want(0)
	var values []struct{ Key, Value, From string }
	decode(t, r.out, &values)
	got := make(map[string]string)
	for _, v := range values {
		got[v.Key] = v.Value + " " + v.From
	}
	for key, want := range map[string]string{
		"retention": "1h belay.yaml:2", "grace": "3s --grace", "data": p.data + " BELAY_DATA",
		"concurrency": "0 default",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	p.belay("serve", "--listen", "0.0.0.0:0").want(73).saying("belay keys create --name", "--insecure-no-auth")
	x, _ := p.serve("--config", "belay.yaml") // a flag overrides the file
	x.signal(syscall.SIGTERM)
	x.wait(patience).want(0).saying("config=belay.yaml")
}

// Rule: belay prints the secret of a key once, alone on standard output. A client can use the key
// and its scopes immediately, and no longer after the key was revoked.
func TestKeysOfAServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.belay("keys", "create", "--name", "ci", "--scope", "read,submit").want(0).saying("ci",
		"cannot show it")
	secret := strings.TrimSuffix(r.out, "\n")
	if !strings.HasPrefix(secret, "bly_") || strings.ContainsAny(secret, " \n") {
		t.Fatalf("standard output is not the key alone: %q", r.out)
	}
	for _, args := range [][]string{{"--scope", "read"}, {"--name", "x"}, {"--name", "x", "--scope", "everything"}} {
		p.belay(append([]string{"keys", "create"}, args...)...).want(64)
	}
	_, a := p.serve()
	bearer := []string{"Authorization", "Bearer " + secret}
	a.want(http.StatusUnauthorized, "GET", "/v1/executions", "")
	a.want(http.StatusOK, "GET", "/v1/executions", "", bearer...)
	a.want(http.StatusForbidden, "GET", "/v1/keys", "", bearer...)
	if listed := p.belay("keys", "ls").want(0); !strings.Contains(listed.out, "ci") ||
		strings.Contains(listed.out, secret[4:]) {
		t.Errorf("the list\n%s", listed)
	}
	// These commands reach the server over the network, with a key that has the scope admin.
	admin := strings.TrimSpace(p.belay("keys", "create", "--name", "root", "--scope", "admin").want(0).out)
	remote := func(args ...string) result {
		t.Helper()
		cmd := p.command(append([]string{"--server", a.url}, args...)...)
		cmd.Env = append(cmd.Env, "BELAY_KEY="+admin)
		return p.start(cmd).wait(patience)
	}
	var made struct{ Secret string }
	decode(t, remote("keys", "create", "--name", "far", "--scope", "read", "-o", "json").want(0).out, &made)
	a.want(http.StatusOK, "GET", "/v1/executions", "", "Authorization", "Bearer "+made.Secret)
	remote("keys", "revoke", "far").want(0)
	a.want(http.StatusUnauthorized, "GET", "/v1/executions", "", "Authorization", "Bearer "+made.Secret)
	p.belay("keys", "revoke", "ci").want(0)
	a.want(http.StatusUnauthorized, "GET", "/v1/executions", "", bearer...)
	p.belay("keys", "revoke", "ci").want(66)
}

// port returns a port on which no process listens at the moment.
func port(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Rule: a worker on another machine needs only its key. It keeps its session and its run when the
// server is killed and restarted, and stops gracefully.
func TestAWorkerOfAServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	address := port(t)
	secret := strings.TrimSpace(p.belay("keys", "create", "--name", "w", "--scope", "worker").want(0).out)
	admin := []string{
		"Authorization", "Bearer " + strings.TrimSpace(p.belay("keys", "create", "--name", "a", "--scope",
			"admin").want(0).out),
	}
	elsewhere := func(args ...string) *exec.Cmd {
		cmd := p.command(append([]string{"worker", "--server", "http://" + address, "--data", p.path("elsewhere")},
			args...)...)
		cmd.Env = append(cmd.Env, "BELAY_KEY="+secret)
		return cmd
	}
	w := p.start(elsewhere(append(bare, "--name", "far", "--label", "gpu=yes", "--queue", "special", "--concurrency",
		"3")...))
	w.says("the server does not answer; the worker tries again until it does")
	server, a := p.serve("--listen", address)
	w.says("takes work")
	ledger, free := p.path("ledger"), p.path("free")
	body := fmt.Sprintf(`{"workflow":"command","queue":"special","worker_labels":{"gpu":"yes"},"input":{"steps":[{"name":"s","argv":["sh","-c",%q]}]}}`,
		"echo begun >> "+ledger+"; "+busy(free))
	id := a.want(http.StatusCreated, "POST", "/v1/executions", body, admin...).string("id")
	w.until("the command runs", func() bool { return exists(ledger) })
	server.signal(syscall.SIGKILL)
	server.wait(patience)
	server, _ = p.serve("--listen", address)
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the execution has ended", func() bool { return p.execution(parse(t, id)).State.Terminal() })
	if e := p.execution(parse(t, id)); e.State != belay.Succeeded || e.Token&0xffffffff != 1 ||
		read(t, ledger) != "begun\n" {
		t.Errorf("the execution is %s with token %d after %q", e.State, e.Token, read(t, ledger))
	}
	if list := a.want(http.StatusOK, "GET", "/v1/workers", "", admin...); strings.Count(list.text, `"far"`) != 1 {
		t.Errorf("the worker did not keep its session\n%s", list.text)
	}
	w.signal(syscall.SIGTERM)
	w.wait(patience).want(0).saying("run begins", "run ended", "outcome=succeeded", "the worker has stopped")
	p.start(elsewhere("--concurrency", "0")).wait(patience).want(64)
	strangers := elsewhere()
	strangers.Env = append(strangers.Env, "BELAY_KEY=bly_wrong")
	p.start(strangers).wait(patience).want(77)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
}

// Rule: a worker on the data directory uses the engine of the server on the same directory. When
// the server has stopped, the worker opens the engine itself and continues.
func TestAWorkerBesideAServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve()
	w := p.start(p.command(append([]string{"worker", "--name", "beside"}, bare...)...))
	w.says("takes work")
	free := p.path("free")
	submit := func(script string) belay.ExecutionID {
		t.Helper()
		body := fmt.Sprintf(`{"workflow":"command","input":{"steps":[{"name":"s","argv":["sh","-c",%q]}]}}`, script)
		return parse(t, a.want(http.StatusCreated, "POST", "/v1/executions", body).string("id"))
	}
	first, second := submit("true"), submit("touch "+p.path("begun")+"; "+busy(free))
	until(t, "the first has ended", func() bool { return p.execution(first).State == belay.Succeeded })
	w.until("the second runs", func() bool { return exists(p.path("begun")) })
	server.signal(syscall.SIGKILL)
	server.wait(patience)
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the second has ended", func() bool { return p.execution(second).State.Terminal() })
	if e := p.execution(second); e.State != belay.Succeeded || e.Token&0xffffffff != 1 {
		t.Errorf("the second is %s with token %d", e.State, e.Token)
	}
	w.signal(syscall.SIGTERM)
	w.wait(patience).want(0)
	p.clean()
}
