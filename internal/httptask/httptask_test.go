package httptask

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belaydev/belay"
)

// Rule: the request that arrives has the method, query, headers and body of the input, and the answer
// has its status, headers and body.
func TestRequestsAndAnswers(t *testing.T) {
	w := begin(t, "public")
	var got string
	w.serve("api.example.com", "443", func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = fmt.Sprintf("%s %s %s %s|%s|%s|%s", r.Method, r.Host, r.URL, r.Header.Get("Content-Type"),
			r.Header.Get("User-Agent"), r.Header.Get("Idempotency-Key"), body)
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Add("X-A", "1")
		rw.Header().Add("X-A", "2")
		rw.WriteHeader(201)
		_, _ = io.WriteString(rw, `{"id": 12345678901234567890, "ok": true}`)
	}, true)
	for input, want := range map[string]string{
		`{"url": "https://API.example.com/a?b=1#c", "query": {"d": ["2", 3], "e": "ä&"}}`: "GET api.example.com " +
			"/a?b=1&d=2&d=3&e=%C3%A4%26 |belay/test||",
		`{"url": "https://api.example.com", "body": {"a": [1.50, "<b>"]}}`: "POST api.example.com / application/json|" +
			"belay/test|ex_01-1|" + `{"a":[1.50,"<b>"]}`,
		`{"url": "https://api.example.com", "method": "PUT", "body": "text", "headers": {"user-agent": "me"}}`: "PUT " +
			"api.example.com / text/plain; charset=utf-8|me|ex_01-1|text",
		`{"url": "https://api.example.com", "form": {"a": "b c"}, "idempotency_key_header": ""}`: "POST api.example.com / " +
			"application/x-www-form-urlencoded|belay/test||a=b+c",
		`{"url": "https://api.example.com", "body_base64": "AP8=", "headers": {"content-type": "image/x"}}`: "POST " +
			"api.example.com / image/x|belay/test|ex_01-1|\x00\xff",
		`{"url": "https://api.example.com", "method": "DELETE", "headers": {"Idempotency-Key": "mine"}}`: "DELETE " +
			"api.example.com / |belay/test|mine|",
		`{"url": "https://api.example.com", "body": null}`: "GET api.example.com / |belay/test||",
	} {
		a := w.mustSend(input)
		if got != want {
			t.Errorf("%s arrives as\n%q, want\n%q", input, got, want)
		}
		if diff := cmp.Diff(&Response{
			Status: 201, Headers: map[string]string{"content-type": "application/json", "x-a": "1, 2",
				"content-length": "40"},
			Body: json.RawMessage(`{"id":12345678901234567890,"ok":true}`),
		}, a, cmpopts.IgnoreFields(Response{}, "DurationMS"), cmpopts.IgnoreMapEntries(func(k, _ string) bool {
			return k == "date"
		})); diff != "" {
			t.Error(diff)
		}
	}
}

