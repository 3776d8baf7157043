package httptask

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/workflow"
)

// Rule: a request reaches no address that is not public, however the address is written, whether a
// name resolves to it, a redirect leads to it, or the name has another address a moment later.
func TestPrivateAddressesAreRefused(t *testing.T) {
	w := begin(t, "public")
	hosts := []string{
		"127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
		"127.0.0.1.", "LOCALHOST.", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]",
		"[::ffff:a00:1]", "[0:0:0:0:0:ffff:10.0.0.1]", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1",
		"169.254.169.254", "169.254.1.1", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[fd00:ec2::254]",
		"[64:ff9b::10.0.0.1]",
		"[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:0:4136:e378::]", "[::127.0.0.1]", "224.0.0.1", "255.255.255.255",
		"１２７.0.0.1", "127。0。0。1", "metadata.google.internal", "[ff02::1]", "127.0.0.1%00.example.com", "②⑤",
	}
	w.names["localhost"] = []string{"127.0.0.1"}
	w.names["metadata.google.internal"] = []string{"169.254.169.254"}
	for _, host := range hosts {
		input, _ := json.Marshal(Request{URL: "http://" + host + "/x"})
		_, err := w.send(string(input))
		if err == nil || belay.CodeOf(err) != belay.CodeForbidden && belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, addr := range []string{"127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "::1", "10.0.0.1", "fd00::1"} {
		w.names["evil.example"] = []string{addr}
		_, err := w.send(`{"url": "https://evil.example/"}`)
		if !belay.IsPermanent(err) || belay.CodeOf(err) != belay.CodeForbidden ||
			!strings.Contains(err.Error(), "http.egress") || strings.Contains(err.Error(), addr) {
			t.Errorf("a name at %s: %v", addr, err)
		}
	}
	for _, port := range []string{"22", "25", "6379", "8080"} {
		w.names["evil.example"] = []string{"93.184.216.34"}
		if _, err := w.send(`{"url": "http://evil.example:` + port + `/"}`); belay.CodeOf(err) != belay.CodeForbidden {
			t.Errorf("port %s: %v", port, err)
		}
	}
	if len(w.dialled) > 0 {
		t.Errorf("dialled: %q", w.dialled)
	}
	var to string
	w.serve("redirect.example", "80", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Connection", "close") // each request needs a new connection
		http.Redirect(rw, r, to, http.StatusFound)
	}, false)
	for _, to = range []string{
		"http://127.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[::ffff:10.0.0.1]/", "//10.0.0.1/",
		"http://2130706433/", "http://evil.example/", "file:///etc/passwd", "gopher://x/", "http://user:pw@public.example/",
	} {
		w.names["evil.example"] = []string{"127.0.0.1"}
		if _, err := w.send(`{"url": "http://redirect.example/"}`); !belay.IsPermanent(err) {
			t.Errorf("a redirect to %s: %v", to, err)
		}
	}
	w.names["rebind.example"] = []string{w.names["redirect.example"][0], "127.0.0.1"}
	to = "http://rebind.example:80/again"
	before := len(w.dialled)
	if _, err := w.send(`{"url": "http://rebind.example/"}`); belay.CodeOf(err) != belay.CodeForbidden ||
		len(w.dialled) != before+1 {
		t.Errorf("a name that changes its address: %v; dialled %q", err, w.dialled[before:])
	}
	for _, d := range w.dialled {
		if !strings.HasPrefix(d, "93.184.216.") {
			t.Errorf("dialled %s", d)
		}
	}
}

// Rule: the configuration can allow an address inside, but no configuration allows the address of
// Belay itself.
func TestConfiguredAddressesAreReached(t *testing.T) {
	w := begin(t, "public", "10.0.0.1:8080", "inside.example:8080", "127.0.0.1:7420")
	w.serve("inside.example", "8080", answer(200, "text/plain", "inside"), false)
	real := w.servers["93.184.216.1:8080"]
	w.servers["10.0.0.1:8080"] = real
	w.names["inside.example"] = []string{"10.0.0.1"}
	for _, url := range []string{"http://10.0.0.1:8080/", "http://inside.example:8080/"} {
		if a := w.mustSend(`{"url": "` + url + `"}`); string(a.Body) != `"inside"` {
			t.Errorf("%s: %s", url, a.Body)
		}
	}
	w.caller.Dialer.Closed = func(a netip.AddrPort) bool { return a.Port() == 7420 }
	if _, err := w.send(`{"url": "http://127.0.0.1:7420/v1/keys"}`); belay.CodeOf(err) != belay.CodeForbidden {
		t.Errorf("Belay itself: %v", err)
	}
}

