package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// hello answers with the request's method, host and body.
func hello(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s%s %s", r.Method, r.Host, r.RequestURI, body)
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Rule: a client can reach a host that the policy lists by name, by wildcard or by address, both
// over https (a tunnel) and over http. It can reach no other host.
func TestAClientReachesWhatIsListed(t *testing.T) {
	tls := httptest.NewTLSServer(http.HandlerFunc(hello))
	defer tls.Close()
	plain := httptest.NewServer(http.HandlerFunc(hello))
	defer plain.Close()
	p := begin(t, "example.com", "*.example.com:80", "*.example.com:8080", plain.Listener.Addr().String())
	p.addServer("example.com", "93.184.216.34", "443", tls.Listener.Addr().String())
	p.addServer("example.com", "93.184.216.34", "80", plain.Listener.Addr().String())
	p.addServer("a.example.com", "93.184.216.35", "80", plain.Listener.Addr().String())
	p.addServer("a.example.com", "93.184.216.35", "8080", plain.Listener.Addr().String())
	p.addServer("other.org", "93.184.216.36", "80", plain.Listener.Addr().String())
	p.addServer("", "127.0.0.1", portOf(plain.Listener.Addr().String()), plain.Listener.Addr().String())
	c := p.client(tls)
	for url, want := range map[string]string{
		"https://example.com/a?b=1;c=%zz": "GET example.com/a?b=1;c=%zz ",
		"http://example.com/a?b=1;c=%zz":  "GET example.com/a?b=1;c=%zz ",
		"http://EXAMPLE.com.:80/":         "GET example.com/ ",
		"http://a.example.com/":           "GET a.example.com/ ",
		"http://a.example.com:8080/":      "GET a.example.com:8080/ ",
		plain.URL + "/":                   "GET " + plain.Listener.Addr().String() + "/ ",
	} {
		if code, got := get(t, c, url); code != 200 || got != want {
			t.Errorf("%s: %d %q, want %q", url, code, got, want)
		}
	}
	resp, err := c.Post("http://example.com/", "text/plain", struct{ io.Reader }{strings.NewReader("a body in pieces")})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "POST example.com/ a body in pieces" {
		t.Errorf("a post: %q", b)
	}
	if code, got := get(t, c, "http://other.org/"); code != 403 ||
		got != "belay: other.org:80 is refused by agent.egress: it is not listed there\n" {
		t.Errorf("another host: %d %q", code, got)
	}
	if resp, err := c.Get("https://other.org/"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("another host by a tunnel: %v", err)
		if resp != nil {
			resp.Body.Close()
		}
	}
	// A wildcard also allows names that do not exist. This machine's search list could make a name of
	// another domain out of such a name, so the proxy must resolve it with a dot at the end.
	if names := p.lookups(); slices.Contains(names, "other.org") || !slices.Contains(names, "a.example.com.") ||
		!slices.Contains(names, "example.com") {
		t.Errorf("names were looked up: %q", names)
	}
}

// Rule: the proxy forwards each part of a response immediately, without buffering.
func TestStreamIsForwardedWithoutBuffering(t *testing.T) {
	next := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			fmt.Fprintln(w, "piece")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
			}
		}
	}))
	defer server.Close()
	p := begin(t, "example.com")
	p.addServer("example.com", "93.184.216.34", "80", server.Listener.Addr().String())
	resp, err := p.client(nil).Get("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for range 3 {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		next <- struct{}{}
	}
}

// Rule: if a request changes its connection to another protocol, the proxy forwards bytes in both
// directions until the connection ends.
func TestUpgradedConnectionIsATunnel(t *testing.T) {
	server := listen(t, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, r)
	})
	p := begin(t, "example.com")
	p.addServer("example.com", "93.184.216.34", "80", server)
	l := p.line().send("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: " +
		"echo\r\n\r\n")
	r := bufio.NewReader(l)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	defer resp.Body.Close()
	l.send("hello")
	b := make([]byte, 5)
	if _, err := io.ReadFull(r, b); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
}

