package machine

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// AlertsObject is the kind of the one object that says which alerts were raised. The engine looks for dead letters,
// open circuit breakers and lanes without a worker, and RaiseAlerts compares what it found with the object. So an alert
// is raised once, however many servers look, and several that arise together are one delivery.
const AlertsObject ObjectKind = "alerts"

var alertsCodec = codec[alertsBody]{AlertsObject}

// AlertsRef is the name of the object of the alerts.
func AlertsRef() ObjectRef { return alertsCodec.ref("all") }

const (
	// alertLook is when the engine looks for alerts again although nothing has asked it to.
	alertLook = 15 * time.Second
	// firstLook is when the engine looks after a change of the targets.
	firstLook = time.Second
	// letterOverlap is how long before the previous look a dead letter may have been written that the look did not
	// see yet, because its transaction was not committed.
	letterOverlap = 30 * time.Second
	// maxAlertMemory is how many dead letters, circuit breakers and lanes the object remembers.
	maxAlertMemory = 500
	// maxAlertMessage is the largest size of the message of a dead letter in an alert, in bytes.
	maxAlertMessage = 200
)

// alertsBody is the body of the object of the alerts. A part that no target wants is empty.
type alertsBody struct {
	// LettersFrom is the time from which dead letters are new, except those in Letters; 0 while no target wants them.
	LettersFrom Time        `json:"letters_from,omitzero"`
	Letters     []LetterRef `json:"letters,omitempty"`
	// Breakers are the targets whose circuit breakers were open at the last look.
	Breakers []string `json:"breakers,omitempty"`
	// Lanes are the lanes that had no worker at the last look.
	Lanes map[LaneID]unstaffed `json:"lanes,omitempty"`
	// RaisedAt is when the newest alert was sent.
	RaisedAt Time `json:"raised_at,omitzero"`
}

// unstaffed is the state of a lane without a worker.
type unstaffed struct {
	Since   Time `json:"since"` // of the look that found it first
	Alerted bool `json:"alerted,omitempty"`
}

// AlertState says what a look for alerts must know of the previous one.
type AlertState struct {
	Version     int64 // of the object
	LettersFrom Time  // dead letters from this time on are to be found
	RaisedAt    Time  // when the newest alert was sent; 0 for never
}

// AlertStateOf decodes the object of the alerts.
func AlertStateOf(o *Object) (AlertState, error) {
	b, err := alertsCodec.decode(o)
	if err != nil {
		return AlertState{}, err
	}
	return AlertState{o.Version, b.LettersFrom, b.RaisedAt}, nil
}

// watchAlerts makes the engine look for the alerts that targets want, or stop looking if there are none.
func (w *world) watchAlerts(t *Targets) error {
	var b alertsBody
	if o := w.object(AlertsRef()); o != nil {
		was, err := alertsCodec.decode(o)
		if err != nil {
			return err
		}
		b = *was
	} else if !slices.ContainsFunc(belay.Alerts, t.Wants) {
		return nil
	}
	return w.writeAlerts(&b, t, w.Now.Add(firstLook))
}

// writeAlerts writes the object of the alerts without the parts that no target wants. next is the time of the next
// look.
func (w *world) writeAlerts(b *alertsBody, t *Targets, next Time) error {
	switch wants := t.Wants(belay.AlertDeadLetter); {
	case !wants:
		b.LettersFrom, b.Letters = 0, nil
	case b.LettersFrom == 0:
		b.LettersFrom = w.Now
	}
	if !t.Wants(belay.AlertBreakerOpen) {
		b.Breakers = nil
	}
	if !t.Wants(belay.AlertNoWorker) {
		b.Lanes = nil
	}
	if !slices.ContainsFunc(belay.Alerts, t.Wants) {
		next, b.RaisedAt = 0, 0
	}
	body, err := alertsCodec.encode(b)
	if err != nil {
		return err
	}
	o := w.rewrite(AlertsRef())
	o.Version, o.NextAt, o.UpdatedAt, o.Body = o.Version+1, next, w.Now, body
	return nil
}

