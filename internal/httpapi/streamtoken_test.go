package httpapi_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// tokened is a server with keys, two ended executions, and a stream token for the first execution.
type tokened struct {
	*server
	now         atomic.Int64 // seconds that were added to the clock, which stands still otherwise
	reader      *server
	path, other string
	token       string
}

func serveTokens(t *testing.T) *tokened {
	t.Helper()
	s, began := &tokened{}, time.Now()
	s.server = serve(t, httpapi.Options{
		Ping: time.Millisecond, Rate: httpapi.Rate{PerSecond: -1},
		Now: func() time.Time { return began.Add(time.Duration(s.now.Load()) * time.Second) },
	})
	for _, path := range []*string{&s.path, &s.other} {
		*path = s.submit(`{"workflow": "w"}`)
		s.want(http.StatusOK, nil, "POST", *path+"/cancel", "")
	}
	s.reader = s.withKey("reader", belay.ScopeRead)
	s.token = s.made(s.reader, s.path)
	return s
}

// made requests a stream token for an execution, with the key of the server in the argument with.
func (s *tokened) made(with *server, path string) string {
	s.t.Helper()
	var out struct {
		Token string `json:"access_token"`
		MS    int    `json:"expires_in_ms"`
	}
	a := with.want(http.StatusCreated, &out, "POST", "/v1/stream-tokens",
		`{"execution": "`+strings.TrimPrefix(path, "/v1/executions/")+`"}`)
	if out.MS != 60_000 || a.Header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("a token for %d ms with Cache-Control %q", out.MS, a.Header.Get("Cache-Control"))
	}
	return out.Token
}

// A stream token in the query opens the stream of its execution: without any header, together with the stream's other
// parameters, and also if the browser adds a password that it has stored.
func TestAStreamTokenOpensItsStream(t *testing.T) {
	s := serveTokens(t)
	at := s.path + "/events?access_token=" + s.token
	for _, path := range []string{at, at + "&data=true&after=1", s.path + "/events?after=0&access_token=" + s.token} {
		if a := s.want(http.StatusOK, nil, "GET", path, ""); !strings.Contains(string(a.body), "event: end") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	s.want(http.StatusNoContent, nil, "GET", at, "", "Last-Event-ID", "2")
	stored := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:x"))
	s.want(http.StatusOK, nil, "GET", at, "", "Authorization", stored)
	s.now.Store(59)
	s.want(http.StatusOK, nil, "GET", at, "")
}

// A stream token gives access only to the stream of its execution: the server refuses the token for
// any other execution, route or method. It also refuses the token in the following cases: more than
// a minute after the token was made; if the server's clock is more than a minute behind the clock
// of the server that made the token; with any changed character; with the id of another key; and in
// any place of the request other than the query. The token is in the answer that creates it, and in
// no other answer and not in the log.
func TestAStreamTokenOpensNothingElse(t *testing.T) {
	s := serveTokens(t)
	query := "?access_token=" + s.token
	var said strings.Builder
	refused := func(status int, method, path, body string, h ...string) {
		t.Helper()
		a := s.do(method, path, body, h...)
		if a.StatusCode != status {
			t.Errorf("%s %.120s: %d, want %d: %s", method, path, a.StatusCode, status, a.body)
		}
		said.Write(a.body)
		for _, values := range a.Header {
			said.WriteString(strings.Join(values, " "))
		}
	}
	const no = http.StatusUnauthorized
	refused(no, "GET", s.other+"/events"+query, "")
	refused(no, "GET", states+query, "")
	for _, r := range documentOf(t, s.server).routes {
		if r.path == "/v1/executions/{id}/events" || r.path == states || len(scopes[r.method+" "+r.path]) == 0 {
			continue
		}
		refused(no, r.method, strings.Replace(fill(r.path), "/v1/executions/ex_0000000000000000000000000z", s.path, 1)+
			query, "")
	}
	for method, status := range map[string]int{
		"HEAD": no, "POST": 405, "PUT": 405, "DELETE": 405, "PATCH": 405, "OPTIONS": 405,
	} {
		refused(status, method, s.path+"/events"+query, "")
	}
	for i := range s.token { // replaces, and then removes, one character of the token
		other := byte('A')
		if s.token[i] == other {
			other = 'B'
		}
		refused(no, "GET", s.path+"/events?access_token="+s.token[:i]+string(other)+s.token[i+1:], "")
		refused(no, "GET", s.path+"/events?access_token="+s.token[:i]+s.token[i+1:], "")
	}
	second := s.made(s.withKey("second", belay.ScopeRead), s.path)
	const id = 4 + 21 // the length of the prefix and of the digits that encode only the key's id
	refused(no, "GET", s.path+"/events?access_token="+second[:id]+s.token[id:], "")
	for _, text := range []string{"", "bst_", s.token + "A", s.token + "=", "%20" + s.token, s.reader.key} {
		refused(no, "GET", s.path+"/events?access_token="+text, "")
	}
	refused(no, "GET", s.path+"/events?Access_Token="+s.token, "")
	refused(http.StatusBadRequest, "GET", s.path+"/events"+query+"&access_token="+s.token, "")
	refused(http.StatusBadRequest, "GET", s.path+"/events"+query, "", "Authorization", "Bearer "+s.reader.key)
	refused(no, "GET", s.path+"/events", "", "Authorization", "Bearer "+s.token)
	refused(no, "GET", s.path+"/events", "", "Authorization",
		"Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+s.token)))
	refused(no, "POST", "/v1/stream-tokens"+query, `{"execution": "`+strings.TrimPrefix(s.path, "/v1/executions/")+`"}`)
	for _, seconds := range []int64{60, 61, 3600, -61, -3600} {
		s.now.Store(seconds)
		refused(no, "GET", s.path+"/events"+query, "")
	}
	s.now.Store(0)
	s.want(http.StatusOK, nil, "GET", s.path+"/events"+query, "")
	said.WriteString(s.log.text.String())
	for _, secret := range []string{s.token, s.token[30:]} {
		if strings.Contains(said.String(), secret) {
			t.Errorf("the token is in an answer or the log: %s", said.String())
		}
	}
}

// A key without the scope read cannot make a stream token. When a key is revoked, its tokens open no streams, and the
// streams that they have opened end.
func TestAStreamTokenEndsWithItsKey(t *testing.T) {
	s := serveTokens(t)
	body := `{"execution": "` + strings.TrimPrefix(s.path, "/v1/executions/") + `"}`
	submitter := s.withKey("submitter", belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeWorker)
	submitter.refused(http.StatusForbidden, belay.CodeForbidden, "POST", "/v1/stream-tokens", body)
	s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, "POST", "/v1/stream-tokens", body)
	s.reader.refused(http.StatusNotFound, belay.CodeNotFound, "POST", "/v1/stream-tokens",
		`{"execution": "ex_0000000000000000000000000b"}`)
	o := own(t, s.b)
	token := s.made(s.reader, o.path)
	watch, err := s.open(t.Context(), http.DefaultClient, o.path+"/events?access_token="+token)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.body.Close()
	if err := watch.until(2); err != nil {
		t.Fatal(err)
	}
	s.now.Store(3600) // a stream that is open continues after its token has expired
	o.save()
	if err := watch.until(3); err != nil {
		t.Fatal(err)
	}
	s.now.Store(0)
	keys, err := s.b.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.b.RevokeKey(t.Context(), belay.Revocation{Key: keys[0].ID}); err != nil {
		t.Fatal(err)
	}
	s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, "GET", o.path+"/events?access_token="+token, "")
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, watch.in)
		ended <- err
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream goes on without its key")
	}
}