// Rule: every request needs the token, as a password or as a bearer token. The proxy does not
// forward the token.
func TestEachRequestNeedsTheToken(t *testing.T) {
	var seen http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header }))
	defer server.Close()
	p := beginWith(t, func(s *Server) { s.Token = "t0ken" }, "example.com")
	p.addServer("example.com", "93.184.216.34", "80", server.Listener.Addr().String())
	if code, _ := get(t, p.client(nil), "http://example.com/"); code != 200 || seen == nil ||
		seen.Get("Proxy-Authorization") != "" {
		t.Errorf("with the token: %d, %v", code, seen)
	}
	for credentials, want := range map[string]string{
		"Basic am9iOnQwa2Vu":        "200",
		"Bearer t0ken":              "200",
		"bearer t0ken":              "200",
		"Basic am9iOnQwa2Vu=":       "407",
		"Basic am9iOnQwa2U=":        "407",
		"Basic t0ken":               "407",
		"Bearer t0kenn":             "407",
		"Bearer ":                   "407",
		"Basic Og==":                "407",
		"Digest username=\"t0ken\"": "407",
		"":                          "407",
	} {
		for _, request := range []string{"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: " +
			"close\r\n", "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n",
			"OPTIONS * HTTP/1.1\r\nHost: x\r\n"} {
			if strings.HasPrefix(request, "OPTIONS") && want == "200" {
				continue
			}
			l := p.line().send(request + "Proxy-Authorization: " + credentials + "\r\n\r\n")
			if got := l.reads(12); got != "HTTP/1.1 "+want {
				t.Errorf("%q with %q: %q", request, credentials, got)
			}
			l.Close()
		}
	}
}

// Rule: curl and git can use the proxy if the URL of the proxy contains the token.
func TestCurlAndGit(t *testing.T) {
	for _, name := range []string{"curl", "git"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not here", name)
		}
	}
	dir := t.TempDir()
	run := func(env []string, name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, slices.Concat(env, []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		})
		out, err := cmd.CombinedOutput()
		return fmt.Sprintf("%s%v", out, err)
	}
	exec1 := strings.TrimSuffix(run(nil, "git", "--exec-path"), "\n<nil>")
	for _, args := range [][]string{{"init", "-q", "-b", "main", "app.git"}, {"-C", "app.git", "-c", "user.name=N",
		"-c", "user.email=n@example.org", "commit", "-q", "--allow-empty", "-m", "first"}} {
		if out := run(nil, "git", args...); out != "<nil>" {
			t.Fatal(out)
		}
	}
	server := httptest.NewUnstartedServer(&cgi.Handler{Path: filepath.Join(exec1, "git-http-backend"), Env: []string{
		"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1",
	}, InheritEnv: []string{"PATH"}})
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	p := beginWith(t, func(s *Server) { s.Token = "to/k:en@" }, "example.com")
	p.addServer("example.com", "93.184.216.34", "443", server.Listener.Addr().String())
	p.addServer("evil.org", "93.184.216.34", "443", server.Listener.Addr().String())
	var env []string
	address := (&url.URL{Scheme: "http", User: url.UserPassword("job", p.Token), Host: p.addr}).String()
	for _, name := range []string{"http_proxy", "https_proxy"} {
		env = append(env, name+"="+address)
	}
	if out := run(append(env, "GIT_SSL_NO_VERIFY=1"), "git", "clone", "-q", "https://example.com/app.git",
		"clone"); out != "<nil>" {
		t.Errorf("git clone: %s", out)
	}
	if out := run(nil, "git", "-C", "clone", "log", "--format=%s"); out != "first\n<nil>" {
		t.Errorf("git log: %s", out)
	}
	if out := run(env, "curl", "-ksS", "https://example.com/app.git/.git/HEAD"); out != "ref: refs/heads/main\n<nil>" {
		t.Errorf("curl: %s", out)
	}
	if out := run(env, "curl", "-ksS", "https://evil.org/"); !strings.Contains(out, "403") {
		t.Errorf("curl elsewhere: %s", out)
	}
	if out := run(append(env, "GIT_SSL_NO_VERIFY=1"), "git", "clone", "-q", "https://evil.org/app.git",
		"evil"); !strings.Contains(out, "403") {
		t.Errorf("git elsewhere: %s", out)
	}
	if out := run(env, "curl", "-sS", "http://evil.org/"); out != "belay: evil.org:80 is refused by agent.egress: "+
		"it is not listed there\n<nil>" {
		t.Errorf("curl elsewhere: %s", out)
	}
}

