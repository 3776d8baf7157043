package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

const bulkLong = `Act on many dead letters or executions at once, which a filter selects:

  belay bulk requeue --workflow charge --reason permanent_error --patch '{"url": "…"}'
  belay bulk discard --fingerprint 1f0c2d3e4b5a6978 --note 'the customer has left'
  belay bulk cancel --queue reports --dry-run
  belay bulk retry --workflow nightly --since 12h

First belay counts the selection and shows the first ten; --dry-run ends there. Then it
asks for a confirmation, unless --yes is given. A filter that selects everything needs --all.

An execution carries the bulk out, run by a server (belay serve) or, without a server, by
this command. It acts at the --rate, and begins with a --canary: on one execution, then
on ten, then on the others. After each of these stages it waits until the executions that
it has reopened have ended. If a larger share of the ended executions than --max-failures
has failed, the bulk stops by itself. belay get ID and belay watch ID show its progress,
and belay cancel ID stops it. After a crash it continues, and acts on nothing twice.

The bulk acts only on dead letters that were written, or executions that were submitted,
before it began.`

func (a *app) bulkCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "bulk", Short: "Requeue, discard, cancel or retry many at once, with a canary", Long: bulkLong, Args: none,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, of := range []struct {
		action belay.BulkAction
		brief  string
	}{
		{belay.BulkRequeue, "Run the executions of open dead letters again"},
		{belay.BulkDiscard, "Resolve open dead letters: the work is not needed"},
		{belay.BulkCancel, "Cancel executions that have not ended"},
		{belay.BulkRetry, "Run failed or cancelled executions again; finished steps keep their results"},
	} {
		c.AddCommand(a.bulkActionCommand(of.action, of.brief))
	}
	return c
}

// bulkFlags are the flags of one command of belay bulk.
type bulkFlags struct {
	letterFlags
	bulk             belay.Bulk
	input, patch     string
	labels, states   []string
	canary, failures string
	yes, detach      bool
}

func (f *bulkFlags) add(c *cobra.Command) {
	s := c.Flags()
	words := func(name string, all ...string) {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	}
	when := "failures"
	switch f.bulk.Action {
	case belay.BulkRequeue, belay.BulkDiscard:
		s.StringVar(&f.Reason, "reason", "", "only with this `reason`: "+strings.Join(belay.DeadLetterReasons, ", "))
		words("reason", belay.DeadLetterReasons...)
		s.StringVar(&f.class, "class", "", "only errors of this `class`: transient, permanent, timeout, lost or circuit_open")
		words("class", "transient", "permanent", "timeout", "lost", "circuit_open")
		s.StringVar(&f.Text, "text", "", "only messages that contain this `text`, in upper or lower case")
		s.StringVar(&f.Fingerprint, "fingerprint", "", "only this `fingerprint` (see belay dead groups)")
	default:
		when = "submissions"
		s.StringVar(&f.bulk.Filter.Queue, "queue", "", "only of this `queue`")
		s.StringSliceVar(&f.labels, "label", nil, "only with these labels, as `name=value`")
		states, all := "failed or cancelled; failed by default", []string{"failed", "cancelled"}
		if f.bulk.Action == belay.BulkCancel {
			states, all = "all that have not ended by default", nil
			for _, x := range belay.ActiveStates() {
				all = append(all, x.String())
			}
		}
		s.StringSliceVar(&f.states, "state", nil, "only in this `state`; "+states)
		words("state", all...)
	}
	if f.bulk.Action == belay.BulkRequeue {
		s.StringVar(&f.input, "input", "", "another input for each, as `JSON`; then all steps run again")
		s.StringVar(&f.patch, "patch", "", "a JSON Merge Patch that changes the input of each, as `JSON`: {\"url\": \"…\"}")
	}
	s.StringVar(&f.Workflow, "workflow", "", "only of this `workflow`")
	s.StringVar(&f.since, "since", "", "only "+when+" since this `time`, as 2026-11-20T08:00:00Z or a duration ago like 2h")
	s.StringVar(&f.until, "until", "", "only "+when+" before this `time`, as 2026-11-20T08:00:00Z or a duration ago like 2h")
	s.BoolVar(&f.bulk.All, "all", false,
		"select everything; required if no flag other than --since, --until and --state selects")
	s.StringVar(&f.bulk.Notes, "note", "", "the reason, which each dead letter and history keeps")
	s.BoolVar(&f.bulk.DryRun, "dry-run", false, "count the selection, show ten of it, and change nothing")
	s.Float64Var(&f.bulk.Rate, "rate", belay.DefaultBulkRate, "the highest `number` of actions per second")
	s.StringVar(&f.canary, "canary", "1,10", "the `sizes` of the first stages, after which all others follow, or none")
	words("canary", "1,10", "none")
	s.StringVar(&f.failures, "max-failures", "10%", "the largest `share` of failures before the bulk stops by itself")
	s.BoolVar(&f.yes, "yes", false, "do not ask for a confirmation")
	s.BoolVar(&f.detach, "detach", false, "do not wait for the end; a server runs the bulk")
}

