package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/wire"
)

// timesFlags are the flags that describe the times of a schedule.
type timesFlags struct {
	cron, zone                     string
	every, offset, jitter, catchUp time.Duration
	overlap                        string
}

func (f *timesFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.cron, "cron", "",
		"a cron `expression`: minute, hour, day of the month, month, day of the week; with seconds first if it has six "+
			"fields; or @hourly, @daily, @weekly, @monthly, @yearly")
	c.Flags().DurationVar(&f.every, "every", 0, "the time between slots, instead of --cron")
	c.Flags().DurationVar(&f.offset, "offset", 0, "with --every: move the slots by this time")
	c.Flags().StringVar(&f.zone, "time-zone", "", "with --cron: the IANA time `zone`, such as Europe/Berlin; without it, UTC")
}

func (f *timesFlags) schedule(name string) belay.Schedule {
	return belay.Schedule{
		Name: name, Cron: f.cron, Every: belay.Duration(f.every), Offset: belay.Duration(f.offset), TimeZone: f.zone,
		Jitter: belay.Duration(f.jitter), Overlap: belay.ScheduleOverlap(f.overlap), CatchUp: belay.Duration(f.catchUp),
	}
}

// overlapWords are the values of --overlap.
var overlapWords = []string{
	string(belay.SkipOverlap), string(belay.BufferOne), string(belay.BufferAll), string(belay.CancelOther),
	string(belay.AllowAll),
}

