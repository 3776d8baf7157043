package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/trigger"
	"github.com/belaydev/belay/internal/wire"
)

func (a *app) schedulesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "schedules", Short: "Start executions at regular times", Args: none,
		Long: `Start executions at regular times: by a cron expression in a time zone, or after a fixed
time. Each slot (time of a schedule) starts once, however many servers run and however
often they restart.

  belay schedules set nightly --cron "0 2 * * *" --time-zone Europe/Berlin --document nightly
  belay schedules set poll --every 15m http --input '{"url": "https://api.example.org/v1/items"}'
  belay schedules ls                       list the schedules with their next slots
  belay schedules get nightly              the next ten slots, and the results of the newest
  belay schedules next --cron "0 2 * * 1-5" --time-zone America/New_York
                                           when an expression would start something
  belay schedules pause nightly            start nothing until belay schedules resume
  belay schedules run nightly              start one execution now
  belay schedules backfill nightly --from 2026-11-20T00:00:00Z
                                           start the slots of the past that were not started

belay ls --label schedule=nightly lists the executions of a schedule.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.setScheduleCommand(), a.schedulesLsCommand(), a.schedulesGetCommand(), a.nextCommand(),
		a.pauseScheduleCommand(), a.resumeScheduleCommand(), a.removeScheduleCommand(), a.runScheduleCommand(),
		a.backfillCommand())
	return c
}

// completeSchedules offers the names of schedules to the shell.
func (a *app) completeSchedules() cobra.CompletionFunc {
	return a.completeNamed(func(ctx context.Context, r reader) (names []string, err error) {
		page, err := r.Schedules(ctx, belay.ScheduleFilter{Limit: 100})
		for i := range page.Schedules {
			names = append(names, page.Schedules[i].Name+"\t"+timesOf(&page.Schedules[i].Schedule))
		}
		return names, err
	})
}

func (a *app) schedulesLsCommand() *cobra.Command {
	return a.listCommand("schedules", `List the schedules with their next slot and the outcome of the newest one: started, skipped