// Rule: inputs that hide a second request or contain credentials are refused before they are stored,
// and the error shows no credential.
func TestHostileInputsAreRefused(t *testing.T) {
	for _, input := range []string{
		``, `null`, `[]`, `"https://example.com"`, `{}`, `{"url": ""}`, `{"url": "example.com"}`, `{"url": "/x"}`,
		`{"url": "ftp://example.com"}`, `{"url": "http:example.com"}`, `{"url": "http://"}`, `{"url": "https:///x"}`,
		`{"url": "https://me:s3cret@example.com/"}`, `{"url": "https://s3cret@example.com/"}`,
		`{"url": "https://example.com:99999/"}`, `{"url": "https://example.com:/"}`, `{"url": "https://exa mple.com/"}`,
		`{"url": "https://example.com/\r\nX: y"}`, `{"url": "https://example.com\\@evil.example/"}`,
		`{"url": "https://${{ secrets.HOST }}.example.com/"}`, `{"url": "${{ secrets.A }"}`, `{"url": "https://x/${{ env.A }}"}`,
		`{"url": "https://example.com", "method": "GET\r\nX: y"}`, `{"url": "https://example.com", "method": "CONNECT"}`,
		`{"url": "https://example.com", "method": "get"}`, `{"url": "https://example.com", "method": "TRACE"}`,
		`{"url": "https://example.com", "headers": {"X": "a\r\nY: b"}}`,
		`{"url": "https://example.com", "headers": {"X": "a\nY: b"}}`,
		`{"url": "https://example.com", "headers": {"X\r\nY": "b"}}`, `{"url": "https://example.com", "headers": {"": "b"}}`,
		`{"url": "https://example.com", "headers": {"X:": "b"}}`, `{"url": "https://example.com", "headers": {"X": "a\u0000"}}`,
		`{"url": "https://example.com", "headers": {"Host": "evil.example"}}`,
		`{"url": "https://example.com", "headers": {"transfer-encoding": "chunked"}}`,
		`{"url": "https://example.com", "headers": {"content-length": "5"}}`,
		`{"url": "https://example.com", "headers": {"Proxy-Authorization": "x"}}`,
		`{"url": "https://example.com", "headers": {"Authorization": "Bearer s3cret"}}`,
		`{"url": "https://example.com", "auth": {"bearer": "s3cret"}}`,
		`{"url": "https://example.com", "auth": {"basic": {"user": "me", "password": "s3cret"}}}`,
		`{"url": "https://example.com", "auth": {}}`, `{"url": "https://example.com", "signing_secret": "s3cret"}`,
		`{"url": "https://example.com", "URL": "https://evil.example"}`, `{"url": "https://example.com", "uri": "x"}`,
		`{"url": "https://example.com", "method": "GET", "body": {}}`, `{"url": "https://example.com", "body": 1, "form": {}}`,
		`{"url": "https://example.com", "body_base64": "%"}`, `{"url": "https://example.com", "timeout": "2h"}`,
		`{"url": "https://example.com", "timeout": -1}`, `{"url": "https://example.com", "max_redirects": 21}`,
		`{"url": "https://example.com", "max_response_bytes": 1000000000}`, `{"url": "https://example.com", "expect": 99}`,
		`{"url": "https://example.com", "expect": "2yy"}`, `{"url": "https://example.com", "retry_on": [600]}`,
		`{"url": "https://example.com", "idempotency_key_header": "Host"}`, `{"url": 5}`,
		`{"url": "https://example.com", "query": {"a": {}}}`, `{"url": "https://example.com", "auth": {"token": "s3cret"}}`,
		`{"url": "https://` + strings.Repeat("a", maxURL) + `"}`,
	} {
		err := CheckInput(json.RawMessage(input))
		if belay.CodeOf(err) != belay.CodeInvalid || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.100s: %v", input, err)
		}
	}
	for _, input := range []string{
		`{"url": "${{ secrets.SLACK }}"}`, `{"url": "https://example.com/${{ secrets.A }}?b=${{ secrets.B }}", "query": {"a": [1, "b", true]}}`,
		`{"url": "HTTPS://Example.COM.:8443/x#y", "expect": ["2xx", 404, "300-302"], "retry_on": []}`,
	} {
		if err := CheckInput(json.RawMessage(input)); err != nil {
			t.Errorf("%s: %v", input, err)
		}
	}
}

