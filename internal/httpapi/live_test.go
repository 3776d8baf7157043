package httpapi_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// page opens the stream of a page, as the script of the page does.
func (s *server) page(ctx context.Context, path string, h ...string) (*stream, error) {
	if s.key != "" {
		h = append(h, "Authorization", "Bearer "+s.key)
	}
	return s.open(ctx, http.DefaultClient, path, append(h, "Accept", "text/event-stream")...)
}

// changed reads the next event of a page.
func (s *stream) changed(t *testing.T) {
	t.Helper()
	e, err := s.next()
	if err != nil || e.name != "changed" {
		t.Fatalf("%q %q, %v", e.name, e.data, err)
	}
}

// ends reads to the end of a stream, which must come without a further event.
func (s *stream) ends(t *testing.T) {
	t.Helper()
	if e, err := s.next(); err == nil {
		t.Fatalf("the stream goes on with %q", e.name)
	}
}

// paged are the options of a server with pages.
func paged() httpapi.Options {
	return httpapi.Options{
		Pages: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") }),
		Rate:  httpapi.Rate{PerSecond: -1}, Ping: 20 * time.Millisecond,
	}
}

func mustPage(t *testing.T, s *server, path string, h ...string) *stream {
	t.Helper()
	x, err := s.page(t.Context(), path, h...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.body.Close() })
	return x
}

// Rule: the page of an execution learns of each change after the one that it shows, also of changes between its
// rendering and its stream; and of nothing else.
func TestThePageOfAnExecutionLearnsOfChanges(t *testing.T) {
	s := serve(t, paged())
	o, other := own(t, s.b), own(t, s.b)
	seq := o.save()
	at := "/live?execution=" + strings.TrimPrefix(o.path, "/v1/executions/")
	missed := mustPage(t, s, fmt.Sprintf("%s&after=%d", at, seq-1))
	missed.changed(t)
	upToDate := mustPage(t, s, fmt.Sprintf("%s&after=%d", at, seq))
	news := make(chan error, 1)
	go func() {
		_, err := upToDate.next()
		news <- err
	}()
	other.save()
	select {
	case err := <-news:
		t.Fatalf("a change of another execution is an event: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	o.save()
	if err := <-news; err != nil {
		t.Fatal(err)
	}
	missed.changed(t)
	// A page that shows a later state than the store has reads itself again.
	mustPage(t, s, at+"&after=1000").changed(t)
}

// Rule: many changes within a moment are one event, or two, and the last change always has an event after it.
func TestChangesOfAPageAreJoined(t *testing.T) {
	s := serve(t, paged())
	o := own(t, s.b)
	x := mustPage(t, s, "/live?execution="+strings.TrimPrefix(o.path, "/v1/executions/"))
	began, last := time.Now(), int64(0)
	for range 200 {
		last = o.save()
	}
	events := 0
	for n := int64(0); n < last; events++ {
		e, err := x.next()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(e.data, `{"n": %d}`, &n); err != nil {
			t.Fatal(err)
		}
	}
	if most := 2 + int(time.Since(began)/(250*time.Millisecond)); events > most {
		t.Errorf("%d events, want at most %d", events, most)
	}
}

// followCounter counts the calls of Follow.
type followCounter struct {
	belay.Backend
	calls atomic.Int64
	ended chan struct{} // gets a value when a call ends
}

func (f *followCounter) Follow(ctx context.Context, q belay.StatusQuery, do func(belay.StatusNews) error) error {
	f.calls.Add(1)
	defer func() { f.ended <- struct{}{} }()
	return f.Backend.Follow(ctx, q, do)
}

// Rule: the pages of lists learn of all executions, and share one call of Follow, which ends with the last page.
func TestListsShareOneFollower(t *testing.T) {
	whole := serve(t, paged())
	f := &followCounter{Backend: whole.b, ended: make(chan struct{}, 10)}
	s := serveOn(t, f, paged())
	s.b = whole.b
	var all []*stream
	for range 20 {
		x := mustPage(t, s, "/live")
		x.changed(t) // the list may be older than the stream
		all = append(all, x)
	}
	s.submit(`{"workflow": "w"}`)
	for _, x := range all {
		x.changed(t)
	}
	if n := f.calls.Load(); n != 1 {
		t.Errorf("%d calls of Follow for %d pages", n, len(all))
	}
	for _, x := range all {
		x.body.Close()
	}
	select {
	case <-f.ended:
	case <-time.After(time.Minute):
		t.Fatal("Follow goes on without a page")
	}
	again := mustPage(t, s, "/live")
	again.changed(t)
	s.submit(`{"workflow": "w"}`)
	again.changed(t)
}

// Rule: the stream of a page needs what the page needs, a session or a key with the scope read, and ends with them.
func TestTheStreamOfAPageNeedsAKey(t *testing.T) {
	s := serveSessions(t, func(o *httpapi.Options) { o.Ping = 20 * time.Millisecond })
	path := "/live?execution=" + strings.TrimPrefix(s.submit(`{"workflow": "w"}`), "/v1/executions/")
	for _, at := range []string{"/live", path} {
		s.wants(http.StatusUnauthorized, "needs a key", "GET", at, "", nil, "Accept", "text/event-stream")
		s.wants(http.StatusUnauthorized, "", "GET", at, "", nil, "Authorization", "Bearer bly_wrong", "Accept", "*/*")
		s.worker.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodGet, at, "")
		s.wants(http.StatusMethodNotAllowed, "", "HEAD", at, "", nil, "Authorization", "Bearer "+s.key)
		s.wants(http.StatusMethodNotAllowed, "", "POST", at, "", nil, "Authorization", "Bearer "+s.key)
	}
	_, cookie := s.signIn(s.reader.key, "/")
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+s.reader.key))
	bare := *s.server
	bare.key = ""
	var open []*stream
	for _, h := range [][]string{
		{"Cookie", cookie}, {"Authorization", basic}, {"Authorization", "Bearer " + s.reader.key},
	} {
		for _, at := range []string{"/live", path} {
			x := mustPage(t, &bare, at, h...)
			x.changed(t)
			open = append(open, x)
		}
	}
	_, later := s.signIn(s.key, "/")
	lasting := mustPage(t, &bare, "/live", "Cookie", later)
	lasting.changed(t)
	s.revoke("reader")
	for _, x := range open {
		x.ends(t)
	}
	s.submit(`{"workflow": "w"}`)
	lasting.changed(t)
	s.now.Store(12 * 3600)
	lasting.ends(t)
}

