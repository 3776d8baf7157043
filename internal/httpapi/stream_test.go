package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/testkit/raced"
)

// stream reads server-sent events.
type stream struct {
	body io.Closer
	in   *bufio.Reader
	last int64 // the id of the last event
}

// sent is one server-sent event.
type sent struct {
	name, data string
	id         int64 // 0 if the event has no id
}

// open requests the events of an execution with the given client.
func (s *server) open(ctx context.Context, c *http.Client, path string, h ...string) (*stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(h); i += 2 {
		req.Header.Set(h[i], h[i+1])
	}
	return streamOf(c, req)
}

// streamOf sends a request whose answer is a stream of events.
func streamOf(c *http.Client, req *http.Request) (*stream, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %d", req.URL.Path, resp.StatusCode)
	}
	return &stream{body: resp.Body, in: bufio.NewReaderSize(resp.Body, 512)}, nil
}

// next reads one event and skips comments. An event that is out of order is an error.
func (s *stream) next() (sent, error) {
	var e sent
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return e, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "event":
			e.name = value
		case name == "data":
			e.data = value
		case name == "id":
			if e.id, err = strconv.ParseInt(value, 10, 64); err != nil {
				return e, err
			}
		case line == "\n" && e.name != "":
			if e.name == "end" {
				return e, nil // the event end has the same id as the event before it
			}
			if e.id != 0 && s.last != 0 && e.id != s.last+1 {
				return e, fmt.Errorf("seq %d after %d", e.id, s.last)
			}
			if e.id != 0 {
				s.last = e.id
			}
			return e, nil
		}
	}
}

// until reads up to the event with a seq.
func (s *stream) until(seq int64) error {
	for s.last < seq {
		if _, err := s.next(); err != nil {
			return fmt.Errorf("after seq %d: %w", s.last, err)
		}
	}
	return nil
}

// owner owns one execution and writes its events.
type owner struct {
	t     testing.TB
	b     belay.Backend
	path  string
	lease belay.Lease
	kind  belay.CheckpointKind
	data  string
}

