package trigger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// slots lists the slots after a time, in the zone of the schedule.
func slots(t *testing.T, s belay.Schedule, after string, n int) (all []string) {
	t.Helper()
	times, err := Parse(&s)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, after)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		next, ok := times.Next(at)
		if !ok {
			return append(all, "none")
		}
		if !next.After(at) {
			t.Fatalf("%s is not after %s", next, at)
		}
		at = next
		all = append(all, next.In(times.zone).Format("2006-01-02T15:04:05Z07:00"))
	}
	return all
}

// The rule about changes of the clocks, in three zones and in both directions: Berlin sets its clocks at 02:00 and
// 03:00, New York at 02:00, and Lord Howe Island by half an hour.
func TestChangesOfTheClocks(t *testing.T) {
	for _, c := range []struct{ zone, cron, after, want string }{
		// clocks go forwards: a missing fixed time starts when the gap is over
		{"Europe/Berlin", "30 2 * * *", "2026-03-28T02:00:00Z",
			"2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"Europe/Berlin", "0,30 2,3 29 3 *", "2026-03-28T12:00:00Z",
			"2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00"},
		{"America/New_York", "15 2 * * *", "2026-03-07T12:00:00Z",
			"2026-03-08T03:00:00-04:00 2026-03-09T02:15:00-04:00"},
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00:00Z",
			"2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		// and slots of every hour are as far apart as the time that passes
		{"Europe/Berlin", "30 * * * *", "2026-03-29T00:00:00Z",
			"2026-03-29T01:30:00+01:00 2026-03-29T03:30:00+02:00"},
		{"America/New_York", "*/30 * * * *", "2026-03-08T06:10:00Z",
			"2026-03-08T01:30:00-05:00 2026-03-08T03:00:00-04:00"},
		{"Australia/Lord_Howe", "0 * * * *", "2026-10-03T14:40:00Z",
			"2026-10-04T03:00:00+11:00 2026-10-04T04:00:00+11:00"},
		// clocks go back: a repeated fixed time starts once, at the first
		{"Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z",
			"2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"Europe/Berlin", "30 2 * * *", "2026-10-25T01:00:00Z",
			"2026-10-26T02:30:00+01:00 2026-10-27T02:30:00+01:00"},
		{"America/New_York", "15 1 * * *", "2026-10-31T12:00:00Z",
			"2026-11-01T01:15:00-04:00 2026-11-02T01:15:00-05:00"},
		{"Australia/Lord_Howe", "45 1 * * *", "2026-04-04T00:00:00Z",
			"2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		// and slots of every hour start in both hours
		{"Europe/Berlin", "30 * * * *", "2026-10-25T00:00:00Z",
			"2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 " +
				"2026-10-25T03:30:00+01:00"},
		{"America/New_York", "30 * * * *", "2026-11-01T05:00:00Z",
			"2026-11-01T01:30:00-04:00 2026-11-01T01:30:00-05:00 " +
				"2026-11-01T02:30:00-05:00"},
		{"Australia/Lord_Howe", "45 * * * *", "2026-04-04T14:00:00Z",
			"2026-04-05T01:45:00+11:00 2026-04-05T01:45:00+10:30 " +
				"2026-04-05T02:45:00+10:30"},
		// Samoa had no 30 December 2011
		{"Pacific/Apia", "0 12 * * *", "2011-12-29T00:00:00Z",
			"2011-12-29T12:00:00-10:00 2011-12-31T00:00:00+14:00 " +
				"2011-12-31T12:00:00+14:00"},
		// and without a change nothing is special
		{"", "0 2 * * 1-5", "2026-11-26T00:00:00Z",
			"2026-11-26T02:00:00Z 2026-11-27T02:00:00Z " +
				"2026-11-30T02:00:00Z"},
	} {
		want := strings.Fields(c.want)
		got := slots(t, belay.Schedule{Cron: c.cron, TimeZone: c.zone}, c.after, len(want))
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s in %s after %s:\ngot  %s\nwant %s", c.cron, c.zone, c.after, strings.Join(got, " "), c.want)
		}
	}
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		s    belay.Schedule
		want string
	}{
		{belay.Schedule{Cron: "@daily"}, "2026-11-27T00:00:00Z 2026-11-28T00:00:00Z"},
		{belay.Schedule{Cron: "*/10 * * * * *"}, "2026-11-26T10:00:10Z 2026-11-26T10:00:20Z"},
		{belay.Schedule{Cron: "0 0 29 2 *"}, "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		{belay.Schedule{Cron: "0 9 L * *"}, "2026-11-30T09:00:00Z 2026-12-31T09:00:00Z"},
		{belay.Schedule{Cron: "0 9 * * FRI#1"}, "2026-12-04T09:00:00Z 2027-01-01T09:00:00Z"},
		// the 13th and every Friday, as cron understands it
		{belay.Schedule{Cron: "0 0 13 * 5"}, "2026-11-27T00:00:00Z 2026-12-04T00:00:00Z"},
		{belay.Schedule{Every: dur("15m")}, "2026-11-26T10:15:00Z 2026-11-26T10:30:00Z"},
		{belay.Schedule{Every: dur("24h"), Offset: dur("2h")}, "2026-11-27T02:00:00Z 2026-11-28T02:00:00Z"},
		{belay.Schedule{Every: dur("7s")}, "2026-11-26T10:00:01Z 2026-11-26T10:00:08Z"},
	} {
		if got := strings.Join(slots(t, c.s, "2026-11-26T10:00:00Z", 2), " "); got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.s, got, c.want)
		}
	}
}