// parse reads the flags into the bulk.
func (f *bulkFlags) parse() (*belay.Bulk, error) {
	b := &f.bulk
	letters, err := f.filter(time.Now())
	if err != nil {
		return nil, err
	}
	to := &b.Filter
	to.Workflow, to.Reason, to.Class, to.Fingerprint, to.Text = letters.Workflow, letters.Reason, letters.Class,
		letters.Fingerprint, letters.Text
	to.Since, to.Until = letters.Since, letters.Until
	if to.Labels, err = pairs("label", f.labels); err != nil {
		return nil, err
	}
	for _, word := range f.states {
		var s belay.State
		if err := s.UnmarshalText([]byte(word)); err != nil || word == "" {
			return nil, usage("--state %s is no state; the states are %s", quoted(word),
				strings.Join(stateNames(), ", "))
		}
		to.States = append(to.States, s)
	}
	if f.input != "" && f.patch != "" {
		return nil, usage("give --input or --patch, not both")
	}
	if !to.Narrow() && !b.All {
		return nil, usage("these flags select everything; give --workflow or another filter, or --all")
	}
	b.Input, b.InputPatch = json.RawMessage(f.input), json.RawMessage(f.patch)
	if b.MaxFailures, err = share(f.failures); err != nil {
		return nil, err
	}
	b.Canary, err = stages(f.canary)
	b.Actor, b.Op = actor(), belay.OpID(embedded.NewID())
	return b, err
}

// share reads a share such as 10% or 0.1.
func share(text string) (*float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return nil, usage("--max-failures is %s; write a share like 10%% or 0.1", quoted(text))
	}
	return &v, nil
}

// stages reads the sizes of the stages of a canary.
func stages(text string) ([]int, error) {
	out := []int{}
	if text == "none" {
		return out, nil
	}
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return nil, usage("--canary is %s; write sizes like 1,10 or none", quoted(text))
		}
		out = append(out, n)
	}
	return out, nil
}

func (a *app) bulkActionCommand(action belay.BulkAction, brief string) *cobra.Command {
	f := &bulkFlags{bulk: belay.Bulk{Action: action}}
	c := &cobra.Command{
		Use: string(action), Short: brief, Long: brief + ". The flags select them. belay bulk --help has examples.",
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := f.parse()
			if err != nil {
				return err
			}
			ctx := named(c)
			return a.writing(ctx, func(to belay.Backend) error { return a.bulk(ctx, to, f, *b) })
		},
	}
	f.add(c)
	return c
}

// bulk shows the selection, asks for a confirmation, starts the bulk and follows it.
func (a *app) bulk(ctx context.Context, to belay.Backend, f *bulkFlags, b belay.Bulk) error {
	dry := b
	dry.DryRun, dry.Op = true, belay.OpID{}
	reply, err := to.Bulk(ctx, dry)
	if err != nil {
		return err
	}
	if b.DryRun {
		return a.printPreview(&b, reply.Preview)
	}
	if !f.yes {
		if err := a.confirm(&b, reply.Preview); err != nil {
			return err
		}
	}
	if reply, err = to.Bulk(ctx, b); err != nil {
		return err
	}
	id := reply.Execution.ID
	fmt.Fprintf(a.err, "belay: %s carries the bulk out; belay cancel %s stops it\n", id, id)
	if f.detach {
		if a.output == "json" {
			return screen.PrintJSON(a.out, reply.Execution)
		}
		fmt.Fprintln(a.out, id)
		return nil
	}
	return a.followBulk(ctx, to, id)
}

func (a *app) printPreview(b *belay.Bulk, p *belay.BulkPreview) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, p)
	}
	a.describeBulk(a.out, b, p)
	if len(p.First) == 0 {
		return nil
	}
	t := screen.NewTable(a.out, "EXECUTION", "GENERATION", "WORKFLOW", "STATE", "AGE", "ERROR")
	for i := range p.First {
		x := &p.First[i]
		state := "dead letter"
		if x.State != 0 {
			state = x.State.String()
		}
		t.Row(x.Execution.String(), fmt.Sprint(x.Generation), x.Workflow, state, since(x.At),
			dash(screen.Brief(x.Message, 60)))
	}
	return t.Flush()
}

// confirm shows the selection on standard error, and returns an error unless the user agrees.
func (a *app) confirm(b *belay.Bulk, p *belay.BulkPreview) error {
	if in, ok := a.in.(*os.File); !ok || !screen.IsTerminal(in) {
		return usage("%s %d: standard input is no terminal that could confirm this; look at it with --dry-run, and "+
			"then give --yes", b.Action, p.Count)
	}
	onErr := *a
	onErr.out, onErr.output = a.err, "text"
	if err := onErr.printPreview(b, p); err != nil {
		return err
	}
	fmt.Fprint(a.err, "Type yes to begin: ")
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if strings.TrimSpace(line) != "yes" {
		if err == nil {
			fmt.Fprintln(a.err, "belay: nothing was changed")
		}
		return exitCode(130)
	}
	return nil
}