func own(t testing.TB, b belay.Backend) *owner {
	t.Helper()
	got, err := b.Submit(t.Context(), belay.Submission{Workflow: "talk", External: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.Lock(t.Context(), belay.LockRequest{
		Execution: got[0].ID, Owner: "me", TTL: belay.Duration(10 * time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &owner{t, b, "/v1/executions/" + got[0].ID.String(), l.Lease, belay.KindState, "1"}
}

var ops atomic.Int64

// save writes one event and returns its seq.
func (o *owner) save() int64 {
	var op belay.OpID
	copy(op[:], strconv.FormatInt(ops.Add(1), 10))
	seq, err := o.b.Save(context.Background(), belay.Save{
		Lease: o.lease, Op: op, Kind: o.kind, Key: "state", Data: []byte(o.data),
	})
	if err != nil {
		o.t.Error(err)
	}
	return seq
}

func (o *owner) complete() {
	o.t.Helper()
	if err := o.b.Settle(context.Background(), belay.Settlement{Lease: o.lease, Op: belay.OpID{1},
		Outcome: belay.OutcomeSucceeded}); err != nil {
		o.t.Error(err)
	}
}

// A stream has the snapshot, every event once and in order, and the event end. A client may
// continue it after any seq.
func TestStreamResumes(t *testing.T) {
	s := serve(t, httpapi.Options{})
	o := own(t, s.b)
	watch, err := s.open(t.Context(), http.DefaultClient, o.path+"/events")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := watch.next(); err != nil || e.name != "snapshot" || !strings.Contains(e.data, `"state":"running"`) {
		t.Fatalf("first came %+v, %v", e, err)
	}
	for range 5 {
		o.save()
	}
	if err := watch.until(4); err != nil {
		t.Fatal(err)
	}
	watch.body.Close()
	for _, from := range [][]string{{"?after=4"}, {"", "Last-Event-ID", "4"}, {"?after=1", "Last-Event-ID", "4"}} {
		again, err := s.open(t.Context(), http.DefaultClient, o.path+"/events"+from[0], from[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		again.last = 4
		if err := again.until(7); err != nil {
			t.Errorf("resumed with %q: %v", from, err)
		}
		again.body.Close()
	}
	final, err := s.open(t.Context(), http.DefaultClient, o.path+"/events?after=7")
	if err != nil {
		t.Fatal(err)
	}
	defer final.body.Close()
	final.last = 7
	o.complete()
	if err := final.until(8); err != nil {
		t.Fatal(err)
	}
	if e, err := final.next(); err != nil || e.name != "end" || e.id != 8 || e.data != `{"state":"succeeded","seq":8}` {
		t.Errorf("at the end came %+v, %v", e, err)
	}
	if _, err := final.next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want the stream closed", err)
	}
	all := s.want(http.StatusOK, nil, http.MethodGet, o.path+"/events", "")
	if n := strings.Count(string(all.body), "event: event\nid: "); n != 8 || !strings.HasSuffix(string(all.body),
		"event: end\nid: 8\ndata: {\"state\":\"succeeded\",\"seq\":8}\n\n") {
		t.Errorf("%d events of an ended execution, want 8:\n%s", n, all.body)
	}
	s.refused(http.StatusGone, belay.CodeCursorExpired, http.MethodGet, o.path+"/events?after=9", "")
}

// A stream without events sends comments that show that it is alive.
func TestStreamPings(t *testing.T) {
	s := serve(t, httpapi.Options{Ping: time.Millisecond})
	o := own(t, s.b)
	watch, err := s.open(t.Context(), http.DefaultClient, o.path+"/events?after=2")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.body.Close()
	for pings := 0; pings < 2; {
		line, err := watch.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == ": ping\n" {
			pings++
		}
	}
}

// A stream over HTTP/2 lasts longer than the write timeout while it has nothing to write.
func TestStreamOverHTTP2(t *testing.T) {
	t.Parallel()
	b, err := embedded.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	h := httptest.NewUnstartedServer(httpapi.New(b, httpapi.Options{
		WriteTimeout: 2 * time.Second, Ping: 3 * time.Second,
	}))
	var both http.Protocols
	both.SetUnencryptedHTTP2(true)
	h.Config.Protocols = &both
	h.Start()
	defer h.Close()
	client := &http.Client{Transport: &http.Transport{Protocols: &both}}
	defer client.CloseIdleConnections()
	s := &server{t: t, url: h.URL}
	o := own(t, b)
	watch, err := s.open(t.Context(), client, o.path+"/events")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.body.Close()
	for pings := 0; pings < 2; {
		line, err := watch.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == ": ping\n" {
			pings++
		}
	}
	last := o.save()
	o.complete()
	watch.last = 2
	if err := watch.until(last + 1); err != nil {
		t.Error(err)
	}
}

// counting is a Backend that counts the reads of histories.
type counting struct {
	*embedded.Backend
	events atomic.Int64
}

func (c *counting) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	c.events.Add(1)
	return c.Backend.Events(ctx, q)
}

// narrow is a listener whose connections have small buffers, so that the server soon notices a
// client that does not read.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(4 << 10)
	}
	return c, err
}

// narrowClient is a client whose connections have small buffers.
func narrowClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network,
		addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4 << 10)
		}
		return c, err
	}}}
}

// serveNarrow serves a Backend on connections with small buffers.
func serveNarrow(t testing.TB, b belay.Backend, o httpapi.Options) *server {
	t.Helper()
	api, ended := httpapi.New(b, o), make(chan struct{}, 1)
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			select {
			case ended <- struct{}{}:
			default:
			}
		}()
		api.ServeHTTP(w, r)
	}))
	h.Listener = narrow{h.Listener}
	h.Config.ReadHeaderTimeout = 10 * time.Second
	h.Start()
	t.Cleanup(h.Close)
	return &server{t: t, url: h.URL, ended: ended}
}