// Rule: after one side of a tunnel has stopped sending, the other side can still send.
func TestOneDirectionMayEndFirst(t *testing.T) {
	server := listen(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		fmt.Fprintf(c, "%d bytes", len(all))
	})
	p := begin(t, "example.com")
	p.addServer("example.com", "93.184.216.34", "443", server)
	// The proxy forwards bytes that arrive together with the request as the first bytes of the
	// tunnel.
	l := p.line().send("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\nearly")
	if got := l.reads(len(established)); got != established {
		t.Fatal(got)
	}
	l.send("later")
	if err := l.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := l.readAll(); got != "10 bytes" {
		t.Errorf("the job received %q", got)
	}
	// In this tunnel the server stops sending first.
	heard := make(chan string, 1)
	other := listen(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "bye")
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	})
	p.addServer("example.com", "93.184.216.34", "80", other)
	l = p.line().send("CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := l.readAll(); got != established+"bye" {
		t.Errorf("the job received %q", got)
	}
	l.send("still here").Close()
	if got := next(t, heard); got != "still here" {
		t.Errorf("the server received %q", got)
	}
}

// Rule: if a server resets its connection to the proxy, the proxy closes its connection to the job.
func TestBrokenConnectionIsPassedOn(t *testing.T) {
	server := listen(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	})
	p := begin(t, "example.com")
	p.addServer("example.com", "93.184.216.34", "443", server)
	l := p.line().send("CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	l.reads(len(established))
	if got := l.send("x").readAll(); got != "" {
		t.Errorf("%q", got)
	}
}

// Rule: the response for an unreachable target says only that the target cannot be reached, and
// reveals nothing else about the network.
func TestUnreachableTargetRevealsNothing(t *testing.T) {
	p := beginWith(t, func(s *Server) {
		s.Limits.Connect = 500 * time.Millisecond
	}, "example.com", "gone.example.com", "slow.example.com", "10.0.0.1:80")
	p.addServer("example.com", "93.184.216.34", "1", "")
	p.addServer("slow.example.com", "93.184.216.35", "443", "")
	dial := p.Dial
	p.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "93.184.216.35:443" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, network, address)
	}
	for request, want := range map[string]string{
		"CONNECT example.com:443": "502 Bad Gateway|belay: example.com:443 cannot be reached\n",
		"GET http://example.com/": "502 Bad Gateway|belay: example.com:80 cannot be reached\n",
		"CONNECT gone.example.com:443": "502 Bad Gateway|belay: gone.example.com:443 cannot be reached: there is " +
			"no such host\n",
		"CONNECT slow.example.com:443": "504 Gateway Timeout|belay: slow.example.com:443 cannot be reached: it " +
			"does not answer in time\n",
		"GET http://10.0.0.1/": "502 Bad Gateway|belay: 10.0.0.1:80 cannot be reached\n",
	} {
		status, text, _ := strings.Cut(want, "|")
		got := p.ask(request + " HTTP/1.1\r\nHost: x\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 "+status+"\r\n") || !strings.HasSuffix(got, "\r\n\r\n"+text) {
			t.Errorf("%s: %q", request, got)
		}
	}
	if diff := cmp.Diff([]Refusal{}, p.Refused()); diff != "" {
		t.Error(diff)
	}
}