// Rule: no secret is in the answer, its headers, or an error, in whatever usual form a receiver echoes
// it.
func TestEchoedSecretsAreRemoved(t *testing.T) {
	w := begin(t, "public")
	kind, status := "application/json", 200
	w.serve("api.example.com", "443", func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, password, _ := r.BasicAuth()
		rw.Header().Set("Content-Type", kind)
		rw.Header().Set("X-Echo", r.Header.Get("X-Key"))
		rw.Header().Set("X-Query", r.URL.RawQuery)
		rw.Header().Set("Set-Cookie", "session=c00kie")
		rw.WriteHeader(status)
		_ = json.NewEncoder(rw).Encode(map[string]any{
			"headers": r.Header, "url": r.URL.String(), "body": string(body), "password": password, password: 1,
			"base64": base64.StdEncoding.EncodeToString(body),
		})
	}, true)
	input := `{"url": "https://api.example.com/p/${{ secrets.TOKEN }}?k=${{ secrets.TOKEN }}", "query": {"q": "${{ secrets.TOKEN }}"},
		"headers": {"X-Key": "${{ secrets.TOKEN }}"}, "auth": {"basic": {"user": "me", "password": "${{ secrets.TOKEN }}"}},
		"body": {"a": ["x${{ secrets.TOKEN }}"]}, "body_secrets": ["TOKEN"]}`
	// a URL needs its secret in the form of a URL, so the URL of this input is not valid with this one
	input = strings.Replace(input, "/p/${{ secrets.TOKEN }}?k=${{ secrets.TOKEN }}", "/p", 1)
	for _, kind = range []string{"application/json", "text/plain", "application/problem+json; charset=utf-8"} {
		for _, status = range []int{200, 422, 503} {
			a, err := w.send(input)
			if status != 200 {
				out, ok := belay.OutputOf(err)
				if !ok {
					t.Fatalf("%d has no output: %v", status, err)
				}
				a = out.(*Response)
			} else if err != nil {
				t.Fatal(err)
			}
			saved, _ := json.Marshal(a)
			all := string(saved) + fmt.Sprint(err)
			for _, bad := range []string{
				token, url.QueryEscape(token), base64.StdEncoding.EncodeToString([]byte("me:" + token)), "c00kie",
				"t0ken",
			} {
				if strings.Contains(all, bad) {
					t.Errorf("%s, %d: %q is in %s", kind, status, bad, all)
				}
			}
			if !strings.Contains(all, "[TOKEN]") || a.Headers["x-echo"] != "[TOKEN]" {
				t.Errorf("%s, %d: %s", kind, status, all)
			}
		}
	}
}

// Rule: the error for a secret that makes no valid URL contains no part of the secret.
func TestSecretsThatAreNoURL(t *testing.T) {
	w := begin(t, "public")
	for _, value := range []string{
		"https://hooks.example.com:7654321/x", "https://hooks.ex\u00e4mple.com/x", "https://xy~z.example.com/", "7654321",
		"https://me:7654321@hooks.example.com/", "https://[7654321]/",
	} {
		w.caller.Secrets.Env = func(string) string { return value }
		_, err := w.send(`{"url": "${{ secrets.SLACK }}"}`)
		if !belay.IsPermanent(err) || !errors.Is(err, errSecretURL) {
			t.Errorf("%s: %v", value, err)
		}
	}
	w.serve("redirect.example", "80", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", "http://redirect.example:7654321/")
		rw.WriteHeader(http.StatusFound)
	}, false)
	if _, err := w.send(`{"url": "http://redirect.example/"}`); err == nil || strings.Contains(err.Error(), "7654321") {
		t.Error(err)
	}
}