// A thousand clients watch one execution, and a tenth of them are too slow for the frames that the
// feed keeps. Each client sees every seq once and in order, and the store is read about once for
// each event and not a thousand times (G15).
func TestThousandWatchers(t *testing.T) {
	watchers, events := 1000, 1200
	if raced.On || testing.Short() {
		watchers = 100
	}
	b, err := embedded.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c := &counting{Backend: b}
	s := serveNarrow(t, c, httpapi.Options{WriteTimeout: 10 * time.Minute, Rate: httpapi.Rate{PerSecond: -1}})
	o := own(t, b)
	client := narrowClient()
	defer client.CloseIdleConnections()
	written := make(chan struct{}) // closed when the slow clients are to begin to read
	var joined, done sync.WaitGroup
	joined.Add(watchers)
	for i := range watchers {
		done.Go(func() {
			watch, err := s.open(t.Context(), client, o.path+"/events")
			if err == nil {
				defer watch.body.Close()
				_, err = watch.next() // reads the snapshot
			}
			joined.Done()
			if err == nil && i%10 == 0 {
				<-written
			}
			if err == nil {
				// the events submitted and started come before the saved events, succeeded comes after
				err = watch.until(int64(events) + 3)
			}
			if err != nil {
				t.Errorf("watcher %d: %v", i, err)
			}
		})
	}
	joined.Wait()
	began := time.Now()
	for range events {
		o.save()
	}
	o.complete()
	t.Logf("%d events were written in %s", events, time.Since(began))
	close(written)
	done.Wait()
	t.Logf("all were seen after %s, with %d reads", time.Since(began), c.events.Load())
	if n := c.events.Load(); n > int64(events+watchers) {
		t.Errorf("%d reads of the history for %d events and %d watchers", n, events, watchers)
	}
}

// The server cuts off a watcher that does not read. When the watcher reconnects, it continues
// without a gap.
func TestDeafWatcherIsCutOff(t *testing.T) {
	b, err := embedded.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := serveNarrow(t, b, httpapi.Options{WriteTimeout: 200 * time.Millisecond})
	o := own(t, b)
	client := narrowClient()
	defer client.CloseIdleConnections()
	watch, err := s.open(t.Context(), client, o.path+"/events?data=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.body.Close()
	o.kind, o.data = belay.KindStep, `"`+strings.Repeat("x", 64<<10)+`"`
	var last int64
	for range 100 {
		last = o.save()
	}
	<-s.ended // the server has cut the watcher off
	if err := watch.until(last); err == nil {
		t.Error("it was not cut off")
	}
	again, err := s.open(t.Context(), http.DefaultClient, o.path+"/events?data=true", "Last-Event-ID",
		strconv.FormatInt(watch.last, 10))
	if err != nil {
		t.Fatal(err)
	}
	defer again.body.Close()
	again.last = watch.last
	if err := again.until(last); err != nil {
		t.Error(err)
	}
}

// A history with data is read a few events at a time, and an answer has no more than a few
// megabytes. The client reads the rest after the last seq.
func TestHistoryWithDataIsBounded(t *testing.T) {
	b, err := embedded.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c := &limited{Backend: b}
	s := serveOn(t, c, httpapi.Options{})
	o := own(t, b)
	o.kind, o.data = belay.KindStep, `"`+strings.Repeat("x", 900<<10)+`"`
	const events = 42
	for range events - 2 {
		o.save()
	}
	var last int64
	answers := 0
	for ; last < events; answers++ {
		var list struct{ Events []belay.Event }
		a := s.want(http.StatusOK, &list, http.MethodGet, fmt.Sprintf("%s/history?data=true&after=%d", o.path, last),
			"")
		if len(list.Events) == 0 || len(a.body) > 32<<20 {
			t.Fatalf("%d events in %d bytes after seq %d", len(list.Events), len(a.body), last)
		}
		for _, e := range list.Events {
			if last++; e.Seq != last {
				t.Fatalf("seq %d, want %d", e.Seq, last)
			}
		}
	}
	if most := c.most.Load(); answers < 2 || most > 16 {
		t.Errorf("%d answers, %d events read at a time", answers, most)
	}
	var few struct{ Events []belay.Event }
	s.want(http.StatusOK, &few, http.MethodGet, o.path+"/history?data=true&limit=3", "")
	if len(few.Events) != 3 {
		t.Errorf("%d events, 3 were asked for", len(few.Events))
	}
}

// limited is a Backend that records how many events are read at a time.
type limited struct {
	*embedded.Backend
	most atomic.Int64
}

func (l *limited) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	got, err := l.Backend.Events(ctx, q)
	l.most.Store(max(l.most.Load(), int64(len(got))))
	return got, err
}
