package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// withContent makes the submission one of a few that are recognized by their content, which all clients
// share.
func (c *client) withContent(s belay.Submission) belay.Submission {
	if s.Workflow != "play" {
		return s
	}
	r := c.w.random(fmt.Sprint("content ", c.costs.IntN(3)))
	writer := &client{w: c.w, rng: r, costs: r}
	s.Input, s.Policy, s.Gates, s.DueAt = writer.input(s.Workflow), writePolicy(r), belay.Gates{}, time.Time{}
	s.Idempotency = belay.IdempotencyByContent
	return s
}

// answers reports whether further submissions of the execution's content are answered with it: it has
// succeeded, or it may still succeed with the input of its submission.
func (r row) answers() bool {
	return r.InputGen == 1 && r.CancelBy == 0 && r.Reason != machine.Forgotten &&
		(r.State == belay.Succeeded || !r.State.Terminal())
}

// holding is the time for which a content leads to one execution.
type holding struct {
	*story
	from *commit
	next *commit // the commit that gave the content to another execution; nil if there was none
}

// g9 checks G9 for submissions that are recognized by their content. A submission is answered with another
// execution only if the content leads to that execution, and if it answers at some moment of the call. An
// execution takes a content over only if the execution before does not answer.
func g9(f *finding) {
	holders := make(map[machine.Key][]*holding)
	for _, c := range f.commits {
		for _, k := range c.changes.Keys {
			if !strings.HasPrefix(k.Key.Key, "content:") {
				continue
			}
			if all := holders[k.Key]; len(all) > 0 {
				last := all[len(all)-1]
				last.next = c
				was, _ := last.before(c)
				if now, there := last.at(c); there && !f.goneBy(last.id, c) && was.Execution != nil && was.answers() &&
					now.answers() {
					f.violation(f.byID[k.Execution], c, "it was started, although %s of the same content is %s",
						short(last.id), was.State)
				}
				f.Count("content taken over")
			}
			holders[k.Key] = append(holders[k.Key], &holding{story: f.byID[k.Execution], from: c})
			f.OK()
		}
	}
	for _, c := range f.calls {
		all, is := c.request.([]belay.Submission)
		got, _ := c.reply.([]belay.Submitted)
		if !is || c.end != promise.OK || len(got) != 1 || got[0].Err != nil || all[0].Idempotency == "" ||
			got[0].ID == all[0].ID {
			continue
		}
		s := f.byID[got[0].ID]
		if s == nil {
			continue // G3 reports it
		}
		f.Count("content replayed")
		f.OK()
		if s.last().State == belay.Failed {
			f.Count("content of an execution that failed later replayed")
		}
		held := slices.ContainsFunc(holders[machine.Key{Workflow: all[0].Workflow, Key: s.specs[0].Key}],
			func(h *holding) bool { return h.story == s && h.answeredDuring(c) })
		if !held {
			f.violation(s, nil, "%s submitted its content between %s and %s and was answered with it, which was %s",
				c.actor, c.from, c.to, s.stateAt(c.to))
		}
	}
}

// answeredDuring reports whether the content led to the execution, and the execution answered, at some
// moment of a call.
func (h *holding) answeredDuring(c *call) bool {
	for i, r := range h.rows {
		until := c.to
		if i+1 < len(h.rows) {
			until = h.rows[i+1].c.real
		}
		if h.next != nil {
			until = min(until, h.next.real)
		}
		if r.answers() && r.c.real <= c.to && until >= c.from {
			return true
		}
	}
	return false
}

// stateAt is the state of the execution at a moment.
func (s *story) stateAt(at time.Duration) belay.State {
	state := belay.State(0)
	for _, r := range s.rows {
		if r.c.real <= at {
			state = r.State
		}
	}
	return state
}