// Rule: a secret that is cut off at the limit of the answer does not remain in part, and a secret in a
// number or in bytes is removed too.
func TestSecretsAtTheLimitAreRemoved(t *testing.T) {
	w := begin(t, "public")
	w.caller.Secrets.Env = func(string) string { return "8675309123456" }
	body, kind := "", ""
	w.serve("api.example.com", "443", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(rw, body)
	}, true)
	send := func(limit int) string {
		a := w.mustSend(fmt.Sprintf(`{"url": "https://api.example.com/", "auth": {"bearer": "${{ secrets.TOKEN }}"},
			"max_response_bytes": %d}`, limit))
		raw, _ := base64.StdEncoding.DecodeString(a.BodyBase64)
		return string(a.Body) + string(raw)
	}
	kind, body = "text/plain", strings.Repeat("x", 100)+"8675309123456"+strings.Repeat("y", 100)
	for limit := 100; limit < 130; limit++ {
		if got := send(limit); strings.Contains(got, "86") {
			t.Errorf("limit %d: %s", limit, got)
		}
	}
	body = strings.Repeat("8675309123456", overlap/13+100)
	if got := send(100); strings.Contains(got, "86") {
		t.Errorf("a long answer: %s", got)
	}
	kind, body = "application/json", `{"pin": 8675309123456}`
	if got := send(100); got != `{"pin":"[TOKEN]"}` {
		t.Errorf("a number: %s", got)
	}
	kind, body = "application/octet-stream", "\xff\x008675309123456\xff"
	if got := send(100); got != "\xff\x00[TOKEN]\xff" {
		t.Errorf("bytes: %q", got)
	}
}

// Rule: a secret goes only to the hosts of its rule, and never to another origin after a redirect,
// even if that origin is allowed for the secret.
func TestSecretsDoNotTravel(t *testing.T) {
	w := begin(t, "public", "public:8443")
	var mu sync.Mutex
	var got []string
	record := func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(r.Method, r.URL, r.Header, string(body)))
	}
	to, status := "", 302
	w.serve("other.example", "443", record, true)
	w.serve("public.example", "80", record, false)
	w.serve("api.example.com", "443", func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/same" {
			record(rw, r)
			return
		}
		rw.Header().Set("Location", to)
		rw.WriteHeader(status)
	}, true)
	w.names["api2.example.com"] = w.names["api.example.com"]
	const secrets = `"headers": {"X-Key": "${{ secrets.TOKEN }}", "X-Plain": "p", "Accept": "text/x"}, "auth": {"bearer": "${{ secrets.TOKEN }}"}`
	for _, secret := range []string{"ELSEWHERE", "NONE", "DEPLOY"} {
		_, err := w.send(`{"url": "https://api.example.com/", "auth": {"bearer": "${{ secrets.` + secret + ` }}"}}`)
		if !belay.IsPermanent(err) || !strings.Contains(err.Error(), secret) ||
			belay.CodeOf(err) != belay.CodeForbidden {
			t.Errorf("%s: %v", secret, err)
		}
	}
	// a redirect to the same origin keeps the secrets
	to = "/same"
	w.mustSend(`{"url": "https://api.example.com/", ` + secrets + `}`)
	if len(got) != 1 || !strings.Contains(got[0], "t0ken") {
		t.Errorf("the same origin: %q", got)
	}
	// a redirect to another origin removes them, with all other headers that may be credentials
	got = nil
	w.caller.TLS.InsecureSkipVerify = true // the servers share one certificate, which is for example.com
	for _, to = range []string{"https://other.example/x", "https://api2.example.com/same"} {
		w.mustSend(`{"url": "https://api.example.com/", ` + secrets + `}`)
	}
	if all := strings.Join(got, "\n"); len(got) != 2 || strings.Contains(all, "t0ken") ||
		strings.Contains(all, "X-Plain") ||
		!strings.Contains(all, "text/x") {
		t.Errorf("another origin: %q", got)
	}
	// a redirect that cannot do without the secrets, or without encryption, is refused
	got = nil
	for _, tt := range []struct {
		to, input string
		status    int
	}{
		{"http://public.example/", secrets, 302},
		{"https://other.example/x", `"body": "${{ secrets.TOKEN }}", "body_secrets": ["TOKEN"]`, 307},
		{"https://other.example/x", `"body": "x", "signing_secret": "${{ secrets.TOKEN }}"`, 308},
		{"https://other.example/?k=" + url.QueryEscape(token), secrets, 302},
	} {
		to, status = tt.to, tt.status
		if _, err := w.send(`{"url": "https://api.example.com/", ` + tt.input + `}`); !belay.IsPermanent(err) ||
			strings.Contains(err.Error(), "t0ken") {
			t.Errorf("%s with %s: %v", tt.to, tt.input, err)
		}
	}
	if len(got) > 0 {
		t.Errorf("sent: %q", got)
	}
}

