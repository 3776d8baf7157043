package webui

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// stored is what a fake has beside executions and workers.
type stored struct {
	groups    belay.DeadLetterGroups
	letters   []belay.DeadLetter
	gates     []belay.GateDetail
	schedules []belay.ScheduleInfo
	webhooks  []belay.WebhookInfo
	targets   []belay.NotificationTargetInfo
	documents []belay.Document // of one name, the newest first
	tasks     []belay.Task     // that the text of a document has
	dead      []belay.DeadLetterFilter
	failure   error
}

func missing(kind string) error {
	return &belay.Error{Code: belay.CodeNotFound, Message: "there is no such " + kind}
}

// part returns the part of a list that begins at a cursor, and the cursor of the next part.
func part[T any](all []T, cursor string, limit int) ([]T, string) {
	from, _ := strconv.Atoi(cursor)
	from = min(from, len(all))
	to, next := min(len(all), from+limit), ""
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return all[from:to], next
}

func (s *stored) DeadLetterGroups(_ context.Context, q belay.DeadLetterFilter) (belay.DeadLetterGroups, error) {
	s.dead = append(s.dead, q)
	return s.groups, s.failure
}

func (s *stored) DeadLetters(_ context.Context, q belay.DeadLetterFilter) (belay.DeadLetterPage, error) {
	s.dead = append(s.dead, q)
	letters, next := part(s.letters, q.Cursor, q.Limit)
	return belay.DeadLetterPage{DeadLetters: letters, Next: next}, s.failure
}

func (s *stored) Gates(_ context.Context, q belay.GateFilter) (belay.GatePage, error) {
	found, next := part(s.gates, q.Cursor, q.Limit)
	p := belay.GatePage{Next: next}
	for _, g := range found {
		g.Held, g.Waiting = 0, 0
		p.Gates = append(p.Gates, g.GateInfo)
	}
	return p, s.failure
}

func (s *stored) Gate(_ context.Context, id belay.GateID) (belay.GateDetail, error) {
	for _, g := range s.gates {
		if g.ID == id {
			return g, s.failure
		}
	}
	return belay.GateDetail{GateInfo: belay.GateInfo{ID: id, Kind: id.Kind(), Name: id.Name(), Open: true}}, s.failure
}

func (s *stored) Schedules(_ context.Context, q belay.ScheduleFilter) (belay.SchedulePage, error) {
	found, next := part(s.schedules, q.Cursor, q.Limit)
	return belay.SchedulePage{Schedules: found, Next: next}, s.failure
}

func (s *stored) Schedule(_ context.Context, name string) (belay.ScheduleInfo, error) {
	i := slices.IndexFunc(s.schedules, func(x belay.ScheduleInfo) bool { return x.Name == name })
	if i < 0 {
		return belay.ScheduleInfo{}, missing("schedule")
	}
	return s.schedules[i], s.failure
}

func (s *stored) Webhooks(_ context.Context, q belay.WebhookFilter) (belay.WebhookPage, error) {
	found, next := part(s.webhooks, q.Cursor, q.Limit)
	p := belay.WebhookPage{Next: next}
	for _, h := range found {
		h.Recent = nil
		p.Webhooks = append(p.Webhooks, h)
	}
	return p, s.failure
}

func (s *stored) Webhook(_ context.Context, name string) (belay.WebhookInfo, error) {
	i := slices.IndexFunc(s.webhooks, func(x belay.WebhookInfo) bool { return x.Name == name })
	if i < 0 {
		return belay.WebhookInfo{}, missing("webhook")
	}
	return s.webhooks[i], s.failure
}

func (s *stored) NotificationTargets(context.Context) ([]belay.NotificationTargetInfo, error) {
	return s.targets, s.failure
}

func (s *stored) NotificationTarget(_ context.Context, name string) (belay.NotificationTargetInfo, error) {
	i := slices.IndexFunc(s.targets, func(x belay.NotificationTargetInfo) bool { return x.Name == name })
	if i < 0 {
		return belay.NotificationTargetInfo{}, missing("target")
	}
	return s.targets[i], s.failure
}

func (s *stored) Documents(_ context.Context, q belay.DocumentFilter) (belay.DocumentPage, error) {
	var p belay.DocumentPage
	if len(s.documents) > 0 {
		d := s.documents[0].DocumentVersion
		p.Documents = []belay.DocumentInfo{{Name: d.Name, Newest: d, Default: s.current(), Count: len(s.documents)}}
	}
	return p, s.failure
}

func (s *stored) current() int {
	for _, d := range s.documents {
		if d.Deprecated == nil {
			return d.Version
		}
	}
	return 0
}

func (s *stored) DocumentVersions(_ context.Context, name string) (belay.DocumentVersions, error) {
	v := belay.DocumentVersions{Name: name, Default: s.current(), Schedules: []string{"nightly.daily"}}
	for _, d := range s.documents {
		v.Versions = append(v.Versions, d.DocumentVersion)
	}
	if len(v.Versions) == 0 || v.Versions[0].Name != name {
		return v, missing("document")
	}
	return v, s.failure
}

