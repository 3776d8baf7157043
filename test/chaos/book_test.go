package chaos

import (
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// book is the record of a run in the form that the checkers use.
type book struct {
	*record
	stories  []*story
	byID     map[belay.ExecutionID]*story
	sessions map[belay.WorkerID]*belay.Worker
	// beats are, for each session, the acknowledged heartbeats of its worker, in order of time.
	beats     map[belay.WorkerID][]*entry
	deaths    map[int][]time.Time // by pid, the times at which the process ended, whatever ended it
	sometimes map[string]int
	away      []span          // the periods in which the servers could not act
	places    []*place        // the sessions of all workers, with their runs
	expired   []time.Duration // the times from a session's deadline to its end, if the servers could act
	// the times from a session's deadline to its end, if the servers could not act for some time
	hindered []time.Duration
	proven   []time.Duration // the times from the kill of a worker to the end of its session
	picked   []time.Duration // from the due time to the claim, for executions that had an idle worker
	noticed  []time.Duration // the times from the loss of a lock until a watcher received the event
}

// The types of the history that package promise checks.
type (
	tale    = promise.Tale
	story   = promise.Story
	attempt = promise.Run
)

// skew is how far two clocks of one machine may differ after a few seconds: the kernel slews the
// system clock and not the monotonic clock.
const skew = 5 * time.Millisecond

func newBook(r *record) *book {
	b := &book{
		record: r, byID: make(map[belay.ExecutionID]*story), sessions: make(map[belay.WorkerID]*belay.Worker),
		beats: make(map[belay.WorkerID][]*entry), sometimes: make(map[string]int), deaths: make(map[int][]time.Time),
	}
	for _, t := range r.Tales {
		s := promise.NewStory(t)
		b.stories = append(b.stories, s)
		b.byID[s.ID] = s
	}
	for _, l := range r.Letters {
		if s := b.byID[l.Execution]; s != nil {
			s.Letters = append(s.Letters, l)
		}
	}
	for i := range r.Sessions {
		b.sessions[r.Sessions[i].ID] = &r.Sessions[i]
	}
	for _, d := range r.Deaths {
		b.deaths[d.PID] = append(b.deaths[d.PID], d.At)
	}
	slices.SortStableFunc(r.Told, func(x, y entry) int { return x.At.Compare(y.At) })
	for i := range r.Told {
		switch e := &r.Told[i]; {
		case e.Kind == "submit" && !e.Gates.IsZero() && b.byID[e.Execution] != nil:
			b.byID[e.Execution].Gates = &e.Gates
		case e.Kind == "heartbeat" && e.End == ok:
			b.beats[e.Worker] = append(b.beats[e.Worker], e)
		case e.Kind == "poison":
			b.deaths[int(e.Number)] = append(b.deaths[int(e.Number)], e.At)
		}
	}
	slices.SortFunc(r.Trouble, func(x, y span) int { return x.From.Compare(y.From) })
	return b
}

// public returns the data that the checkers of package promise need.
func (b *book) public() *promise.History {
	return &promise.History{
		Stories: b.stories, Sessions: b.sessions, Told: b.Told, Seen: b.Seen, Skew: skew, Sometimes: b.sometimes,
	}
}

// promptly is the time within which the servers must do work that is due.
const promptly = time.Second

// deadline returns the latest time at which work that is due must be done: promptly after its due
// time, or promptly after the servers could act again.
func (b *book) deadline(due time.Time) time.Time {
	d := due
	for _, t := range b.impossible() {
		if !t.From.After(d.Add(promptly)) && t.To.After(d) {
			d = t.To
		}
	}
	return d.Add(promptly)
}

// impossible returns the periods in which the servers could not act, sorted by time. Such a period
// has one of these causes: the database was down or ended the connections of the servers; a server
// was stopped, or its connection to the database was delayed, while it may have had row locks; all
// servers were down; or the machine stood still.
func (b *book) impossible() []span {
	if b.away == nil {
		b.away = b.allDown()
		for _, t := range b.Trouble {
			if strings.HasPrefix(t.What, "server") {
				continue
			}
			if isRefusal(t.What) {
				t.To = t.To.Add(learning)
			}
			b.away = append(b.away, t)
		}
		slices.SortFunc(b.away, func(x, y span) int { return x.From.Compare(y.From) })
	}
	return b.away
}

// learning is how long servers may take to notice that a database accepts requests again, because
// they notice it only at their next try.
const learning = 2 * time.Second

func isRefusal(what string) bool {
	return strings.HasPrefix(what, "table ") || what == "read-only" || what == "full disk" || what == "pooler"
}

// allDown returns the periods in which no server ran.
func (b *book) allDown() []span {
	type edge struct {
		at time.Time
		by int
	}
	var edges []edge
	for _, t := range b.Trouble {
		if strings.HasPrefix(t.What, "server") {
			edges = append(edges, edge{t.From, 1}, edge{t.To, -1})
		}
	}
	slices.SortFunc(edges, func(x, y edge) int { return x.at.Compare(y.at) })
	out, down := []span{}, 0
	for _, e := range edges {
		if down += e.by; down == b.Servers {
			out = append(out, span{What: "all servers", From: e.at})
		} else if e.by < 0 && down == b.Servers-1 {
			out[len(out)-1].To = e.at
		}
	}
	return out
}