(an earlier execution had not ended), missed (no server was running), failed (the
submission was refused) or done (it had been started before).`, a.listSchedules)
}

func (a *app) listSchedules(ctx context.Context, r reader, limit int) error {
	all, err := upTo(a, limit, func(cursor string, most int) ([]belay.ScheduleInfo, string, error) {
		page, err := r.Schedules(ctx, belay.ScheduleFilter{Cursor: cursor, Limit: most})
		return page.Schedules, page.Next, err
	})
	if err != nil {
		return err
	}
	defer a.noteNoSlots(all...)
	if a.output == "json" {
		return screen.PrintJSON(a.out, wired(all, wire.ScheduleOf))
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no schedules; belay schedules set makes one")
		return nil
	}
	t := screen.NewTable(a.out, "NAME", "TIMES", "STARTS", "NEXT", "NEWEST", "OVERLAP", "DEFINED BY")
	for i := range all {
		s := &all[i]
		t.Row(s.Name, timesOf(&s.Schedule), startsOf(&s.Execution), nextOf(s), newestOf(s), string(s.Overlap),
			dash(s.DefinedBy))
	}
	return t.Flush()
}

// noteNoSlots prints a note if no engine runs that could start the slots of a schedule.
func (a *app) noteNoSlots(list ...belay.ScheduleInfo) {
	if !slices.ContainsFunc(list, func(s belay.ScheduleInfo) bool { return s.Paused == nil }) {
		return
	}
	if idle := a.noEngine(); idle != "" {
		fmt.Fprintf(a.err, "belay: %s: no slot starts until an engine runs, such as belay serve\n", idle)
	}
}

// timesOf are the times of a schedule in a few words.
func timesOf(s *belay.Schedule) string {
	text := "every " + s.Every.D().String()
	if s.Cron != "" {
		text = s.Cron
		if s.TimeZone != "" {
			text += " " + s.TimeZone
		}
	}
	if s.Offset > 0 {
		text += " + " + s.Offset.D().String()
	}
	return text
}

// startsOf names the workflow or document that a schedule or a webhook starts.
func startsOf(s *belay.Submission) string {
	if s.Document != "" {
		return s.Document
	}
	return s.Workflow
}

func nextOf(s *belay.ScheduleInfo) string {
	switch {
	case s.Paused != nil:
		return "paused"
	case s.NextAt.IsZero():
		return "never"
	}
	return "in " + screen.Short(max(0, time.Until(s.NextAt)))
}

func newestOf(s *belay.ScheduleInfo) string {
	if len(s.Recent) == 0 {
		return "-"
	}
	return string(s.Recent[0].Outcome) + " " + since(s.Recent[0].At) + " ago"
}

func (a *app) schedulesGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get NAME", Short: "Show a schedule, its next ten slots and its newest ones",
		Args: exactly("the name of a schedule"), ValidArgsFunction: a.completeSchedules(),
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(r reader) error {
				s, err := r.Schedule(c.Context(), args[0])
				if err != nil {
					return err
				}
				defer a.noteNoSlots(s)
				return a.printSchedule(&s)
			})
		},
	}
	return a.readFlag(c)
}

func (a *app) printSchedule(s *belay.ScheduleInfo) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, wire.ScheduleOf(s))
	}
	line := func(name, text string) { fmt.Fprintf(a.out, "%-10s %s\n", name, screen.Line(text)) }
	line("schedule", s.Name)
	line("times", timesOf(&s.Schedule))
	if s.Jitter > 0 {
		line("jitter", "up to "+s.Jitter.D().String())
	}
	line("starts", startsOf(&s.Execution))
	if len(s.Execution.Input) > 0 {
		line("input", screen.Brief(string(s.Execution.Input), 100))
	}
	line("overlap", string(s.Overlap))
	line("catch-up", s.CatchUp.D().String())
	definedBy(line, s.DefinedBy)
	line("version", fmt.Sprintf("%d, changed %s ago%s", s.Version, since(s.UpdatedAt), by(s.UpdatedBy)))
	if p := s.Paused; p != nil {
		line("paused", done(since(p.At)+" ago", p.By, p.Reason))
	}
	if counts := countsOf(s.Slots, belay.SlotStarted, belay.SlotSkipped, belay.SlotMissed, belay.SlotFailed,
		belay.SlotDone); counts != "" {
		line("slots", counts)
	}
	a.printTimes(s.Next, s.TimeZone)
	return a.printSlots(s.Recent)
}

// definedBy prints the document that defines a schedule or webhook.
func definedBy(line func(name, text string), document string) {
	if document != "" {
		line("defined by", "the document "+document)
	}
}

func by(actor string) string {
	if actor == "" {
		return ""
	}
	return " by " + actor
}

// printTimes prints slots in the time zone of their schedule.
func (a *app) printTimes(slots []time.Time, zone string) {
	if len(slots) == 0 {
		return
	}
	in, err := time.LoadLocation(zone)
	if err != nil {
		in = time.UTC
	}
	fmt.Fprintln(a.out, "\nNEXT")
	for _, t := range slots {
		when := "in " + screen.Short(time.Until(t))
		if time.Until(t) < 0 {
			when = since(t) + " ago"
		}
		fmt.Fprintf(a.out, "%s  %s\n", t.In(in).Format("Mon 2006-01-02 15:04:05 MST"), when)
	}
}

// printSlots prints slots whose times have come.
func (a *app) printSlots(slots []belay.ScheduleSlot) error {
	if len(slots) == 0 {
		return nil
	}
	fmt.Fprintln(a.out)
	t := screen.NewTable(a.out, "SLOT", "OUTCOME", "EXECUTION", "ABOUT")
	for i := range slots {
		s := &slots[i]
		outcome := string(s.Outcome)
		if s.Count > 1 {
			outcome += fmt.Sprintf(" (%d)", s.Count)
		}
		about := strings.TrimSpace(s.By + " " + s.Text)
		if late := s.At.Sub(s.Slot); s.By == "" && s.Outcome == belay.SlotStarted && late > time.Minute {
			about = strings.TrimSpace(screen.Short(late) + " late " + about)
		}
		t.Row(s.Slot.UTC().Format("2006-01-02 15:04:05Z"), outcome, idOrDash(s.Execution), dash(about))
	}
	return t.Flush()
}

func (a *app) nextCommand() *cobra.Command {
	var f timesFlags
	n, after := 10, ""
	c := &cobra.Command{
		Use: "next", Short: "Show when an expression would start something", Args: none,
		Long: `Show the next slots of a cron expression or an interval, without a schedule.

  belay schedules next --cron "30 2 * * *" --time-zone Europe/Berlin --after 2026-03-28T00:00:00Z

A fixed time that a change of the clocks skips starts when the skipped hour is over; a
fixed time that occurs twice starts once, at the first. If the hour is *, slots follow the
time that really passes.`,
		RunE: func(*cobra.Command, []string) error {
			s := f.schedule("next")
			times, err := trigger.Parse(&s)
			if err != nil {
				return err
			}
			at, err := moment("after", after, time.Now())
			switch {
			case err != nil:
				return err
			case n < 1 || n > 1000:
				return usage("--count is %d; it can be from 1 to 1000", n)
			case at.IsZero():
				at = time.Now()
			}
			slots := []time.Time{}
			for range n {
				next, ok := times.Next(at)
				if !ok {
					break
				}
				at = next
				slots = append(slots, at)
			}
			if a.output == "json" {
				return screen.PrintJSON(a.out, slots)
			}
			a.printTimes(slots, s.TimeZone)
			return nil
		},
	}
	f.register(c)
	c.Flags().IntVarP(&n, "count", "n", n, "the number of slots to show")
	c.Flags().StringVar(&after, "after", "", "show the slots after this `time`, like 2026-11-20T08:00:00Z")
	return c
}