// Rule: pages of other sites, also those of listed origins, cannot open the stream of a page.
func TestOtherSitesCannotOpenTheStreamOfAPage(t *testing.T) {
	for _, needsKey := range []bool{false, true} {
		var s *server
		var with []string
		if needsKey {
			sessions := serveSessions(t)
			_, cookie := sessions.signIn(sessions.key, "/")
			bare := *sessions.server
			bare.key = ""
			s, with = &bare, []string{"Cookie", cookie}
		} else {
			s = serve(t, paged())
		}
		for _, h := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"},
			{"Origin", "null"}, {"Origin", listedOrigin},
			{"Origin", listedOrigin, "Sec-Fetch-Site", "same-site"},
		} {
			s.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodGet, "/live", "", append(h, with...)...)
		}
		for _, h := range [][]string{{"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}, {"Origin", s.url}} {
			mustPage(t, s, "/live", append(h, with...)...).changed(t)
		}
	}
}

// Rule: one caller has at most as many streams of pages as it may have requests that wait, and a query that the server
// does not understand opens none.
func TestTheStreamsOfPagesAreBounded(t *testing.T) {
	o := paged()
	o.Waiting = 3
	s := serve(t, o)
	id := strings.TrimPrefix(s.submit(`{"workflow": "w"}`), "/v1/executions/")
	for _, q := range []string{
		"?execution=x", "?after=1", "?execution=" + id + "&after=-1", "?execution=" + id + "&after=x", "?x=1",
		"?execution=" + id + "&execution=" + id, "?execution=" + id + "&after=99999999999999999999", "?execution=%00",
		"?%zz", "?execution=" + strings.Repeat("x", 8000),
	} {
		if a := s.do(http.MethodGet, "/live"+q, ""); a.StatusCode/100 != 4 {
			t.Errorf("%.60s: %d", q, a.StatusCode)
		}
	}
	const none = "/live?execution=ex_0000000000000000000000000b"
	s.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, none, "")
	var open []*stream
	for range 3 {
		open = append(open, mustPage(t, s, "/live"))
	}
	s.refused(http.StatusTooManyRequests, belay.CodeRateLimited, http.MethodGet, "/live", "")
	open[0].body.Close()
	tick, late := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for {
		x, err := s.page(t.Context(), "/live?execution="+id)
		if err == nil {
			x.body.Close()
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("a stream that was closed still counts")
		}
	}
}

// Rule: when the server stops, the streams of the pages end.
func TestTheStreamsOfPagesEndWithTheServer(t *testing.T) {
	o, stopping := paged(), make(chan struct{})
	o.Stopping = stopping
	s := serve(t, o)
	id := strings.TrimPrefix(s.submit(`{"workflow": "w"}`), "/v1/executions/")
	list, one := mustPage(t, s, "/live"), mustPage(t, s, "/live?execution="+id)
	list.changed(t)
	one.changed(t)
	close(stopping)
	list.ends(t)
	one.ends(t)
}
