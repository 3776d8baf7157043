package webui

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// noon is the present time of all tests.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// unset has the methods that no page calls.
type unset struct{ belay.Backend }

// fake is a Backend that answers from its fields and records the queries of the pages.
type fake struct {
	unset
	stored
	submitter
	bulker
	list     func(belay.Filter) (belay.Page, error)
	one      *belay.Execution
	why      belay.Explanation
	events   []belay.Event
	workers  []belay.Worker
	chunks   []belay.StoredChunk
	tasks    []belay.Task // of an execution of a document
	err      error
	mu       sync.Mutex // guards asked and lookedAt, because several pages may be made at a time
	asked    []belay.EventQuery
	lookedAt int // how many chunks the pages have read
	controls []belay.Control
	signals  []belay.SignalRequest
	deeds    []string
	noteOps  []belay.OpID // of changes of dead letters

	changed   belay.GateChange
	delivery  belay.WebhookDelivery // the answer to a test or a replay; zero for one that starts an execution
	putHook   belay.WebhookPut
	putTarget belay.NotificationTargetPut
	refusal   error // the error of every action
}

func (f *fake) Control(_ context.Context, c belay.Control) (belay.Execution, error) {
	f.controls = append(f.controls, c)
	x := *f.one
	if c.Action == belay.ActionFork {
		x.ID = id(99)
	}
	return x, f.refusal
}

func (f *fake) Cordon(_ context.Context, c belay.Cordon) error {
	f.deeds = append(f.deeds, fmt.Sprintf("cordon %s %t by %s: %s", c.Worker, c.Off, c.Actor, c.Reason))
	return f.refusal
}

func (f *fake) Drain(_ context.Context, w belay.WorkerID) error {
	f.deeds = append(f.deeds, "drain "+w.String())
	return f.refusal
}

func (f *fake) ChangeGate(_ context.Context, c belay.GateChange) (belay.GateDetail, error) {
	f.changed = c
	f.deeds = append(f.deeds, fmt.Sprintf("%s %s by %s: %s %t", c.Action, c.Gate, c.Actor, c.Reason, c.Op.IsZero()))
	return belay.GateDetail{}, f.refusal
}

func (f *fake) ChangeSchedule(_ context.Context, c belay.ScheduleChange) (belay.ScheduleChanged, error) {
	f.deeds = append(f.deeds, fmt.Sprintf("%s %s by %s: %s %t", c.Action, c.Name, c.Actor, c.Reason, c.Op.IsZero()))
	return belay.ScheduleChanged{}, f.refusal
}

func (f *fake) ChangeDeadLetter(_ context.Context, c belay.DeadLetterChange) (belay.DeadLetter, error) {
	f.noteOps = append(f.noteOps, c.Op)
	f.deeds = append(f.deeds, fmt.Sprintf("%s %s.%d by %s: %s %t", c.Action, c.Execution, c.Generation, c.Actor, c.Note,
		c.Op.IsZero()))
	return belay.DeadLetter{}, f.refusal
}

func (f *fake) ChangeWebhook(_ context.Context, c belay.WebhookChange) (belay.WebhookInfo, error) {
	f.deeds = append(f.deeds, fmt.Sprintf("%s %s by %s: %s %t", c.Action, c.Name, c.Actor, c.Reason, c.Op.IsZero()))
	return belay.WebhookInfo{}, f.refusal
}

func (f *fake) delivered() (belay.WebhookDelivery, error) {
	if f.delivery.Outcome != "" {
		return f.delivery, f.refusal
	}
	return belay.WebhookDelivery{Outcome: belay.DeliveryStarted, Execution: id(6)}, f.refusal
}

func (f *fake) Deliver(_ context.Context, d belay.WebhookEvent) (belay.WebhookDelivery, error) {
	f.deeds = append(f.deeds, fmt.Sprintf("deliver %s %s by %s: %s", d.Webhook, d.By, d.Actor, d.Data))
	return f.delivered()
}

func (f *fake) ReplayDelivery(_ context.Context, r belay.WebhookReplay) (belay.WebhookDelivery, error) {
	f.deeds = append(f.deeds, fmt.Sprintf("replay %s %s by %s", r.Webhook, r.ID, r.Actor))
	return f.delivered()
}

func (f *fake) PutWebhook(_ context.Context, p belay.WebhookPut) (belay.WebhookPutResult, error) {
	f.putHook = p
	f.deeds = append(f.deeds, fmt.Sprintf("put %s %d by %s: %s", p.Name, p.IfVersion, p.Actor, p.Reason))
	return belay.WebhookPutResult{}, f.refusal
}