// On a server that needs no key a stream token is empty. A stream opens with the empty token, with an old token, and
// without a token.
func TestAnOpenServerNeedsNoStreamToken(t *testing.T) {
	s := &tokened{server: serve(t, httpapi.Options{})}
	path := s.submit(`{"workflow": "w"}`)
	s.want(http.StatusOK, nil, "POST", path+"/cancel", "")
	if token := s.made(s.server, path); token != "" {
		t.Errorf("the token is %q", token)
	}
	for _, query := range []string{"", "?access_token=", "?access_token=bst_old"} {
		s.want(http.StatusOK, nil, "GET", path+"/events"+query, "")
	}
	s.refused(http.StatusBadRequest, belay.CodeMalformed, "GET", path+"?access_token=bst_old", "")
}

// A stream token of a job's execution opens the stream of the job's log. It does not open the job
// itself.
func TestAStreamTokenOpensTheLogOfAJob(t *testing.T) {
	s := &tokened{server: serveAgents(t, 10)}
	job := s.want(http.StatusAccepted, nil, "POST", "/execute", `{"prompt": "hello"}`).Header.Get("Location")
	s.want(http.StatusOK, nil, "GET", job+"?wait=20", "")
	token := s.made(s.withKey("reader", belay.ScopeRead), "/v1/executions/"+strings.TrimPrefix(job, "/jobs/"))
	a := s.want(http.StatusOK, nil, "GET", job+"/log?access_token="+token, "")
	if !strings.Contains(string(a.body), "event: end") {
		t.Errorf("the log is %s", a.body)
	}
	s.want(http.StatusUnauthorized, nil, "GET", job+"?access_token="+token, "", "Accept", "text/event-stream")
}
