package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) deadCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dead", Short: "Show and repair dead letters: executions that failed for good", Args: none,
		Long: `Show and repair dead letters. An execution that failed for good leaves a dead letter. It
is open until a person resolves it, once:

  belay dead ls                              the open dead letters, the newest first
  belay dead groups                          the same, counted by error
  belay dead get ID                          one with its input, error, stack trace and notes
  belay dead requeue ID                      run the execution again; finished steps keep
                                             their results
  belay dead requeue ID --patch '{"n": 2}'   run it again with a changed input
  belay dead fix ID --note TEXT              the consequences were repaired by hand
  belay dead discard ID --note TEXT          the work is not needed
  belay dead note ID TEXT                    write something down

belay quarantine ID makes an execution that has not ended fail, with an open dead letter.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.deadLsCommand(), a.deadGroupsCommand(), a.deadGetCommand(), a.deadRequeueCommand(),
		a.deadChangeCommand(belay.DeadLetterFix, "Resolve a dead letter: the consequences were repaired by hand",
			"Resolve a dead letter whose consequences were repaired by hand. The execution stays failed."),
		a.deadChangeCommand(belay.DeadLetterDiscard, "Resolve a dead letter: the work is not needed",
			"Resolve a dead letter whose work is not needed any more. The execution stays failed."),
		a.deadNoteCommand())
	return c
}

// letterFlags are the flags that select dead letters.
type letterFlags struct {
	belay.DeadLetterFilter
	class, since, until string
}

func (f *letterFlags) add(c *cobra.Command) {
	s := c.Flags()
	words := func(name string, all ...string) {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	}
	s.StringVar(&f.Resolution, "resolution", "open", "open, resolved, all, retried, requeued, fixed or discarded")
	words("resolution", "open", "resolved", "all", belay.ResolvedRetried, belay.ResolvedRequeued, belay.ResolvedFixed,
		belay.ResolvedDiscarded)
	s.StringVar(&f.Reason, "reason", "", "only with this `reason`: "+strings.Join(belay.DeadLetterReasons, ", "))
	words("reason", belay.DeadLetterReasons...)
	s.StringVar(&f.Workflow, "workflow", "", "only of this `workflow`")
	s.StringVar(&f.class, "class", "", "only errors of this `class`: transient, permanent, timeout, lost or circuit_open")
	words("class", "transient", "permanent", "timeout", "lost", "circuit_open")
	s.StringVar(&f.Text, "text", "", "only messages that contain this `text`, in upper or lower case")
	s.StringVar(&f.Fingerprint, "fingerprint", "", "only this `fingerprint` (see belay dead groups)")
	s.StringVar(&f.since, "since", "", "only failures since this `time`, as 2026-11-20T08:00:00Z or a duration ago like 2h")
	s.StringVar(&f.until, "until", "", "only failures before this `time`, as 2026-11-20T08:00:00Z or a duration ago like 2h")
}

// filter returns the filter that the flags describe, and checks it.
func (f *letterFlags) filter(now time.Time) (_ belay.DeadLetterFilter, err error) {
	if f.class != "" {
		if err := f.Class.UnmarshalText([]byte(f.class)); err != nil {
			return f.DeadLetterFilter, usage("--class is %s; it can be transient, permanent, timeout, lost or "+
				"circuit_open", quoted(f.class))
		}
	}
	if f.Since, err = timeFlag("since", f.since, now); err == nil {
		f.Until, err = timeFlag("until", f.until, now)
	}
	return f.DeadLetterFilter, err
}

// timeFlag reads a time, or a duration before now; an empty text is the zero time.
func timeFlag(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usage("--%s is %s; write a time like 2026-11-20T08:00:00Z or a duration like 2h", name, quoted(text))
	}
	return t, nil
}

func (a *app) deadLsCommand() *cobra.Command {
	var flags letterFlags
	limit := 0
	c := &cobra.Command{
		Use: "ls", Short: "List dead letters, the newest first", Args: none,
		Long: "List dead letters, the newest first: the open ones, unless --resolution says otherwise.",
		RunE: func(c *cobra.Command, _ []string) error {
			f, err := flags.filter(time.Now())
			if err != nil {
				return err
			}
			if limit < 1 {
				return usage("--limit is %d; it must be 1 at least", limit)
			}
			return a.reading(c.Context(), func(r reader) error {
				var all []belay.DeadLetter
				for f.Limit = 1000; ; {
					page, err := r.DeadLetters(c.Context(), f)
					if err != nil {
						return err
					}
					all = append(all, page.DeadLetters...)
					if f.Cursor = page.Next; f.Cursor == "" || len(all) > limit {
						break
					}
				}
				more := len(all) > limit
				if err := a.printLetters(all[:min(limit, len(all))]); err != nil || !more {
					return err
				}
				fmt.Fprintf(a.err, "belay: there are more than %d; list more of them with --limit\n", limit)
				return nil
			})
		},
	}
	flags.add(c)
	c.Flags().IntVar(&limit, "limit", 100, "list at most so many")
	return a.readFlag(c)
}

func (a *app) printLetters(all []belay.DeadLetter) error {
	if a.output == "json" {
		if all == nil {
			all = []belay.DeadLetter{}
		}
		return screen.PrintJSON(a.out, all)
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no dead letters")
		return nil
	}
	head := []string{"EXECUTION", "GENERATION", "WORKFLOW", "REASON", "AGE", "STATE", "ERROR"}
	if a.wide() {
		head = append(head, "FINGERPRINT", "NOTES")
	}
	t := screen.NewTable(a.out, head...)
	for i := range all {
		d := &all[i]
		row := []string{
			d.Execution.String(), fmt.Sprint(d.Generation), d.Workflow, d.Reason, since(d.At), resolutionOf(d),
			dash(screen.Brief(d.Message, 60)),
		}
		if a.wide() {
			row = append(row, d.Fingerprint, fmt.Sprint(len(d.Notes)))
		}
		t.Row(row...)
	}
	return t.Flush()
}

// resolutionOf is how a dead letter was resolved, and by whom.
func resolutionOf(d *belay.DeadLetter) string {
	if d.Resolution == "" {
		return "open"
	}
	return d.Resolution + " by " + d.ResolvedBy
}

func (a *app) deadGroupsCommand() *cobra.Command {
	var flags letterFlags
	c := &cobra.Command{
		Use: "groups", Short: "Count dead letters by error, the largest group first", Args: none,
		Long: "Count dead letters by their fingerprints: dead letters of one workflow with the same reason and class,\n" +
			"whose messages differ only in numbers, ids and quoted texts, have one fingerprint.",
		RunE: func(c *cobra.Command, _ []string) error {
			f, err := flags.filter(time.Now())
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				g, err := r.DeadLetterGroups(c.Context(), f)
				if err != nil {
					return err
				}
				return a.printGroups(&g)
			})
		},
	}
	flags.add(c)
	return a.readFlag(c)
}

func (a *app) printGroups(g *belay.DeadLetterGroups) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, g)
	}
	if len(g.Groups) == 0 {
		fmt.Fprintln(a.out, "no dead letters")
		return nil
	}
	t := screen.NewTable(a.out, "COUNT", "FINGERPRINT", "WORKFLOW", "REASON", "FIRST", "LAST", "ERROR")
	for i := range g.Groups {
		x := &g.Groups[i]
		t.Row(fmt.Sprint(x.Count), x.Fingerprint, x.Workflow, x.Reason, since(x.First)+" ago", since(x.Last)+" ago",
			dash(screen.Brief(x.Message, 60)))
	}
	if err := t.Flush(); err != nil || !g.More {
		return err
	}
	fmt.Fprintf(a.err, "belay: only the newest %d dead letters were counted; count older ones with --until\n",
		g.Examined)
	return nil
}

func (a *app) deadGetCommand() *cobra.Command {
	generation := 0
	c := &cobra.Command{
		Use: "get ID", Short: "Show a dead letter with everything that its repair needs",
		Args:              exactly("the id of an execution"),
		Long:              "Show the newest dead letter of an execution: its input, policy, error, stack trace, failed tasks and notes.",
		ValidArgsFunction: a.completeLetters,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := a.executionID(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				d, err := r.DeadLetter(c.Context(), id, generation)
				if err != nil {
					return err
				}
				return a.printLetter(&d)
			})
		},
	}
	c.Flags().IntVar(&generation, "generation", 0, "show the dead letter of this generation; 0 means the newest")
	return a.readFlag(c)
}

func (a *app) printLetter(d *belay.DeadLetterDetail) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, d)
	}
	say := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	say("execution", "%s, generation %d, now %s", d.Execution, d.Generation, d.State)
	say("state", "%s", resolutionOf(&d.DeadLetter))
	say("workflow", "%s", d.Workflow)
	say("failed", "%s ago (%s)", since(d.At), d.At.Local().Format(time.RFC3339))
	say("reason", "%s", d.Reason)
	say("error", "%s: %s", d.Class, d.Message)
	if d.FailedBy != 0 {
		say("ended by", "%s", d.FailedBy)
	}
	if !d.Run.IsZero() {
		say("run", "%s", d.Run)
	}
	if d.Policy != nil {
		policy, err := json.Marshal(d.Policy)
		if err != nil {
			return err
		}
		say("policy", "%s", policy)
	}
	if len(d.Input) > 0 {
		say("input", "%s", screen.Brief(string(d.Input), 2000))
	}
	for _, t := range d.Tasks {
		say("task", "%s %s, %s: %s", dash(t.Key), t.Execution, t.Class, screen.Brief(t.Message, 200))
	}
	for _, n := range d.Notes {
		say("note", "%s ago by %s: %s", since(n.At), dash(n.By), n.Text)
	}
	for i := range d.Others {
		o := &d.Others[i]
		say("earlier", "generation %d, %s ago, %s: %s", o.Generation, since(o.At), resolutionOf(o),
			screen.Brief(o.Message, 100))
	}
	if d.Stack != "" {
		fmt.Fprintf(a.out, "\n%s\n", strings.TrimSpace(d.Stack))
	}
	if d.Resolution == "" {
		fmt.Fprintf(a.out, "\nbelay dead requeue %s runs it again; belay dead discard or fix resolves it without "+
			"a run\n", d.Execution)
	}
	return nil
}

func (a *app) deadRequeueCommand() *cobra.Command {
	var input, patch, note string
	generation := 0
	c := &cobra.Command{
		Use: "requeue ID", Short: "Run the execution of a dead letter again", Args: exactly("the id of an execution"),
		Long: "Run the execution of an open dead letter again, under the same id. Without --input and --patch this is\n" +
			"a retry: steps that have finished do not run again. With another input all steps run again.",
		ValidArgsFunction: a.completeLetters,
		RunE: func(c *cobra.Command, args []string) error {
			if input != "" && patch != "" {
				return usage("give --input or --patch, not both")
			}
			ctx := named(c)
			id, err := a.executionID(ctx, args[0])
			if err != nil {
				return err
			}
			control := belay.Control{
				Execution: id, Action: belay.ActionRetry, Actor: actor(), Reason: note, Generation: generation,
				Op: belay.OpID(embedded.NewID()), Input: json.RawMessage(input), InputPatch: json.RawMessage(patch),
			}
			if input != "" || patch != "" {
				control.Action = belay.ActionRequeue
			}
			return a.writing(ctx, func(b belay.Backend) error {
				if control.Generation == 0 { // the retry must fail if another person resolves the dead letter first
					d, err := b.DeadLetter(ctx, id, 0)
					if err != nil {
						return err
					}
					control.Generation = d.Generation
				}
				e, err := b.Control(ctx, control)
				if err != nil {
					return err
				}
				if a.output == "json" {
					return screen.PrintJSON(a.out, e)
				}
				how := "with its input; finished steps keep their results"
				if control.Action == belay.ActionRequeue {
					how = "with another input; all steps run again"
				}
				fmt.Fprintf(a.out, "%s is %s again, generation %d, %s\n", e.ID, stateWord(&e), e.Generation, how)
				return nil
			})
		},
	}
	c.Flags().StringVar(&input, "input", "", "another input, as `JSON`")
	c.Flags().StringVar(&patch, "patch", "", "a JSON Merge Patch that changes the input, as `JSON`: {\"url\": \"…\"}")
	c.Flags().StringVar(&note, "note", "", "the reason, which the dead letter and the history keep")
	c.Flags().IntVar(&generation, "generation", 0, "the generation that failed; 0 means the newest dead letter")
	return c
}

// deadChangeCommand is a command that resolves a dead letter without a new run.
func (a *app) deadChangeCommand(action belay.DeadLetterAction, brief, long string) *cobra.Command {
	change := belay.DeadLetterChange{Action: action}
	c := &cobra.Command{
		Use: string(action) + " ID", Short: brief, Long: long, Args: exactly("the id of an execution"),
		ValidArgsFunction: a.completeLetters,
		RunE:              func(c *cobra.Command, args []string) error { return a.changeLetter(c, args[0], change) },
	}
	c.Flags().StringVar(&change.Note, "note", "", "the reason, which the dead letter keeps")
	c.Flags().IntVar(&change.Generation, "generation", 0, "the generation that failed; 0 means the newest dead letter")
	return c
}

func (a *app) deadNoteCommand() *cobra.Command {
	change := belay.DeadLetterChange{Action: belay.DeadLetterNoted}
	c := &cobra.Command{
		Use: "note ID TEXT", Short: "Add a note to a dead letter",
		Long:              "Add a note to the newest dead letter of an execution, open or resolved.",
		Args:              exactly("the id of an execution", "a text"),
		ValidArgsFunction: a.completeLetters,
		RunE: func(c *cobra.Command, args []string) error {
			change.Note = args[1]
			return a.changeLetter(c, args[0], change)
		},
	}
	c.Flags().IntVar(&change.Generation, "generation", 0, "the generation that failed; 0 means the newest dead letter")
	return c
}

func (a *app) changeLetter(c *cobra.Command, arg string, change belay.DeadLetterChange) error {
	ctx := named(c)
	id, err := a.executionID(ctx, arg)
	if err != nil {
		return err
	}
	change.Execution, change.Actor, change.Op = id, actor(), belay.OpID(embedded.NewID())
	return a.writing(ctx, func(b belay.Backend) error {
		d, err := b.ChangeDeadLetter(ctx, change)
		if err != nil {
			return err
		}
		if a.output == "json" {
			return screen.PrintJSON(a.out, d)
		}
		fmt.Fprintf(a.out, "the dead letter of %s, generation %d, is %s\n", d.Execution, d.Generation, resolutionOf(&d))
		return nil
	})
}

// completeLetters completes the ids of executions with an open dead letter.
func (a *app) completeLetters(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	err := a.reading(c.Context(), func(r reader) error {
		page, err := r.DeadLetters(c.Context(), belay.DeadLetterFilter{Limit: 100})
		for i := range page.DeadLetters {
			d := &page.DeadLetters[i]
			if id := d.Execution.String(); !slices.Contains(ids, id) {
				ids = append(ids, id+"\t"+d.Workflow+": "+screen.Brief(d.Message, 40))
			}
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) quarantineCommand() *cobra.Command {
	return a.actionCommand("quarantine", "Give an execution up: it fails at once, with an open dead letter",
		"Make an execution that has not ended fail at once, with an open dead letter whose reason is manual. Its\n"+
			"owner learns with its next write that the execution has ended. belay dead requeue runs it again.",
		func(c *belay.Control) { c.Action = belay.ActionQuarantine })
}

func (a *app) preemptCommand() *cobra.Command {
	return a.actionCommand("preempt", "Ask the owner of an execution to give it back",
		"Ask the owner of a running execution to give it back at its next step. No attempt is counted, and a\n"+
			"worker claims the execution again.",
		func(c *belay.Control) { c.Action = belay.ActionPreempt })
}