// RaiseAlerts compares what a look for alerts has found with what was known before, and sends what is new. The rules
// refuse it if another look, or a change of the targets, has come in between.
type RaiseAlerts struct {
	Version int64 // of the object of the alerts, read before everything else
	// Letters are the dead letters since AlertState.LettersFrom that a target may want, the newest first, as they
	// were at LettersAt. MoreLetters says that there are more.
	Letters     []belay.AlertLetter
	LettersAt   Time
	MoreLetters bool
	// Breakers are all circuit breakers that have opened and not closed since, except those that an operator has
	// forced and those of deliveries.
	Breakers []belay.AlertBreaker
	// Lanes are all lanes with due executions that no connected worker can take.
	Lanes []UnstaffedLane
}

// UnstaffedLane is a lane that no connected worker can take.
type UnstaffedLane struct {
	ID LaneID
	belay.AlertLane
}

// Need asks the store for the targets, and for the state of the alerts.
func (c *RaiseAlerts) Need(n *Need) { n.Objects = append(n.Objects, TargetsRef(), AlertsRef()) }

func (c *RaiseAlerts) apply(w *world) (Reply, error) {
	const op = "raise alerts"
	o := w.object(AlertsRef())
	if o == nil || o.Version != c.Version {
		return Reply{}, refuse(belay.CodeConflict, op, "another look for alerts has come in between")
	}
	b, err := alertsCodec.decode(o)
	if err != nil {
		return Reply{}, err
	}
	t, err := w.targets()
	if err != nil {
		return Reply{}, err
	}
	r := raising{
		w: w, targets: &Targets{t.body.Targets}, next: w.Now.Add(alertLook),
		at: alertTime(w.Now, c.Version),
	}
	r.letters(b, c)
	r.breakers(b, c)
	r.lanes(b, c)
	if r.sent > 0 {
		b.RaisedAt = w.Now
	}
	return Reply{Alerts: r.sent, Refused: r.refused}, w.writeAlerts(b, r.targets, r.next)
}

// alertTime is the id of an occurrence of alerts: the time, and the version of the object of the alerts.
func alertTime(now Time, version int64) (id belay.ExecutionID) {
	binary.BigEndian.PutUint64(id[:], uint64(now.Time().UnixMilli())<<16)
	binary.BigEndian.PutUint64(id[8:], uint64(version))
	return id
}

// raising sends the alerts of one look.
type raising struct {
	w       *world
	targets *Targets
	at      belay.ExecutionID // the occurrence
	next    Time              // when to look again
	sent    int
	refused int // alerts whose delivery was refused
}

// letters sends the dead letters that are new.
func (r *raising) letters(b *alertsBody, c *RaiseAlerts) {
	if b.LettersFrom == 0 {
		return
	}
	var fresh []belay.AlertLetter
	seen := make(map[LetterRef]bool, len(b.Letters))
	for _, ref := range b.Letters {
		seen[ref] = true
	}
	keep := make([]LetterRef, 0, min(len(c.Letters), maxAlertMemory))
	from := max(b.LettersFrom, min(r.w.Now, c.LettersAt).Add(-letterOverlap))
	for _, l := range c.Letters {
		ref, at := LetterRef{l.Execution, l.Generation}, At(l.At)
		if at < b.LettersFrom || belay.IsNotificationID(l.Execution) {
			continue
		}
		if !seen[ref] {
			l.Message = clip(l.Message, maxAlertMessage)
			fresh = append(fresh, l)
		}
		switch {
		case at < from:
		case len(keep) == maxAlertMemory: // what is not newer counts as seen
			from = at + 1
		default:
			keep = append(keep, ref)
		}
	}
	b.LettersFrom, b.Letters = from, keep
	r.raise(belay.AlertDeadLetter, func(t *belay.NotificationTarget) belay.AlertData {
		mine := selected(fresh, func(l *belay.AlertLetter) bool { return matchesAny(t.Workflows, l.Workflow) })
		d := belay.AlertData{Count: len(mine), DeadLetters: mine[:min(len(mine), belay.MaxAlertItems)]}
		names := make([]string, len(mine))
		for i := range mine {
			names[i] = mine[i].Workflow
		}
		more := ""
		if c.MoreLetters {
			more = "more than "
			d.Count = max(1, len(mine)) // some of the others may be for this target
		}
		d.Text = fmt.Sprintf("%s%s arrived: %s; `belay dead ls` lists them", more, plural(len(mine), "dead letter"),
			tally(names))
		if len(mine) == 0 {
			d.Text = fmt.Sprintf("more than %d dead letters arrived, so that not all could be examined; `belay dead "+
				"ls` lists them", len(c.Letters))
		}
		return d
	})
}