func (a *app) setScheduleCommand() *cobra.Command {
	var times timesFlags
	var work submitFlags
	var edit editFlags
	c := &cobra.Command{
		Use:   "set NAME [WORKFLOW] [flags] [-- COMMAND [ARG…]]",
		Short: "Create a schedule, or change it",
		Long: `Create a schedule, or change its times and executions. The command line describes the
whole schedule: a flag that is left out has its default. The next slot is the first one
after now. The executions are described as for belay submit.

  belay schedules set nightly --cron "0 2 * * *" --time-zone Europe/Berlin --document nightly
  belay schedules set poll --every 15m http --input '{"url": "https://api.example.org/v1/items"}'
  belay schedules set backup --cron @daily --jitter 10m command -- /usr/local/bin/backup

--overlap decides about a slot while an earlier execution of the schedule has not ended:
  skip          the slot starts nothing (the default)
  buffer_one    one execution waits for the end of the earlier one
  buffer_all    up to 1,000 executions wait
  cancel_other  the earlier execution is cancelled
  allow_all     they run at the same time`,
		Args: namedFirst("schedule", "nightly --cron @daily --document nightly"),
		RunE: func(c *cobra.Command, args []string) error {
			x, err := work.submission(args[1:], c.ArgsLenAtDash()-1, c.InOrStdin())
			if err != nil {
				return err
			}
			x.ID, x.Actor = belay.ExecutionID{}, ""
			p := belay.SchedulePut{
				Schedule: times.schedule(args[0]), IfVersion: edit.version, IfNew: edit.isNew, Reason: edit.reason,
				Actor: actor(), Op: belay.OpID(embedded.NewID()),
			}
			p.Execution = x
			return a.setSchedule(c, &p)
		},
	}
	times.register(c)
	c.Flags().DurationVar(&times.jitter, "jitter", 0,
		"delay each slot by a part of this time, so that many schedules do not start at the same moment")
	c.Flags().StringVar(&times.overlap, "overlap", "", "the `policy` for slots while an earlier execution has not ended")
	c.Flags().DurationVar(&times.catchUp, "catch-up", 0,
		"how late a slot may start after no server was running; 0 means 1h")
	work.register(a, c)
	edit.register(c, "schedule")
	_ = c.RegisterFlagCompletionFunc("overlap", cobra.FixedCompletions(overlapWords,
		cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) setSchedule(c *cobra.Command, p *belay.SchedulePut) error {
	ctx := named(c)
	b, err := a.backend(ctx, c.CommandPath())
	if err != nil {
		return err
	}
	if a.server == "" {
		x := p.Execution
		if err := checkDocument(ctx, b, &x); err != nil {
			return closing(b, err)
		}
	}
	r, err := b.PutSchedule(ctx, *p)
	switch {
	case err != nil:
	case a.output == "json":
		err = screen.PrintJSON(a.out, wire.ScheduleOf(&r.ScheduleInfo))
	default:
		a.printPut(&r)
	}
	if err = closing(b, err); err == nil {
		a.noteNoSlots(r.ScheduleInfo)
	}
	return err
}

func (a *app) printPut(r *belay.SchedulePutResult) {
	a.printEdited(r.Name, r.Created, r.Changed, r.Version)
	if r.Paused != nil {
		fmt.Fprintf(a.out, "it is paused; belay schedules resume %s continues it\n", r.Name)
	}
	a.printTimes(r.Next[:min(3, len(r.Next))], r.TimeZone)
}

func (a *app) pauseScheduleCommand() *cobra.Command {
	return a.changeScheduleCommand(belay.SchedulePauseAction, "pause NAME", "Pause a schedule",
		`Pause a schedule: slots whose times come are not started, also not later. Executions that
run go on. A backfill can start the slots afterwards.`)
}

func (a *app) resumeScheduleCommand() *cobra.Command {
	return a.changeScheduleCommand(belay.ScheduleResume, "resume NAME", "Resume a schedule",
		`Resume a schedule. Its next slot is the first one after now.`)
}

func (a *app) removeScheduleCommand() *cobra.Command {
	return a.changeScheduleCommand(belay.ScheduleRemove, "rm NAME", "Remove a schedule",
		`Remove a schedule. Executions that it has started go on.`)
}

func (a *app) changeScheduleCommand(action belay.ScheduleAction, use, short, long string) *cobra.Command {
	return a.editCommand(&cobra.Command{Use: use, Short: short, Long: long}, "the name of a schedule",
		a.completeSchedules(), func(ctx context.Context, b belay.Backend, name, reason string) error {
			r, err := b.ChangeSchedule(ctx, belay.ScheduleChange{
				Name: name, Action: action, Reason: reason, Actor: actor(), Op: belay.OpID(embedded.NewID()),
			})
			if err != nil {
				return err
			}
			words := map[belay.ScheduleAction]string{
				belay.SchedulePauseAction: "is paused", belay.ScheduleResume: "is resumed",
				belay.ScheduleRemove: "is removed",
			}
			if a.output == "json" {
				return screen.PrintJSON(a.out, wire.ScheduleOf(&r.Schedule))
			}
			fmt.Fprintf(a.out, "%s %s\n", name, words[action])
			a.printTimes(r.Schedule.Next[:min(3, len(r.Schedule.Next))], r.Schedule.TimeZone)
			return nil
		})
}

func (a *app) runScheduleCommand() *cobra.Command {
	return a.startSlotsCommand("run NAME", "Start an execution of a schedule now",
		`Start an execution of a schedule now, whether or not the schedule is paused. It does not
replace the next slot.`, belay.ScheduleRun)
}

func (a *app) backfillCommand() *cobra.Command {
	return a.startSlotsCommand("backfill NAME", "Start the slots of the past that were not started",
		`Start the slots of the past that were not started, 1,000 at most: those that were missed or
skipped, and those from before the schedule was made. A slot that was started is not
started again; belay retry repeats its execution.

  belay schedules backfill nightly --from 2026-11-20T00:00:00Z --to 2026-11-24T00:00:00Z
  belay schedules backfill nightly --from -72h --overlap buffer_all   one after the other`,
		belay.ScheduleBackfill)
}

// startSlotsCommand returns a command that starts slots.
func (a *app) startSlotsCommand(use, short, long string, action belay.ScheduleAction) *cobra.Command {
	var from, to, overlap, reason string
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: exactly("the name of a schedule"),
		ValidArgsFunction: a.completeSchedules(),
		RunE: func(c *cobra.Command, args []string) error {
			change := belay.ScheduleChange{
				Name: args[0], Action: action, Overlap: belay.ScheduleOverlap(overlap), Reason: reason, Actor: actor(),
				Op: belay.OpID(embedded.NewID()),
			}
			if action == belay.ScheduleBackfill {
				var err error
				now := time.Now()
				if change.From, err = moment("from", from, now); err != nil {
					return err
				}
				if change.To, err = moment("to", to, now); err != nil {
					return err
				}
				if from == "" {
					return usage("say from when on, as in: belay schedules backfill %s --from -72h", args[0])
				}
				if to == "" {
					change.To = now.Add(-time.Second) // the clock of the store may be behind
				}
			}
			ctx := named(c)
			return a.writing(ctx, func(b belay.Backend) error {
				r, err := b.ChangeSchedule(ctx, change)
				if err != nil {
					return err
				}
				if a.output == "json" {
					return screen.PrintJSON(a.out, r.Slots)
				}
				return a.printSlots(r.Slots)
			})
		},
	}
	if action == belay.ScheduleBackfill {
		c.Flags().StringVar(&from, "from", "", "the `time` of the first slot, like 2026-11-20T08:00:00Z, or -72h")
		c.Flags().StringVar(&to, "to", "", "the `time` of the last slot; by default now")
	}
	c.Flags().StringVar(&overlap, "overlap", "",
		"the `policy` while other executions of the schedule have not ended; the default is allow_all")
	c.Flags().StringVar(&reason, "reason", "", "the reason, which the audit records")
	_ = c.RegisterFlagCompletionFunc("overlap", cobra.FixedCompletions(overlapWords,
		cobra.ShellCompDirectiveNoFileComp))
	return c
}