func (s *stored) Document(_ context.Context, name string, version int) (belay.Document, error) {
	for _, d := range s.documents {
		if d.Name == name && d.Version == version {
			return d, s.failure
		}
	}
	return belay.Document{}, missing("version")
}

func (s *stored) graph(string) ([]belay.Task, error) { return s.tasks, s.failure }

// poisonedFleet makes a Backend with the text s in every field of the pages beside those of executions.
func poisonedFleet(s string) *fake {
	f := poisoned(s)
	pause := belay.GatePaused{Since: ago(time.Minute), By: s, Reason: s}
	f.groups = belay.DeadLetterGroups{Groups: []belay.DeadLetterGroup{{
		Fingerprint: s, Workflow: s, Reason: s, Class: belay.ClassPermanent, Count: 3, First: ago(time.Hour),
		Last:    noon,
		Message: s, Newest: id(1),
	}}}
	f.letters = []belay.DeadLetter{{
		Execution: id(1), Generation: 2, Workflow: s, Reason: s, Message: s, At: noon, Fingerprint: s, Resolution: s,
		ResolvedBy: s, FailedBy: belay.FailedByReaper, Notes: []belay.DeadLetterNote{{By: s, Text: s}},
	}}
	f.gates = []belay.GateDetail{{GateInfo: belay.GateInfo{
		ID: belay.Gate(belay.GateQueue, s), Kind: belay.GateQueue, Name: s, Why: s, Until: noon.Add(time.Minute),
		Pause:   &pause,
		Limit:   &belay.GateLimited{Max: 2, Set: 2, By: s, Reason: s},
		Rate:    &belay.GatePace{Max: 2, Per: belay.Duration(time.Second), Set: true, By: s, Reason: s},
		Breaker: &belay.Breaker{State: s, Forced: true, By: s, Reason: s},
		Resource: &belay.GateResourceInfo{State: belay.ResourceState(s), Mode: s, Wanted: s, Failures: 2, Error: s,
			Swapping: &belay.ResourceSwap{From: s, To: s}, Waiting: []belay.ModeWaiting{{Mode: s, Since: noon}}},
		UpdatedBy: s,
	}, Holders: []belay.ExecutionID{id(1)}, Line: []belay.ExecutionID{id(2)}}}
	w := &f.workers[0]
	w.Queues, w.Workflows = []string{s}, []belay.Registration{{Workflow: s, Version: s}}
	w.Labels, w.HealthError, w.Mailbox, w.Version = map[string]string{s: s}, s, s, s
	w.Cordoned = &belay.Cordoned{Since: ago(time.Hour), By: s, Reason: s}
	f.workers = append(f.workers, belay.Worker{
		WorkerSpec: belay.WorkerSpec{Name: s}, State: belay.WorkerLost, EndReason: s, EndedAt: ago(time.Minute)})
	execution := belay.Submission{Workflow: s, Queue: s, Input: f.one.Input}
	slot := belay.ScheduleSlot{Slot: noon, At: noon, Outcome: belay.SlotFailed, By: s, Text: s, Execution: id(3)}
	f.schedules = []belay.ScheduleInfo{{
		Schedule:  belay.Schedule{Name: "x", Cron: s, TimeZone: s, Execution: execution},
		DefinedBy: s, Paused: &belay.SchedulePause{By: s, Reason: s}, UpdatedBy: s, NextAt: noon,
		Next:   []time.Time{noon},
		Recent: []belay.ScheduleSlot{slot},
	}, {Schedule: belay.Schedule{Name: s}, Recent: []belay.ScheduleSlot{slot}}}
	f.webhooks = []belay.WebhookInfo{{
		Webhook: belay.Webhook{Name: "x", Scheme: belay.WebhookScheme(s), Filter: s, Execution: execution,
			AMQP: &belay.WebhookAMQP{Queue: s}, Signal: &belay.WebhookSignal{Name: s}},
		DefinedBy: s, Paused: &belay.WebhookPause{By: s, Reason: s}, UpdatedBy: s,
		Recent: []belay.WebhookDelivery{{
			ID: s, Type: s, Source: s, Outcome: belay.WebhookOutcome(s), By: s, Text: s,
		}},
		Deliveries: map[belay.WebhookOutcome]int64{belay.DeliveryFailed: 1},
	}}
	f.targets = []belay.NotificationTargetInfo{{
		NotificationTarget: belay.NotificationTarget{Name: "x", Notification: belay.Notification{URL: s},
			Workflows: []string{s}, Queues: []string{s}, Labels: map[string]string{s: s},
			Alerts: []belay.Alert{belay.Alert(s)}},
		Paused: &belay.NotificationPause{By: s, Reason: s}, UpdatedBy: s,
	}, {NotificationTarget: belay.NotificationTarget{Name: s, Exchange: s, RoutingKey: s}}}
	version := belay.DocumentVersion{Name: "x", Version: 1, CreatedBy: s,
		Deprecated: &belay.Deprecation{By: s, Reason: s}}
	f.documents = []belay.Document{{DocumentVersion: version, Text: s}}
	version.Version = 0
	f.documents = append(f.documents, belay.Document{DocumentVersion: version, Text: s + "\n-" + s})
	f.stored.tasks = []belay.Task{{ID: s, Uses: s}, {ID: "b", Needs: []string{s}}}
	return f
}