// breakers sends the circuit breakers that have opened since the last look.
func (r *raising) breakers(b *alertsBody, c *RaiseAlerts) {
	var fresh []belay.AlertBreaker
	open := make([]string, 0, len(c.Breakers))
	for i := range c.Breakers {
		name := c.Breakers[i].Target
		if forDelivery(name) || len(open) == maxAlertMemory {
			continue
		}
		open = append(open, name)
		if !slices.Contains(b.Breakers, name) {
			fresh = append(fresh, c.Breakers[i])
		}
	}
	b.Breakers = open
	r.raise(belay.AlertBreakerOpen, func(*belay.NotificationTarget) belay.AlertData {
		names := make([]string, len(fresh))
		for i := range fresh {
			names[i] = fresh[i].Target
		}
		return belay.AlertData{
			Count: len(fresh), Breakers: fresh[:min(len(fresh), belay.MaxAlertItems)],
			Text: fmt.Sprintf("%s opened: %s; `belay gates ls` shows them", plural(len(fresh), "circuit breaker"), tally(names)),
		}
	})
}

// lanes sends the lanes that have been without a worker for long enough.
func (r *raising) lanes(b *alertsBody, c *RaiseAlerts) {
	var fresh []belay.AlertLane
	now := make(map[LaneID]unstaffed, len(c.Lanes))
	for i := range c.Lanes {
		l := &c.Lanes[i]
		was, known := b.Lanes[l.ID]
		if !known && len(now) == maxAlertMemory {
			continue
		}
		if !known {
			was.Since = r.w.Now
		}
		switch due := was.Since.Add(belay.NoWorkerAlertAfter); {
		case was.Alerted:
		case due <= r.w.Now:
			was.Alerted = true
			fresh = append(fresh, l.AlertLane)
		default:
			r.next = min(r.next, due)
		}
		now[l.ID] = was
	}
	b.Lanes = now
	r.raise(belay.AlertNoWorker, func(t *belay.NotificationTarget) belay.AlertData {
		mine := selected(fresh, func(l *belay.AlertLane) bool {
			return matchesAny(t.Workflows, l.Workflow) && matchesAny(t.Queues, l.Queue)
		})
		names := make([]string, len(mine))
		for i := range mine {
			mine[i] = shortLane(mine[i])
			names[i] = mine[i].Workflow + " in queue " + mine[i].Queue
		}
		d := belay.AlertData{Count: len(mine), Lanes: mine[:min(len(mine), belay.MaxAlertItems)]}
		if len(mine) > 0 {
			d.Text = fmt.Sprintf("no worker for %s; `belay explain %s` says why", tally(names), mine[0].Oldest)
		}
		return d
	})
}

const (
	// maxLaneLabels is the largest number of labels of a lane in an alert, and maxLaneText the largest size of
	// their names and values, and of the names of queues, workflows and versions.
	maxLaneLabels = 5
	maxLaneText   = 60
)

// shortLane bounds the texts of a lane, which submissions choose. Otherwise a lane with large labels could make an
// alert too large to be sent, and the lanes beside it would be silent too.
func shortLane(l belay.AlertLane) belay.AlertLane {
	l.Queue, l.Workflow, l.Version = clip(l.Queue, maxLaneText), clip(l.Workflow, maxLaneText),
		clip(l.Version, maxLaneText)
	labels := l.Labels
	l.Labels = nil
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if len(l.Labels) == maxLaneLabels {
			break
		}
		if l.Labels == nil {
			l.Labels = make(map[string]string, maxLaneLabels)
		}
		l.Labels[clip(name, maxLaneText)] = clip(labels[name], maxLaneText)
	}
	return l
}

