package trigger

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a database of time zones

	"github.com/netresearch/go-cron"

	"github.com/belaydev/belay"
)

const (
	// maxCron is the largest length of a cron expression, in bytes.
	maxCron = 200
	// leastEvery and mostEvery limit Schedule.Every.
	leastEvery, mostEvery = time.Second, 10 * 366 * 24 * time.Hour
	// searchYears is how far ahead a slot is searched: 29 February may be eight years away.
	searchYears = 12
	// maxSegments limits the periods between changes of the clocks that a search for a slot passes.
	maxSegments = 4 * searchYears
)

// latest is the end of the times that Belay stores.
var latest = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Times are the times of one schedule.
type Times struct {
	name   string
	jitter time.Duration

	every, offset time.Duration

	cron *cron.SpecSchedule // in UTC, for the fields of the wall clock; nil with every
	zone *time.Location
	// flows says that the hour is *, so that slots follow the time that really passes.
	flows bool
}

// parser reads cron expressions. Like the cron of Unix, an expression with a day of the month and a day of the week
// means the days that are either.
var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.Descriptor | cron.DowOrDom | cron.Extended).WithMaxSearchYears(searchYears)

// Parse reads the times of a schedule. It returns CodeInvalid if they are wrong, or if there is no such time.
func Parse(s *belay.Schedule) (t *Times, err error) {
	const ms = time.Millisecond
	t = &Times{name: s.Name, jitter: s.Jitter.D(), every: s.Every.D(), offset: s.Offset.D(), zone: time.UTC}
	switch {
	case s.Cron == "" && s.Every == 0:
		return nil, invalid(`the schedule has no times: set cron, as in "0 2 * * *", or every, as in "15m"`)
	case s.Cron != "" && s.Every != 0:
		return nil, invalid("cron and every exclude each other; set one")
	case s.Jitter < 0:
		return nil, invalid("the jitter is negative")
	case t.jitter%ms+t.every%ms+t.offset%ms+s.CatchUp.D()%ms != 0:
		return nil, invalid("every, offset, jitter and catch_up are whole milliseconds")
	case s.Cron == "":
		err = t.checkEvery(s)
	default:
		err = t.parseCron(s)
	}
	return t, err
}

func (t *Times) checkEvery(s *belay.Schedule) error {
	switch {
	case t.every < leastEvery || t.every > mostEvery:
		return invalid("every is %s; it can be from %s to ten years", t.every, leastEvery)
	case t.offset < 0 || t.offset >= t.every:
		return invalid("the offset is %s; it can be from 0 to less than every, which is %s", t.offset, t.every)
	case s.TimeZone != "":
		return invalid("time_zone is for cron; every counts the time that really passes")
	}
	return nil
}

func (t *Times) parseCron(s *belay.Schedule) error {
	switch text := s.Cron; {
	case s.Offset != 0:
		return invalid("offset is for every; change the fields of cron instead")
	case len(text) > maxCron:
		return invalid("the cron expression has %d bytes; the limit is %d", len(text), maxCron)
	case strings.Contains(text, "="):
		return invalid("the cron expression names a time zone; set time_zone instead")
	case strings.HasPrefix(strings.TrimSpace(text), "@every"):
		return invalid(`write every: "15m" instead of @every`)
	}
	parsed, err := parser.Parse(s.Cron)
	if err != nil {
		return invalid("the cron expression %q: %s", s.Cron, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return invalid("the cron expression %q is not supported", s.Cron)
	}
	spec.Location = time.UTC
	t.cron, t.flows = spec, spec.Hour&allHours == allHours
	if s.TimeZone != "" {
		if s.TimeZone == "Local" {
			return invalid("time_zone is Local, which servers may understand differently; name it, as in Europe/Berlin")
		}
		if t.zone, err = time.LoadLocation(s.TimeZone); err != nil {
			return invalid("there is no time zone %q; names are as in Europe/Berlin", s.TimeZone)
		}
	}
	if t.cron.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return invalid("the cron expression %q names no day that exists", s.Cron)
	}
	return nil
}

const allHours = 1<<24 - 1

func invalid(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeInvalid, Op: "schedule", Message: fmt.Sprintf(format, args...)}
}

// Next returns the first slot after a time. It reports false if there is none.
func (t *Times) Next(after time.Time) (slot time.Time, ok bool) {
	if after = after.UTC(); !after.Before(latest) {
		return slot, false
	}
	switch {
	case t.cron == nil:
		slot = t.multiple(after)
	case t.flows:
		slot = t.flowing(after)
	default:
		slot = t.fixed(after)
	}
	return slot, !slot.IsZero() && slot.Before(latest)
}

// Delay returns the jitter of a slot. It is shorter than the time to the next slot.
func (t *Times) Delay(slot time.Time) time.Duration {
	if t.jitter == 0 {
		return 0
	}
	most := t.jitter
	if next, ok := t.Next(slot); ok {
		most = min(most, next.Sub(slot))
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\x00%d", t.name, slot.UnixMicro())
	return time.Duration(h.Sum64() % uint64(most)).Truncate(time.Microsecond)
}

// multiple is the next multiple of every.
func (t *Times) multiple(after time.Time) time.Time {
	ms, every, offset := after.UnixMilli(), t.every.Milliseconds(), t.offset.Milliseconds()
	n := (ms - offset) / every
	if (ms-offset)%every < 0 {
		n--
	}
	return time.UnixMilli((n+1)*every + offset).UTC()
}

// flowing finds the next slot in each of the periods between changes of the clocks: within a period the wall
// clock differs from UTC by a constant offset.
func (t *Times) flowing(after time.Time) time.Time {
	in := after.In(t.zone)
	for range maxSegments {
		_, seconds := in.Zone()
		offset := time.Duration(seconds) * time.Second
		wall := t.cron.Next(after.Add(offset))
		if wall.IsZero() {
			return wall
		}
		slot := wall.Add(-offset)
		_, end := in.ZoneBounds()
		if end.IsZero() || slot.Before(end) {
			return slot
		}
		in, after = end, end.UTC().Add(-1)
	}
	return time.Time{}
}

// fixed finds the next time of the wall clock, and when that is. In a repeated hour the wall clock shows times
// again that are over; they are passed.
func (t *Times) fixed(after time.Time) time.Time {
	wall := wallClock(after.In(t.zone))
	for {
		if wall = t.cron.Next(wall); wall.IsZero() {
			return wall
		}
		if slot := first(wall, t.zone); slot.After(after) {
			return slot
		}
	}
}

// wallClock is a time in UTC with the date and the time of day that t shows.
func wallClock(t time.Time) time.Time {
	_, seconds := t.Zone()
	return t.UTC().Add(time.Duration(seconds) * time.Second)
}

// first returns the first moment at which the wall clock in a zone shows a time, or the end of the gap if it never
// shows that time.
func first(wall time.Time, zone *time.Location) time.Time {
	near := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	start, end := near.ZoneBounds()
	var found time.Time
	try := func(in time.Time) { // with the offset that holds at a moment
		_, seconds := in.In(zone).Zone()
		moment := wall.Add(-time.Duration(seconds) * time.Second)
		if wallClock(moment.In(zone)).Equal(wall) && (found.IsZero() || moment.Before(found)) {
			found = moment
		}
	}
	try(near)
	if !start.IsZero() {
		try(start.Add(-1))
	}
	if !end.IsZero() {
		try(end)
	}
	switch {
	case !found.IsZero():
		return found
	case wallClock(near).After(wall):
		return start.UTC()
	}
	return end.UTC()
}