// Rule: a secret may be the whole URL; then no part of it is in an error or in the answer. A text after
// the secret cannot turn it into the URL of another host.
func TestSecretURLs(t *testing.T) {
	w := begin(t, "public")
	w.serve("hooks.example.com", "443", func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(404)
		_, _ = io.WriteString(rw, "no such hook: "+r.URL.Path)
	}, true)
	_, err := w.send(`{"url": "${{ secrets.SLACK }}", "body": {"text": "hi"}}`)
	if !belay.IsPermanent(err) || strings.Contains(err.Error(), "B0002") || !strings.Contains(err.Error(), "[SLACK]") ||
		!strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
	w.caller.Secrets.Env = func(string) string { return "https://hooks.example.com" }
	for _, tail := range []string{".evil.example/", "@evil.example/", ":80@evil.example/"} {
		w.names["hooks.example.com.evil.example"], w.names["evil.example"] = []string{"93.184.216.1"},
			[]string{"93.184.216.1"}
		before := len(w.dialled)
		_, err := w.send(`{"url": "${{ secrets.SLACK }}` + tail + `"}`)
		if err == nil || len(w.dialled) > before || strings.Contains(err.Error(), "hooks.example") {
			t.Errorf("%s: %v; dialled %q", tail, err, w.dialled[before:])
		}
	}
}

// Rule: references in a body are text unless body_secrets lists them, so that data of other people
// cannot name a secret.
func TestDataInABodyNamesNoSecret(t *testing.T) {
	w := begin(t, "public")
	got := ""
	w.serve("api.example.com", "443", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
	}, true)
	a := w.mustSend(`{"url": "https://api.example.com/", "auth": {"bearer": "${{ secrets.TOKEN }}"},
		"body": {"comment": "give me ${{ secrets.TOKEN }} <b>"}}`)
	if strings.Contains(got, "t0ken") || !strings.Contains(got, "${{ secrets.TOKEN }} <b>") || len(a.Notes) != 1 {
		t.Errorf("sent %s; %q", got, a.Notes)
	}
	w.mustSend(`{"url": "https://api.example.com/", "body": {"a": "${{ secrets.TOKEN }} ${{ secrets.SLACK }} $${{ secrets.TOKEN }}"},
		"body_secrets": ["TOKEN"]}`)
	want, _ := json.Marshal(token + " ${{ secrets.SLACK }} ${{ secrets.TOKEN }}")
	if !strings.Contains(got, strings.ReplaceAll(string(want), `\u0026`, "&")) {
		t.Errorf("sent %s, want %s", got, want)
	}
	w.mustSend(`{"url": "https://api.example.com/", "form": {"a": "${{ secrets.TOKEN }}", "b": [1, 2]}, "body_secrets": ["TOKEN"]}`)
	if form, _ := url.ParseQuery(got); form.Get("a") != token || len(form["b"]) != 2 {
		t.Errorf("sent %s", got)
	}
}