// raise sends an alert to each target that wants it. of makes the alert for a target; its Count is 0 if there is
// nothing to say.
func (r *raising) raise(a belay.Alert, of func(*belay.NotificationTarget) belay.AlertData) {
	for i := range r.targets.all {
		t := &r.targets.all[i]
		if !t.gets(a) {
			continue
		}
		d := of(&t.Terms)
		switch {
		case d.Count == 0:
		case r.w.sendAlert(a, &t.Terms, d, r.at, ""):
			r.sent++
		default:
			r.refused++
		}
	}
}

// sendAlert submits the delivery of an alert.
func (w *world) sendAlert(
	a belay.Alert, t *belay.NotificationTarget, d belay.AlertData, at belay.ExecutionID, actor string,
) bool {
	d.Name = t.Name
	return w.deliverNews(&news{
		to: *t, id: belay.AlertNotificationID(a, at, t.Name),
		key:     fmt.Sprintf("alert:%s:%s:%s", a, at, t.Name),
		payload: belay.AlertPayload{Alert: a, Name: t.Name, Count: d.Count},
		event:   belay.AlertEvent{Type: "alert." + string(a), Timestamp: w.Now.Time(), Data: d},
		text:    slackEscape.Replace(d.Text), actor: actor,
	})
}

// selected returns the elements that a function selects.
func selected[T any](all []T, want func(*T) bool) (out []T) {
	for i := range all {
		if want(&all[i]) {
			out = append(out, all[i])
		}
	}
	return out
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// tally names what occurs in a list, and how often: in the order of the first occurrence, ten names at most.
func tally(names []string) string {
	const most = 10
	var order []string
	counts := make(map[string]int, len(names))
	for _, name := range names {
		if counts[name]++; counts[name] == 1 {
			order = append(order, name)
		}
	}
	text := make([]string, 0, most+1)
	for i, name := range order {
		if i == most {
			text = append(text, fmt.Sprintf("and %d more", len(order)-most))
			break
		}
		if name = clip(name, 60); counts[order[i]] > 1 {
			name += fmt.Sprintf(" (%d)", counts[order[i]])
		}
		text = append(text, name)
	}
	return strings.Join(text, ", ")
}

// TestTarget sends a test to a target of notifications.
type TestTarget struct{ belay.NotificationTargetTest }

// id is the id of the delivery, which follows from the operation.
func (c *TestTarget) id() belay.ExecutionID {
	return belay.AlertNotificationID(belay.AlertTest, belay.ExecutionID(c.Op), c.Name)
}

// Need asks the store for the targets, and for the delivery if the command is a repetition.
func (c *TestTarget) Need(n *Need) {
	n.Objects = append(n.Objects, TargetsRef())
	n.Executions = append(n.Executions, c.id())
}

func (c *TestTarget) apply(w *world) (Reply, error) {
	op := "test notification target"
	if err := belay.CheckTargetName(op, c.Name); err != nil {
		return Reply{}, err
	}
	op += " " + c.Name
	if err := checkActor(op, c.Actor, ""); err != nil {
		return Reply{}, err
	}
	if c.Op.IsZero() {
		return Reply{}, refuse(belay.CodeInvalid, op, "a test has an operation id")
	}
	if w.execs[c.id()] != nil {
		return Reply{ID: c.id(), Replayed: true}, nil
	}
	t, err := w.targets()
	if err != nil {
		return Reply{}, err
	}
	i, exists := t.find(c.Name)
	if !exists {
		return Reply{}, noTarget(op, c.Name)
	}
	d := belay.AlertData{Text: "a test of the target " + c.Name}
	if !w.sendAlert(belay.AlertTest, &t.body.Targets[i].Terms, d, belay.ExecutionID(c.Op), c.Actor) {
		return Reply{}, refuse(belay.CodeInternal, op, "the delivery was refused")
	}
	return Reply{ID: c.id()}, nil
}