func (f *fake) ChangeNotificationTarget(
	_ context.Context, c belay.NotificationTargetChange,
) (belay.NotificationTargetInfo, error) {
	f.deeds = append(f.deeds, fmt.Sprintf("%s %s by %s: %s %t", c.Action, c.Name, c.Actor, c.Reason, c.Op.IsZero()))
	return belay.NotificationTargetInfo{}, f.refusal
}

func (f *fake) TestNotificationTarget(_ context.Context, c belay.NotificationTargetTest) (belay.ExecutionID, error) {
	f.deeds = append(f.deeds, fmt.Sprintf("test %s by %s", c.Name, c.Actor))
	return id(6), f.refusal
}

func (f *fake) PutNotificationTarget(
	_ context.Context, p belay.NotificationTargetPut,
) (belay.NotificationTargetPutResult, error) {
	f.putTarget = p
	f.deeds = append(f.deeds, fmt.Sprintf("put %s %d by %s: %s", p.Name, p.IfVersion, p.Actor, p.Reason))
	return belay.NotificationTargetPutResult{}, f.refusal
}

func (f *fake) Signal(_ context.Context, s belay.SignalRequest) error {
	f.signals = append(f.signals, s)
	return f.refusal
}

func (f *fake) Executions(_ context.Context, q belay.Filter) (belay.Page, error) {
	if f.err != nil || f.list == nil {
		return belay.Page{}, f.err
	}
	return f.list(q)
}

func (f *fake) Execution(_ context.Context, id belay.ExecutionID) (belay.Execution, error) {
	if f.err != nil {
		return belay.Execution{}, f.err
	}
	if f.one == nil || f.one.ID != id {
		return belay.Execution{}, &belay.Error{
			Code: belay.CodeNotFound, Message: "there is no execution " + id.String(),
		}
	}
	return *f.one, nil
}

func (f *fake) Explain(context.Context, belay.ExecutionID) (belay.Explanation, error) {
	return f.why, f.err
}

func (f *fake) Workers(context.Context) ([]belay.Worker, error) { return f.workers, f.err }

func (f *fake) Events(_ context.Context, q belay.EventQuery) ([]belay.Event, error) {
	f.mu.Lock()
	f.asked = append(f.asked, q)
	f.mu.Unlock()
	var out []belay.Event
	for _, ev := range f.events {
		if ev.Seq > q.After && len(out) < q.Limit {
			out = append(out, ev)
		}
	}
	return out, f.err
}

func (f *fake) Chunks(_ context.Context, q belay.ChunkQuery) ([]belay.StoredChunk, error) {
	i, _ := slices.BinarySearchFunc(f.chunks, q.From, func(c belay.StoredChunk, n int64) int { return int(c.N - n) })
	out := f.chunks[i:min(len(f.chunks), i+q.Limit)]
	f.mu.Lock()
	f.lookedAt += len(out)
	f.mu.Unlock()
	return out, f.err
}

func (f *fake) Tasks(_ context.Context, q belay.TaskQuery) (belay.TaskPage, error) {
	if f.tasks == nil {
		return belay.TaskPage{}, &belay.Error{Code: belay.CodeInvalid, Message: "no document"}
	}
	return belay.TaskPage{Document: "doc", Total: len(f.tasks), Tasks: f.tasks[:min(len(f.tasks), q.Limit)]}, f.err
}

// answer is the answer to the request for a page.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
	root   *node
}

// get requests a page and parses it strictly: a page that is not well-formed fails the test.
func get(t *testing.T, b belay.Backend, address string) *answer {
	t.Helper()
	return send(t, b, httptest.NewRequest(http.MethodGet, address, nil))
}

// send is get for any request.
func send(t *testing.T, b belay.Backend, r *http.Request) *answer {
	t.Helper()
	w := httptest.NewRecorder()
	o := Options{Version: "v1.2.3", Now: func() time.Time { return noon }, Narrate: narrateTest}
	if j, ok := b.(*jobs); ok {
		o.Conversations = j
	}
	if f, ok := b.(*fake); ok {
		o.Tasks, o.Graph, o.Input = f.Tasks, f.graph, f.inputOf
	}
	New(b, o).ServeHTTP(w, r)
	a := &answer{t: t, status: w.Code, header: w.Header(), body: w.Body.String()}
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		a.root = parse(t, w.Body.Bytes())
	}
	return a
}