// Rule: the status decides about the end of the run: expected, transient with the delay that the
// receiver demands, or permanent with an excerpt of the answer. A failed run has the answer as its
// output.
func TestStatusesDecide(t *testing.T) {
	w := begin(t, "public")
	status, after := 200, ""
	w.serve("api.example.com", "443", func(rw http.ResponseWriter, _ *http.Request) {
		if after != "" {
			rw.Header().Set("Retry-After", after)
		}
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, "the\n reason\x1b[31m is "+strings.Repeat("long ", 1000))
	}, true)
	const ok, transient, permanent = "ok", "transient", "permanent"
	for _, tt := range []struct {
		status int
		after  string
		with   string
		want   string
		delay  time.Duration
	}{
		{200, "", "", ok, 0}, {299, "", "", ok, 0}, {404, "", "", permanent, 0}, {400, "5", "", permanent, 0},
		{429, "7", "", transient, 7 * time.Second}, {503, "999999999", "", transient, time.Hour},
		{500, "", "", transient, 0},
		{408, "-1", "", transient, 0}, {425, "soon", "", transient, 0}, {501, "", "", permanent, 0},
		{504, "", "", transient, 0},
		{404, "", `, "expect": [200, 404]`, ok, 0}, {200, "", `, "expect": "4xx"`, permanent, 0},
		{404, "3", `, "retry_on": ["404-405"]`, transient, 3 * time.Second}, {503, "", `, "retry_on": []`, permanent, 0},
		{503, "", `, "expect": ["5xx"]`, ok, 0}, {304, "", "", permanent, 0},
	} {
		status, after = tt.status, tt.after
		_, err := w.send(`{"url": "https://api.example.com/x?y=z"` + tt.with + `}`)
		got := ok
		if err != nil {
			got = transient
			if belay.IsPermanent(err) {
				got = permanent
			}
			out, _ := belay.OutputOf(err)
			if a, is := out.(*Response); !is || a.Status != tt.status {
				t.Errorf("%d: the output is %+v", tt.status, out)
			}
			text := err.Error()
			if len(text) > maxExcerpt+200 || strings.ContainsAny(text, "\n\x1b") || strings.Contains(text, "y=z") ||
				tt.status != 304 && !strings.Contains(text, "the reason") || !strings.HasPrefix(text,
				fmt.Sprintf("GET https://api.example.com/x answered %d", tt.status)) {
				t.Errorf("%d: %s", tt.status, text)
			}
		}
		if d := belay.RetryDelay(err); got != tt.want || d != tt.delay {
			t.Errorf("%d %s: %s after %s, want %s after %s", tt.status, tt.with, got, d, tt.want, tt.delay)
		}
	}
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"Wed, 25 Nov 2026 12:01:00 GMT": time.Minute, "Wed, 25 Nov 2026 11:00:00 GMT": 0,
		"Thu, 01 Jan 2099 00:00:00 GMT": time.Hour,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// Rule: an error of the network is transient, and its text shows no address of this network. An invalid
// certificate is permanent.
func TestErrorsOfTheNetwork(t *testing.T) {
	w := begin(t, "public", "10.1.2.3:80")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	w.servers["93.184.216.1:80"], w.names["down.example"] = closed.Addr().String(), []string{"93.184.216.1"}
	w.serve("rude.example", "80", func(rw http.ResponseWriter, _ *http.Request) {
		c, _, _ := http.NewResponseController(rw).Hijack()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
		c.Close()
	}, false)
	w.serve("odd.example", "80", func(rw http.ResponseWriter, _ *http.Request) {
		c, _, _ := http.NewResponseController(rw).Hijack()
		_, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n")
		c.Close()
	}, false)
	for to, want := range map[string]string{
		"http://none.example/": "there is no such host", "http://down.example/": "connection refused",
		"http://rude.example/": "unexpected EOF", "http://odd.example/": "malformed HTTP",
	} {
		_, err := w.send(`{"url": "` + to + `"}`)
		if err == nil || belay.IsPermanent(err) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "93.184") {
			t.Errorf("%s: %v", to, err)
		}
	}
	s := httptest.NewUnstartedServer(answer(200, "text/plain", ""))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	defer s.Close()
	w.servers["93.184.216.1:443"] = s.Listener.Addr().String()
	if _, err := w.send(`{"url": "https://down.example/"}`); !belay.IsPermanent(err) ||
		!strings.Contains(err.Error(), "the certificate is not valid") {
		t.Errorf("a certificate of another name: %v", err)
	}
}

// Rule: no variable of the environment leads requests through a proxy.
func TestTheEnvironmentIsNotUsed(t *testing.T) {
	w := begin(t, "public")
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	w.serve("api.example.com", "80", answer(200, "text/plain", "direct"), false)
	if a := w.mustSend(`{"url": "http://api.example.com/"}`); string(a.Body) != `"direct"` {
		t.Errorf("%s", a.Body)
	}
	if !strings.HasPrefix(w.dialled[0], "93.184.216.") {
		t.Errorf("dialled %q", w.dialled)
	}
}