// Rule: a large or endless answer, a bomb in gzip included, is read up to the limit only, and the
// output always fits into the store.
func TestLargeAnswersAreCut(t *testing.T) {
	w := begin(t, "public")
	var bomb bytes.Buffer
	z, _ := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	w.serve("api.example.com", "443", func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			for {
				if _, err := rw.Write(zeros); err != nil {
					return
				}
			}
		case "/bomb":
			rw.Header().Set("Content-Encoding", "gzip")
			_, _ = rw.Write(bomb.Bytes())
		case "/unasked":
			rw.Header().Set("Content-Encoding", "br")
			_, _ = rw.Write([]byte("xyz"))
		case "/html":
			_, _ = rw.Write(bytes.Repeat([]byte("<"), 700<<10))
		case "/json":
			rw.Header().Set("Content-Type", "application/json")
			_, _ = rw.Write([]byte(`["` + strings.Repeat("<", 700<<10) + `"]`))
		case "/deep":
			rw.Header().Set("Content-Type", "application/json")
			_, _ = rw.Write([]byte(strings.Repeat("[", 100<<10) + strings.Repeat("]", 100<<10)))
		case "/odd":
			rw.Header().Set("Content-Type", "application/json")
			_, _ = rw.Write([]byte(`{"a": 1, "a": "\ud800", "b": 1e999, "c": "é"}`))
		case "/nul":
			rw.Header().Set("Content-Type", "application/json")
			_, _ = rw.Write([]byte(`{"a": "\u0000"}`))
		}
	}, true)
	for path, cut := range map[string]bool{
		"/endless": true, "/bomb": true, "/html": true, "/json": true, "/deep": false, "/odd": false, "/nul": false,
		"/unasked": false,
	} {
		a := w.mustSend(`{"url": "https://api.example.com` + path + `", "max_response_bytes": 786432}`)
		data, err := json.Marshal(a)
		if err != nil || len(data) > belay.MaxPayload || a.Truncated != cut || a.Body == nil && a.BodyBase64 == "" {
			t.Errorf("%s: %d bytes, truncated: %v, %v", path, len(data), a.Truncated, err)
		}
	}
	if a := w.mustSend(`{"url": "https://api.example.com/odd"}`); string(a.Body) != `{"a":"�","b":1e999,"c":"é"}` {
		t.Errorf("odd JSON: %s", a.Body)
	}
	a := w.mustSend(`{"url": "https://api.example.com/unasked", "auth": {"bearer": "${{ secrets.TOKEN }}"}}`)
	if a.Body != nil || a.BodyBase64 != "" || len(a.Notes) != 1 {
		t.Errorf("an encoding that was not asked for: %+v", a)
	}
}

// Rule: a receiver that hangs, is slow byte by byte, never ends its headers, or redirects for ever ends
// with the timeout or the limit of redirects, and a timeout ends the run as timed out.
func TestSlowReceiversEnd(t *testing.T) {
	w := begin(t, "public")
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	w.serve("api.example.com", "443", func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			select {
			case <-released:
			case <-r.Context().Done():
			}
		case "/drip":
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if _, err := rw.Write([]byte("x")); err != nil || http.NewResponseController(rw).Flush() != nil {
					return
				}
			}
		case "/loop":
			http.Redirect(rw, r, "/loop", http.StatusFound)
		}
	}, true)
	for _, path := range []string{"/hang", "/drip"} {
		began := time.Now()
		_, err := w.send(`{"url": "https://api.example.com` + path + `", "timeout": "200ms"}`)
		if !errors.Is(err, workflow.ErrTimedOut) || belay.IsPermanent(err) || !strings.Contains(err.Error(), "200ms") {
			t.Errorf("%s: %v", path, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s", path, took)
		}
	}
	_, err := w.send(`{"url": "https://api.example.com/loop", "max_redirects": 3}`)
	if !belay.IsPermanent(err) || !strings.Contains(err.Error(), "more than 3 redirects") {
		t.Errorf("a loop: %v", err)
	}
	if a, err := w.send(`{"url": "https://api.example.com/loop", "max_redirects": 0, "expect": "3xx"}`); err != nil ||
		a.Status != 302 {
		t.Errorf("a redirect that is not followed: %+v, %v", a, err)
	}
}
