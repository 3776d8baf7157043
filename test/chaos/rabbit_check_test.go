package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// acceptedBy is the time within which a worker without faults must accept what is scheduled to it, whatever happens
// to the message: each heartbeat of the worker brings the offer. It is less than messages wait, and far less than the
// scheduled timeout.
const acceptedBy = 3 * beat

// messagesCheck checks G14, that messages are hints.
var messagesCheck = check{"G14", "executions scheduled, none by a message alone", nil, g14}

// g14 checks that no execution waits for a lost message, that a dead letter counts only if the message can have
// expired, and that no worker began a run that was scheduled to another.
func g14(f *finding) {
	for _, s := range f.stories {
		for _, a := range s.Runs {
			if a.Kind == "scheduled" {
				f.OK()
				g14accepted(f, s, a)
			}
		}
		for i := range s.Events {
			if ev := &s.Events[i]; ev.Kind == "message_expired" {
				f.Count("message expired")
				before := s.Events[i-1]
				if waited := ev.At.Sub(before.At); before.Kind != "scheduled" || waited < f.MessageTTL-time.Second {
					f.Violation(s, "a dead letter ended %s under token %d after %s, and messages wait for %s",
						before.Kind, ev.Token, waited, f.MessageTTL)
				}
			}
		}
	}
	for i := range f.Told {
		e := &f.Told[i]
		if s := f.byID[e.Execution]; e.Kind == "accept" && e.End == ok && s != nil {
			if a := s.Run(e.Token); a == nil || a.Kind != "scheduled" || a.Worker != e.Worker {
				f.Violation(s, "%s accepted it under token %d, which was not scheduled to it", e.Who, e.Token)
			}
		}
	}
}

// g14accepted checks how long a run was scheduled and not accepted.
func g14accepted(f *finding, s *story, a *attempt) {
	until := f.Settled
	switch {
	case a.Started != nil:
		until = a.Started.At
	case a.End != nil:
		until = a.End.At
	}
	if waited := until.Sub(a.At); waited > acceptedBy && f.calmly(a, until) {
		f.Violation(s, "it was scheduled to %s under token %d at %s, and not accepted for %s",
			f.sessions[a.Worker].Name, a.Token, a.At.Format(clock), waited)
	}
}

// calmly reports whether the worker of a scheduled run, and its server, had no fault until the given time.
func (b *book) calmly(a *attempt, until time.Time) bool {
	for _, p := range b.allPlaces() {
		if p.session.ID == a.Worker {
			calm := !p.far && !during(p.rest, a.At.Add(-settled), until) && !b.disturbed(a.At.Add(-settled), until)
			return calm && (p.session.EndedAt.IsZero() || until.Before(p.session.EndedAt))
		}
	}
	return false
}

// offeredCalmly reports whether a run came by a message, and its worker and server had no fault for so long that a
// late acceptance would break G14.
func (b *book) offeredCalmly(a *attempt) bool {
	return a.Kind == "scheduled" && a.Started != nil && b.calmly(a, a.At.Add(2*acceptedBy))
}

// report prints how executions reached their workers, and how long that took.
func (m *vandalOfMessages) report(b *book, sent float64) {
	messages, claims := 0, 0
	var accepted, picked, after []time.Duration
	var slow []string
	for _, s := range b.stories {
		for i, a := range s.Runs {
			if a.Started == nil {
				continue
			}
			if a.Kind != "scheduled" {
				claims++
				continue
			}
			messages++
			m.calm = m.calm || b.offeredCalmly(a)
			accepted = append(accepted, a.Started.At.Sub(a.At))
			if i == 0 && s.Events[1].Seq == a.Seq {
				took := a.Started.At.Sub(s.Events[0].At)
				if picked = append(picked, took); took > 2*acceptedBy && len(slow) < 5 {
					slow = append(slow, fmt.Sprintf("%s: %s, scheduled after %s", s.ID, took, a.At.Sub(s.Events[0].At)))
				}
			}
			if a.At.After(b.Healed) {
				after = append(after, a.Started.At.Sub(a.At))
			}
		}
	}
	fmt.Fprintf(os.Stdout, "%s: %d executions, %d runs by messages, %d by claims; %.0f messages since the last start\n",
		m.store, len(b.stories), messages, claims, sent)
	fmt.Fprintf(os.Stdout, "faults: %s\nscheduled to accepted: %s\nsubmitted to started: %s\n", promise.List(b.Faults),
		promise.Quantiles(accepted), promise.Quantiles(picked))
	fmt.Fprintf(os.Stdout, "after the last fault, scheduled to accepted: %s; settled %s after that fault; slow: %q\n",
		promise.Quantiles(after), b.Settled.Sub(b.Healed).Round(10*time.Millisecond), slow)
	if messages < 50 || short() && messages < claims/10 || sent == 0 {
		m.t.Errorf("only %d of %d runs came by messages", messages, messages+claims)
	}
}

// metric returns the value of a metric of the server; 0 if the server does not answer.
func (s *server) metric(ctx context.Context, name string) float64 {
	status, text, err := s.get(ctx, "/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(text)
	if err != nil || status != http.StatusOK || found == nil {
		return 0
	}
	v, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return 0
	}
	return v
}

// messageMutants are bugs that are planted into the history of a run with RabbitMQ.
var messageMutants = []mutant{
	{"lost message that nobody offers again", "G14", func(p *planting) bool {
		return p.event(func(s *story, ev *belay.Event) bool {
			return ev.Kind == "started" && p.offeredCalmly(s.Run(ev.Token))
		}, func(ev *belay.Event) { ev.At = ev.At.Add(acceptedBy) })
	}, ""},
	{"run that was scheduled to another worker", "G14", func(p *planting) bool {
		return p.entry(func(e *entry) bool { return e.Kind == "accept" && e.End == ok }, func(e *entry) {
			e.Worker[0]++
		})
	}, ""},
	{"token accepted twice", "G1", func(p *planting) bool {
		return p.entry(func(e *entry) bool { return e.Kind == "accept" && e.End == ok }, func(e *entry) {
			again := *e
			again.Number--
			p.record.Told = append(p.record.Told, again)
		})
	}, ""},
}

// plantMessages plants the bugs of messageMutants into copies of a part of the history.
func (m *vandalOfMessages) plantMessages(r *record) {
	part, err := json.Marshal(excerpt(r))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, bug := range messageMutants {
		c := messagesCheck
		if bug.meant != c.promise {
			c = checkOf(bug.meant)
		}
		done := false
		violated := found(part, func(p *planting) { done = bug.plant(p) }, c)[c.promise]
		before := found(part, nil, c)[c.promise]
		caught := slices.ContainsFunc(violated, func(s string) bool { return !slices.Contains(before, s) })
		if !done && bug.meant == "G14" && !m.calm {
			m.t.Logf("the bug %q cannot be planted: no run came by a message far from all faults", bug.name)
			continue
		}
		if !done || !caught {
			m.t.Errorf("the planted bug %q: planted %t, caught %t", bug.name, done, caught)
		}
	}
}
