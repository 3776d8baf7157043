package webui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const triggersSize = 50 // schedules or webhooks on one page

// triggerPage is the page of the schedules or of the webhooks.
type triggerPage struct {
	Rows  []triggerRow
	Pager pager
}

// triggerRow is a schedule or a webhook.
type triggerRow struct {
	Name, Address string
	When          string // the times of a schedule, or the scheme of a webhook
	Starts        string // the workflow or document that it starts, or the signal that it sends
	DefinedBy     string // the document that defines it; empty if none does
	State         state
	About         []string
	Next          *moment
	Last          *occasion
	Counts        string // how often it did what
}

// occasion is a slot of a schedule, or a delivery of a webhook.
type occasion struct {
	At        *moment
	Outcome   state
	Execution *exLink // nil if there is none
	Result    *state  // of the execution; nil if there is none, or if it was deleted
	Name      string  // the time of the slot, or the id of the delivery
	Text      string
	Offers    []offer
}

// occasions are the newest slots of a schedule, or the newest deliveries of a webhook.
type occasions struct {
	Of   string // "Slot" or "Delivery"
	Rows []occasion
}

// slotTime is the time of a slot: as the time zone of the schedule writes it, and as a moment.
type slotTime struct {
	Text string
	At   *moment
}

// schedulePage is the page of one schedule.
type schedulePage struct {
	Row    triggerRow
	Terms  []term
	Next   []slotTime
	Recent occasions
	Input  *payload
	Offers []offer
}

func (p *pages) schedules(ctx context.Context, r *http.Request) (view, error) {
	q := chosen(r.URL.Query(), "cursor")
	found, err := p.backend.Schedules(ctx, belay.ScheduleFilter{Cursor: q.Get("cursor"), Limit: triggersSize})
	if err != nil {
		return view{}, err
	}
	d, now := triggerPage{Pager: pagerOf("/schedules", q, found.Next)}, p.options.Now()
	for i := range found.Schedules[:min(len(found.Schedules), triggersSize)] {
		d.Rows = append(d.Rows, scheduleRowOf(&found.Schedules[i], now))
	}
	if err := p.results(ctx, d.lasts()...); err != nil {
		return view{}, err
	}
	return view{template: "schedules", Title: "Schedules", Page: d}, nil
}

func scheduleRowOf(s *belay.ScheduleInfo, now time.Time) triggerRow {
	row := triggerRow{
		Name: excerpt(s.Name, maxLine), Address: "/schedules/" + s.Name, When: timesOf(&s.Schedule),
		Starts: startsOf(&s.Execution), DefinedBy: s.DefinedBy, State: state{"active", "good"},
		Next:   when(s.NextAt, now),
		Counts: countsOf(s.Slots, belay.SlotStarted, belay.SlotSkipped, belay.SlotMissed, belay.SlotFailed),
	}
	if len(s.Recent) > 0 {
		o := slotOf(&s.Recent[0], now)
		row.Last = &o
	}
	switch pause := s.Paused; {
	case pause != nil:
		row.State = state{"paused", "paused"}
		row.About = append(row.About, byOperator("for "+short(now.Sub(pause.At)), pause.By, pause.Reason))
	case row.Last != nil && row.Last.Outcome.Word == string(belay.SlotFailed):
		row.State = state{"failing", "bad"}
	case s.NextAt.IsZero():
		row.State = state{"no further slots", ""}
	}
	return row
}

// timesOf describes the times of a schedule.
func timesOf(s *belay.Schedule) string {
	if s.Every > 0 {
		text := "every " + short(s.Every.D())
		if s.Offset > 0 {
			text += ", " + short(s.Offset.D()) + " later"
		}
		return text
	}
	return excerpt(s.Cron, 120) + " in " + excerpt(cmp.Or(s.TimeZone, "UTC"), 60)
}

func startsOf(s *belay.Submission) string { return line(cmp.Or(s.Document, s.Workflow)) }

// slotClasses are the CSS classes of the outcomes of slots and deliveries. An outcome that is not listed is
// neither good nor bad.
var slotClasses = map[string]string{
	"started": "good", "signalled": "good", "failed": "bad", "missed": "bad", "skipped": "hold", "paused": "hold",
}

func slotOf(s *belay.ScheduleSlot, now time.Time) occasion {
	o := occasion{
		At: when(s.At, now), Outcome: state{excerpt(string(s.Outcome), 20), slotClasses[string(s.Outcome)]},
		Name: s.Slot.UTC().Format("2006-01-02 15:04:05 UTC"), Text: line(s.Text), Execution: maybeLink(s.Execution),
	}
	if s.By != "" {
		o.Text = joined("by "+excerpt(s.By, 40), o.Text)
	}
	if s.Count > 1 {
		o.Text = joined(fmt.Sprintf("%d slots", s.Count), o.Text)
	}
	return o
}