func dur(s string) belay.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return belay.Duration(d)
}

func TestWrongTimes(t *testing.T) {
	for _, c := range []struct {
		s    belay.Schedule
		says string
	}{
		{belay.Schedule{}, "set cron"},
		{belay.Schedule{Cron: "* * * * *", Every: dur("1m")}, "exclude"},
		{belay.Schedule{Cron: "* * *"}, "expected"},
		{belay.Schedule{Cron: "61 * * * *"}, "61"},
		{belay.Schedule{Cron: "0 0 30 2 *"}, "no day that exists"},
		{belay.Schedule{Cron: "TZ=UTC 0 0 1 1 *"}, "time_zone"},
		{belay.Schedule{Cron: "TZ=0"}, "time_zone"},
		{belay.Schedule{Cron: "@every 1s"}, "every"},
		{belay.Schedule{Cron: "@reboot"}, "@reboot"},
		{belay.Schedule{Cron: strings.Repeat("1,", 200) + " * * * *"}, "limit"},
		{belay.Schedule{Cron: "@daily", TimeZone: "Mars/Base"}, "no time zone"},
		{belay.Schedule{Cron: "@daily", TimeZone: "Local"}, "Local"},
		{belay.Schedule{Cron: "@daily", TimeZone: "../../etc/passwd"}, "no time zone"},
		{belay.Schedule{Cron: "@daily", Offset: dur("1m")}, "offset"},
		{belay.Schedule{Every: dur("10ms")}, "every is 10ms"},
		{belay.Schedule{Every: dur("1m"), Offset: dur("1m")}, "offset is 1m"},
		{belay.Schedule{Every: dur("1m"), TimeZone: "UTC"}, "time_zone"},
		{belay.Schedule{Every: -dur("1m")}, "every is"},
		{belay.Schedule{Every: dur("1m"), Jitter: -1}, "negative"},
	} {
		if _, err := Parse(&c.s); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want an error that says %q", c.s, err, c.says)
		}
	}
}

// The jitter depends on the name and the slot only, and slots keep their order.
func TestJitter(t *testing.T) {
	s := belay.Schedule{Name: "a", Every: dur("1m"), Jitter: dur("1h")}
	one, err := Parse(&s)
	if err != nil {
		t.Fatal(err)
	}
	s.Name = "b"
	other, err := Parse(&s)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	differ, distinct := 0, make(map[time.Duration]bool)
	for range 100 {
		at, _ = one.Next(at)
		d := one.Delay(at)
		if d < 0 || d >= time.Minute || d != one.Delay(at) {
			t.Fatalf("%s: the jitter is %s", at, d)
		}
		distinct[d] = true
		if d != other.Delay(at) {
			differ++
		}
	}
	if differ < 90 || len(distinct) < 90 {
		t.Errorf("%d of 100 differ between the names, and %d between the slots", differ, len(distinct))
	}
}

// A search ends for every schedule that Parse accepts, and its slots increase.
func FuzzTimes(f *testing.F) {
	for _, s := range []string{
		"* * * * *", "*/5 1-3 * * MON#2", "0 0 29 2 6", "@weekly", "0 0 31 * *", "59 23 LW * *",
	} {
		f.Add(s, "Europe/Berlin", int64(1_750_000_000), int64(0))
		f.Add(s, "", int64(-62_000_000_000), int64(0))
	}
	f.Add("", "", int64(1_750_000_000), int64(time.Hour))
	f.Fuzz(func(t *testing.T, text, zone string, unix, every int64) {
		times, err := Parse(&belay.Schedule{Name: "f", Cron: text, TimeZone: zone, Every: belay.Duration(every)})
		if err != nil {
			return
		}
		at := time.Unix(unix%(1<<38), 0)
		for range 5 {
			next, ok := times.Next(at)
			if !ok {
				return
			}
			if !next.After(at) {
				t.Fatal(fmt.Sprint(next, " is not after ", at))
			}
			if d := times.Delay(next); d < 0 {
				t.Fatal("the jitter is negative")
			}
			at = next
		}
	})
}