// sendWith requests a page of a server with other options.
func sendWith(t *testing.T, b belay.Backend, o Options, address string) *answer {
	t.Helper()
	o.Now = func() time.Time { return noon }
	w := httptest.NewRecorder()
	New(b, o).ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
	return &answer{t: t, status: w.Code, header: w.Header(), body: w.Body.String(), root: parse(t, w.Body.Bytes())}
}

// node is an element of a page, or a text if it has no name.
type node struct {
	name string
	attr map[string]string
	text string
	kids []*node
}

func parse(t *testing.T, page []byte) *node {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(page))
	root := &node{}
	open := []*node{root}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v\n%s", err, page)
		}
		top := open[len(open)-1]
		switch x := token.(type) {
		case xml.StartElement:
			n := &node{name: x.Name.Local, attr: make(map[string]string)}
			for _, a := range x.Attr {
				n.attr[a.Name.Local] = a.Value
			}
			top.kids = append(top.kids, n)
			open = append(open, n)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			top.kids = append(top.kids, &node{text: string(x)})
		}
	}
}

// all returns the elements with a name, in order.
func (n *node) all(name string) []*node {
	var out []*node
	if n.name == name {
		out = append(out, n)
	}
	for _, k := range n.kids {
		out = append(out, k.all(name)...)
	}
	return out
}

// class returns the elements with a class.
func (n *node) class(class string) []*node {
	var out []*node
	if slices.Contains(strings.Fields(n.attr["class"]), class) {
		out = append(out, n)
	}
	for _, k := range n.kids {
		out = append(out, k.class(class)...)
	}
	return out
}

// words returns the text of an element, with one space between words.
func (n *node) words() string {
	var b strings.Builder
	var walk func(*node)
	walk = func(n *node) {
		b.WriteString(n.text + " ")
		for _, k := range n.kids {
			walk(k)
		}
	}
	walk(n)
	return strings.Join(strings.Fields(b.String()), " ")
}

func (a *answer) says(parts ...string) {
	a.t.Helper()
	words := a.root.words()
	for _, p := range parts {
		if !strings.Contains(words, p) {
			a.t.Errorf("the page does not say %q:\n%s", p, words)
		}
	}
}

func (a *answer) saysNot(parts ...string) {
	a.t.Helper()
	words := a.root.words()
	for _, p := range parts {
		if strings.Contains(words, p) {
			a.t.Errorf("the page says %q:\n%s", p, words)
		}
	}
}

func id(n byte) belay.ExecutionID { return belay.ExecutionID{1, 2, 3, 4, 5, 6, 0x70, 8, 0x80, 15: n} }

var owning = belay.WorkerID{1, 2, 3, 4, 5, 6, 0x70, 8, 0x80, 15: 9}

// running returns a Backend with one execution. The execution's first owner was lost; its second
// owner has saved another step.
func running() *fake {
	lost := belay.WorkerID{1, 2, 3, 15: 1}
	return &fake{
		one: &belay.Execution{
			ID: id(1), Workflow: "review", State: belay.Running, Queue: "default", Seq: 6, Token: 2, Generation: 1,
			Attempt: 1, Worker: owning,
			Input: []byte(`{"change": 17}`), CreatedAt: ago(10 * time.Second), StartedAt: ago(9 * time.Second),
			ProgressAt: ago(time.Second),
			Labels:     map[string]string{"team": "blue"},
		},
		why: belay.Explanation{Summary: "It has run for 3s, with token 2.", Facts: []string{
			"`belay watch x` follows it", "checkpoints saved: 2",
		}},
		events: []belay.Event{
			{Seq: 1, Kind: "submitted", At: ago(10 * time.Second), Name: "review"},
			{Seq: 2, Kind: "started", At: ago(9 * time.Second), Token: 1, Attempt: 1, Worker: lost},
			{Seq: 3, Kind: "step", At: ago(8 * time.Second), Token: 1, Name: "fetch"},
			{Seq: 4, Kind: "lost", At: ago(4 * time.Second), Token: 1, Attempt: 1, Worker: lost,
				Text: "its session ran out of time"},
			{Seq: 5, Kind: "started", At: ago(3 * time.Second), Token: 2, Attempt: 1, Worker: owning},
			{Seq: 6, Kind: "step", At: ago(time.Second), Token: 2, Name: "test"},
		},
		workers: []belay.Worker{{
			WorkerSpec: belay.WorkerSpec{ID: owning, Name: "anna's laptop", TTL: belay.Duration(15 * time.Second),
				Process: belay.Process{PID: 4711, Host: "anna"}},
			State: belay.WorkerOpen, HeartbeatAt: ago(3 * time.Second), ExpiresAt: noon.Add(12 * time.Second),
		}},
	}
}