// fleetPages are addresses of the pages beside those of executions.
var fleetPages = []string{
	"/", "/overview", "/dead", "/dead?fingerprint=x&resolution=all", "/workers", "/queues", "/queues?gate=queue:x",
	"/workflows", "/workflows/x", "/schedules", "/schedules/x", "/webhooks", "/webhooks/x", "/notifications",
	"/notifications/x", "/bulks",
}

// A hostile text in any field of these pages is shown as text, and the pages stay small. Hostile parameters do
// no harm either.
func TestHostileTextOnAllPages(t *testing.T) {
	for _, s := range hostile {
		f := poisonedFleet(s)
		for _, address := range append(slices.Clone(fleetPages), "/queues?gate="+percent("queue:"+s),
			"/dead?workflow="+percent(s), "/dead?fingerprint="+percent(s), "/dead?resolution="+percent(s),
			"/workers?cursor="+percent(s), "/schedules/"+percent(s), "/webhooks/"+percent(s),
			"/notifications/"+percent(s), "/workflows/"+percent(s), "/workflows/x?version="+percent(s)) {
			a := get(t, f, address)
			checkTame(t, a)
			if len(a.body) > 256<<10 {
				t.Errorf("%s has %d bytes with %.20q", address, len(a.body), s)
			}
		}
	}
}

// The navigation leads to every page, and marks the one that the reader sees.
func TestNavigation(t *testing.T) {
	for address, want := range map[string]string{
		"/": "Overview", "/overview": "Overview", "/executions": "Executions", here + id(1).String(): "Executions",
		"/dead?fingerprint=x": "Dead letters", "/workers": "Workers", "/queues?gate=limit:x": "Queues and gates",
		"/workflows/x": "Workflows", "/schedules/x": "Schedules", "/webhooks/x": "Webhooks",
		"/notifications/x": "Notifications",
		"/bulks":           "Bulk actions", "/bulks/new": "Bulk actions", "/nothing": "",
	} {
		a := get(t, poisonedFleet("x"), address)
		current := ""
		links := a.root.all("header")[0].all("li")
		for _, l := range links {
			link := l.all("a")[0]
			if link.attr["aria-current"] == "page" {
				current += l.words()
			}
			if got := get(t, poisonedFleet("x"), link.attr["href"]); got.status != 200 {
				t.Fatalf("%s: %d", link.attr["href"], got.status)
			}
		}
		if current != want || len(links) != len(sections)-2 { // a reader does not see Audit and Keys
			t.Errorf("%s: the current one of %d links is %q, want %q", address, len(links), current, want)
		}
	}
}

// A page whose data cannot be read says so, instead of an empty list.
func TestPagesSayWhatCannotBeRead(t *testing.T) {
	for _, address := range fleetPages {
		f := poisonedFleet("x")
		f.err = &belay.Error{Code: belay.CodeUnavailable, Message: "the store is away"}
		f.failure = f.err
		if a := get(t, f, address); a.status != 503 {
			t.Errorf("%s: %d", address, a.status)
		}
	}
}

// A name of which there is nothing is not found.
func TestMissingNamesAreNotFound(t *testing.T) {
	for _, address := range []string{
		"/schedules/none", "/webhooks/none", "/notifications/none", "/workflows/none", "/workflows/x?version=7",
		"/schedules/a%20b", "/webhooks/%3Cb%3E", "/notifications/..x", "/workflows/%00",
	} {
		if a := get(t, poisonedFleet("x"), address); a.status != 404 {
			t.Errorf("%s: %d", address, a.status)
		}
	}
}

// Each empty page says what the reader can do.
func TestEmptyPagesSayWhatToDo(t *testing.T) {
	for address, want := range map[string]string{
		"/": "belay run -- make test", "/dead": "notification", "/workers": "belay worker",
		"/queues":    "belay submit --queue",
		"/workflows": "belay workflows apply", "/schedules": "belay schedules set", "/webhooks": "belay webhooks set",
		"/notifications": "belay notify set",
	} {
		get(t, &fake{}, address).says(want)
	}
}

// With any text in its fields, each of these pages is well-formed and passes checkTame.
func FuzzFleetPages(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := poisonedFleet(s)
		for _, address := range fleetPages {
			checkTame(t, get(t, b, address))
		}
	})
}