// Rule: with a configured proxy all connections lead to the proxy, also those to a host inside that the
// configuration lists; a host that it does not list is refused before the proxy is asked.
func TestTheConfiguredProxyIsUsed(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String()+" "+r.Header.Get("Proxy-Authorization"))
		_, _ = io.WriteString(rw, "by proxy")
	}))
	defer proxy.Close()
	w := begin(t, "public", "10.0.0.1:8080")
	var err error
	if w.caller.Proxy, err = url.Parse(strings.Replace(proxy.URL, "http://", "http://me:pw@", 1)); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"http://api.example.com/", "http://10.0.0.1:8080/"} {
		if a := w.mustSend(`{"url": "` + to + `"}`); string(a.Body) != `"by proxy"` {
			t.Errorf("%s: %s", to, a.Body)
		}
	}
	for _, to := range []string{"http://127.0.0.1/", "http://10.0.0.2:8080/", "http://localhost/", "http://x.example:22/"} {
		if _, err := w.send(`{"url": "` + to + `"}`); belay.CodeOf(err) != belay.CodeForbidden {
			t.Errorf("%s: %v", to, err)
		}
	}
	want := []string{"http://api.example.com/ Basic bWU6cHc=", "http://10.0.0.1:8080/ Basic bWU6cHc="}
	if diff := cmp.Diff(want, asked); diff != "" || len(w.dialled) > 0 {
		t.Errorf("%s; dialled %q", diff, w.dialled)
	}
}

// Rule: cookies of an answer are not sent with later requests.
func TestCookiesAreNotKept(t *testing.T) {
	w := begin(t, "public")
	var got []string
	w.serve("api.example.com", "443", func(rw http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Cookie"))
		http.SetCookie(rw, &http.Cookie{Name: "a", Value: "b"})
		if r.URL.Path == "/" {
			http.Redirect(rw, r, "/next", http.StatusSeeOther)
		}
	}, true)
	a := w.mustSend(`{"url": "https://api.example.com/", "body": 1}`)
	w.mustSend(`{"url": "https://api.example.com/next"}`)
	if strings.Join(got, "") != "" || a.Redirects != 1 || a.Headers["set-cookie"] != "" {
		t.Errorf("%q, %+v", got, a)
	}
}

// Rule: the signature is that of Standard Webhooks; the vector is from its specification.
func TestSignatures(t *testing.T) {
	w := begin(t, "public")
	w.caller.Secrets.Env = func(string) string { return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }
	in := &Request{
		URL: "https://api.example.com", Body: json.RawMessage(`"{\"test\": 2432232314}"`), SigningSecret: "${{ secrets.TOKEN }}",
	}
	c, err := prepare(in, w.caller.Secrets.Scope(Workflow), "", "x", belay.Trace{})
	if err == nil {
		err = c.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0))
	}
	if got := c.header.Get("Webhook-Signature"); err != nil ||
		got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" ||
		c.header.Get("Webhook-Id") == "" || c.header.Get("Webhook-Timestamp") != "1614265330" {
		t.Errorf("%q, %v", got, err)
	}
}

// Rule: a request that a Go program writes as JSON is read as the same request.
func TestRequestsAsJSON(t *testing.T) {
	none, n := "", 0
	for _, in := range []Request{
		{URL: "https://x.example"}, {URL: "https://x.example", RetryOn: Statuses{}, Expect: Statuses{{200, 299}, {404, 404}}},
		{URL: "https://x.example", IdempotencyKeyHeader: &none, MaxRedirects: &n, Timeout: belay.Duration(time.Second)},
	} {
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(&in, again); diff != "" {
			t.Errorf("%s: %s", data, diff)
		}
	}
}

// Rule: no input makes the check panic, and an input that passes is sent to the host that it names.
func FuzzCheckInput(f *testing.F) {
	for _, s := range []string{
		`{"url": "https://a.example/${{ secrets.A }}", "query": {"a": [1]}}`, `{"url": "http://[::1]:80/", "expect": ["2xx"]}`,
		`{"url": "http://a@b/"}`, `{"url": "http://a\\b/", "body": {"a": 1}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		r, err := decode(input)
		if err != nil || strings.Contains(r.URL, "${{") {
			return
		}
		u, target, err := parseURL(r.URL)
		if err != nil || u.User != nil || !strings.Contains(strings.ToLower(r.URL), strings.Trim(target.Host(), ".")) &&
			!strings.Contains(r.URL, "[") {
			t.Errorf("%s leads to %v, %v", r.URL, target, err)
		}
	})
}