// results adds the states of the executions that slots or deliveries have started, with one query for all of them.
func (p *pages) results(ctx context.Context, all ...*occasion) error {
	of := make(map[string][]*occasion)
	var ids []belay.ExecutionID
	for _, o := range all {
		if o == nil || o.Execution == nil {
			continue
		}
		if of[o.Execution.ID] == nil {
			id, err := belay.ParseExecutionID(o.Execution.ID)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		of[o.Execution.ID] = append(of[o.Execution.ID], o)
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := p.backend.Executions(ctx, belay.Filter{IDs: ids, Children: true, Limit: len(ids)})
	for i := range found.Executions {
		e := &found.Executions[i]
		s := stateOf(e)
		for _, o := range of[e.ID.String()] {
			o.Result = &s
		}
	}
	return err
}

// pointers returns the addresses of the slots or deliveries of a page.
func (o *occasions) pointers() []*occasion {
	all := make([]*occasion, len(o.Rows))
	for i := range o.Rows {
		all[i] = &o.Rows[i]
	}
	return all
}

// lasts returns the last slots or deliveries of the rows.
func (d *triggerPage) lasts() []*occasion {
	all := make([]*occasion, len(d.Rows))
	for i := range d.Rows {
		all[i] = d.Rows[i].Last
	}
	return all
}

func maybeLink(id belay.ExecutionID) *exLink {
	if id.IsZero() {
		return nil
	}
	l := linkTo(id, shortID(id))
	return &l
}

// countsOf describes how often each outcome has happened, in a fixed order.
func countsOf[T ~string](n map[T]int64, order ...T) string {
	var all []string
	for _, outcome := range order {
		if n[outcome] > 0 {
			all = append(all, fmt.Sprintf("%d %s", n[outcome], string(outcome)))
		}
	}
	return strings.Join(all, ", ")
}

func (p *pages) schedule(ctx context.Context, r *http.Request) (view, error) {
	if err := belay.CheckScheduleName("schedule", r.PathValue("name")); err != nil {
		return view{}, &belay.Error{Code: belay.CodeNotFound, Message: "No schedule can have this name."}
	}
	s, err := p.backend.Schedule(ctx, r.PathValue("name"))
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	d := schedulePage{Row: scheduleRowOf(&s, now), Input: show(s.Execution.Input), Recent: occasions{Of: "Slot"}}
	d.Terms = []term{
		{Name: "If the last execution still runs", Value: string(cmp.Or(s.Overlap, belay.SkipOverlap))},
		{Name: "Starts late by at most", Value: short(cmp.Or(s.CatchUp, belay.DefaultCatchUp).D())},
	}
	if s.Jitter > 0 {
		d.Terms = append(d.Terms, term{Name: "Jitter", Value: "up to " + short(s.Jitter.D())})
	}
	d.Terms = append(d.Terms, changedTerms(s.Execution.Queue, s.Version, s.UpdatedAt, s.UpdatedBy, now)...)
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		zone = time.UTC // this machine lacks the time zone
	}
	for _, t := range s.Next[:min(len(s.Next), 10)] {
		d.Next = append(d.Next, slotTime{t.In(zone).Format("Mon 2006-01-02 15:04:05 MST"), when(t, now)})
	}
	for i := range s.Recent[:min(len(s.Recent), 10)] {
		d.Recent.Rows = append(d.Recent.Rows, slotOf(&s.Recent[i], now))
	}
	if err := p.results(ctx, d.Recent.pointers()...); err != nil {
		return view{}, err
	}
	pause := "pause"
	if s.Paused != nil {
		pause = "resume"
	}
	names := []string{pause, "run"}
	if s.DefinedBy == "" {
		names = append(names, "remove")
	}
	d.Offers = deedsOn(ctx, ofSchedule, s.Name, names...)
	return view{template: "schedule", Title: "Schedule " + excerpt(s.Name, 60), Page: d}, nil
}

// changedTerms are the terms of schedules and webhooks that do not depend on their kind.
func changedTerms(queue string, version int, at time.Time, by string, now time.Time) []term {
	all := []term{{Name: "Version", Value: fmt.Sprint(version)}}
	if queue != "" {
		all = append(all, term{Name: "Queue", Value: line(queue)})
	}
	if m := when(at, now); m != nil {
		all = append(all, term{Name: "Changed", Time: m})
	}
	if by != "" {
		all = append(all, term{Name: "Changed by", Value: line(by)})
	}
	return slices.Clip(all)
}
