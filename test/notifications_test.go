package test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
)

// Rule: the receiver of notifications gets one signed request for each end, although the server is killed in the middle
// of the ends and before it has sent any request. An end that the killed server did not write has no request.
func TestNotificationsSurviveAKilledServer(t *testing.T) {
	t.Parallel()
	const secret, n = "hook-of-the-blackbox", 60
	p := newPlace(t)
	var mu sync.Mutex
	got := make(map[belay.ExecutionID]int)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var ev belay.NotificationEvent
		if err == nil {
			err = json.Unmarshal(body, &ev)
		}
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), body)
		signature := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		id := belay.NotificationID(ev.Data.ID, 1, 0).String() + "-1"
		if err != nil || r.Header.Get("Webhook-Signature") != signature || r.Header.Get("Webhook-Id") != id ||
			ev.Type != "execution.cancelled" {
			t.Errorf("%v: %v %s", err, r.Header, body)
		}
		mu.Lock()
		defer mu.Unlock()
		got[ev.Data.ID]++
	}))
	defer receiver.Close()
	host, file := receiver.Listener.Addr().String(), p.path("secret")
	must(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	args := []string{
		"--http-egress", host, "--secrets-allow", `["HOOK from file:` + file + ` for http to ` + host + `"]`,
	}
	first, a := p.serve(append(args, "--http-concurrency", "0")...)
	b, err := client.Dial(t.Context(), a.url, client.Patience(0))
	must(t, err)
	ids := make([]belay.ExecutionID, n)
	each(t, n, func(i int) error {
		answers, err := b.Submit(t.Context(), belay.Submission{Workflow: "nobody", Notify: []belay.Notification{{
			URL: receiver.URL + "/hook", Secret: "${{ secrets.HOOK }}", On: []belay.State{belay.Cancelled},
		}}})
		if err == nil {
			ids[i], err = answers[0].ID, answers[0].Err
		}
		return err
	})
	var cancelled atomic.Int64
	acknowledged := make([]bool, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, err := b.Control(t.Context(), belay.Control{Execution: ids[i], Action: belay.ActionCancel})
			acknowledged[i] = err == nil
			if err == nil && cancelled.Add(1) == n/3 {
				first.signal(syscall.SIGKILL)
			}
		})
		if i == n/2 { // the rest comes after the kill
			first.wait(patience)
		}
	}
	wg.Wait()
	second, a := p.serve(args...)
	b, err = client.Dial(t.Context(), a.url)
	must(t, err)
	ends := 0
	for i, id := range ids {
		x, err := b.Execution(t.Context(), id)
		must(t, err)
		if x.State == belay.Cancelled {
			ends++
		} else if acknowledged[i] {
			t.Errorf("%s was cancelled and is %s", id, x.State)
		}
	}
	until(t, "the requests have arrived", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= ends
	})
	second.signal(syscall.SIGTERM)
	second.wait(patience)
	mu.Lock()
	defer mu.Unlock()
	if len(got) != ends || ends < n/3 || ends == n {
		t.Errorf("%d of %d executions have ended, and %d requests arrived", ends, n, len(got))
	}
	for id, requests := range got {
		if requests != 1 {
			t.Errorf("%d requests for the end of %s", requests, id)
		}
	}
	t.Logf("%d of %d executions ended before the kill", ends, n)
}

// Rule: receivers that hang, answer byte by byte, redirect, or fail delay no other receiver, and each gets what it
// deserves: a redirect is not followed, and a failure is tried again.
func TestBadReceiversDelayNoOther(t *testing.T) {
	t.Parallel()
	const n = 20
	p := newPlace(t)
	var bad badReceivers
	receiver := httptest.NewServer(&bad)
	defer receiver.Close()
	defer receiver.CloseClientConnections()
	_, a := p.serve("--http-egress", receiver.Listener.Addr().String())
	b, err := client.Dial(t.Context(), a.url)
	must(t, err)
	var notify []belay.Notification
	paths := []string{"/hang", "/drip", "/redirect", "/fail", "/good"}
	for _, path := range paths {
		notify = append(notify, belay.Notification{URL: receiver.URL + path, On: []belay.State{belay.Cancelled}})
	}
	ids := make([]belay.ExecutionID, n)
	each(t, n, func(i int) error {
		answers, err := b.Submit(t.Context(), belay.Submission{Workflow: "nobody", Notify: notify})
		if err == nil {
			ids[i], err = answers[0].ID, answers[0].Err
		}
		return err
	})
	each(t, n, func(i int) error {
		_, err := b.Control(t.Context(), belay.Control{Execution: ids[i], Action: belay.ActionCancel})
		return err
	})
	until(t, "the good receiver has all requests", func() bool { return bad.count("/good") == n })
	if begun, ended := bad.count("/hang"), bad.count("/hang ended"); begun == 0 || begun > 5 || ended > 0 {
		t.Errorf("the hanging receiver has %d requests, of which %d have ended", begun, ended)
	}
	if begun := bad.count("/drip"); begun == 0 || begun > 5 {
		t.Errorf("the dripping receiver has %d requests", begun)
	}
	until(t, "a request was redirected and one has failed", func() bool {
		x, err := b.Execution(t.Context(), belay.NotificationID(ids[0], 1, 2))
		must(t, err)
		return x.State == belay.Failed && strings.Contains(x.Error.Message, "302") && bad.count("/fail") > 0
	})
	for _, id := range ids {
		x, err := b.Execution(t.Context(), belay.NotificationID(id, 1, 3))
		must(t, err)
		if x.State.Terminal() {
			t.Errorf("a delivery that may succeed later is %s", x.State)
		}
	}
	if got := bad.count("/good"); got != n {
		t.Errorf("the good receiver has %d requests, also those of a redirect", got)
	}
}

// badReceivers are receivers of notifications, each at a path, that count their requests.
type badReceivers struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *badReceivers) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[string]int)
	}
	r.counts[what]++
}

func (r *badReceivers) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[what]
}

func (r *badReceivers) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body)
	r.add(q.URL.Path)
	defer r.add(q.URL.Path + " ended")
	switch q.URL.Path {
	case "/hang":
		<-q.Context().Done()
	case "/drip":
		for q.Context().Err() == nil {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-q.Context().Done():
			case <-time.After(time.Second):
			}
		}
	case "/redirect":
		http.Redirect(w, q, "/good", http.StatusFound)
	case "/fail":
		w.WriteHeader(http.StatusInternalServerError)
	}
}
