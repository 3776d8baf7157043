package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/secretref"
	"github.com/belaydev/belay/internal/wire"
)

func (a *app) targetsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "notify", Short: "Report ends of executions, and alerts, to URLs and exchanges", Args: none,
		Long: `Report ends of executions, and alerts, to targets: URLs that get an HTTP request, or exchanges
of RabbitMQ that get a message. A target selects executions by workflow, queue and label.
Each end has one delivery, and alerts that arise within seconds are sent together.

  belay notify set ops --url https://ops.example.org/belay --alert dead_letter,no_worker
  belay notify set billing --slack SLACK_URL --on failed --workflow 'billing-*'
  belay notify set events --exchange attune.executions
  belay notify test ops                    send a test, and say whether ops has received it
  belay notify ls                          list the targets
  belay notify get ops                     the terms and the ten newest deliveries
  belay notify pause ops                   send nothing until belay notify resume
  belay notify rm ops

belay ls --label notification_target=ops lists the deliveries to a target. A submission
can name URLs for its own end too: see belay submit --notify.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.setTargetCommand(), a.targetsLsCommand(), a.targetsGetCommand(), a.trialCommand(),
		a.pauseTargetCommand(), a.resumeTargetCommand(), a.removeTargetCommand())
	return c
}

// completeTargets offers the names of targets of notifications to the shell.
func (a *app) completeTargets() cobra.CompletionFunc {
	return a.completeNamed(func(ctx context.Context, r reader) (names []string, err error) {
		all, err := r.NotificationTargets(ctx)
		for i := range all {
			t := &all[i].NotificationTarget
			names = append(names, fmt.Sprintf("%s\t%s, %s", t.Name, receiverOf(t), getsOf(t)))
		}
		return names, err
	})
}

func (a *app) targetsLsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "List the targets of notifications", Args: none,
		Long: `List the targets of notifications. The table has only the hosts of URLs, since the rest of
a URL may be a credential. belay notify get, and -o json, show whole URLs.`,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.reading(c.Context(), func(r reader) error {
				all, err := r.NotificationTargets(c.Context())
				if err != nil {
					return err
				}
				return a.listTargets(all)
			})
		},
	}
	return a.readFlag(c)
}

func (a *app) listTargets(all []belay.NotificationTargetInfo) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, wired(all, wire.TargetOf))
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no targets of notifications; belay notify set makes one")
		return nil
	}
	head := []string{"NAME", "TO", "GETS", "SELECTS", "PAUSED"}
	if a.wide() {
		head = append(head, "FORMAT")
	}
	t := screen.NewTable(a.out, head...)
	for i := range all {
		x := &all[i]
		to := &x.NotificationTarget
		paused := "-"
		if x.Paused != nil {
			paused = since(x.Paused.At) + " ago"
		}
		row := []string{x.Name, receiverOf(to), getsOf(to), selectsOf(to), paused}
		if a.wide() {
			row = append(row, cmp.Or(string(x.Format), string(belay.FormatEvent)))
		} else {
			row[3] = screen.Brief(row[3], 60)
		}
		t.Row(row...)
	}
	return t.Flush()
}

// receiverOf names the receiver of a target without a credential: the exchange, scheme and host of the URL, or the
// secret with which the URL begins.
func receiverOf(t *belay.NotificationTarget) string {
	if t.Exchange != "" {
		return "exchange " + t.Exchange
	}
	scheme, rest, ok := strings.Cut(t.URL, "://")
	if names := secretref.References(t.URL); len(names) > 0 && (!ok || strings.Contains(scheme, "${{")) {
		return "secret " + names[0]
	}
	if !ok {
		return "-"
	}
	host := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host = rest[:i]
	}
	return scheme + "://" + host[strings.LastIndex(host, "@")+1:]
}

// getsOf lists the ends and the alerts that a target gets.
func getsOf(t *belay.NotificationTarget) string {
	return strings.Join(append(endsFor(t), alertsFor(t)...), ", ")
}

func endsFor(t *belay.NotificationTarget) (names []string) {
	for _, s := range []belay.State{belay.Failed, belay.Succeeded, belay.Cancelled} {
		if t.Reports(s) {
			names = append(names, s.String())
		}
	}
	return names
}

func alertsFor(t *belay.NotificationTarget) []string {
	names := make([]string, len(t.Alerts))
	for i, x := range t.Alerts {
		names[i] = string(x)
	}
	return names
}

// selectsOf describes the executions that a target selects.
func selectsOf(t *belay.NotificationTarget) string {
	var parts []string
	add := func(what string, list []string) {
		if len(list) > 0 {
			parts = append(parts, what+" "+strings.Join(list, "|"))
		}
	}
	add("workflow", t.Workflows)
	add("queue", t.Queues)
	add("label", labelsOf(t))
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

func labelsOf(t *belay.NotificationTarget) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		list = append(list, name+"="+t.Labels[name])
	}
	return list
}

// shownTargetDeliveries is how many deliveries belay notify get shows.
const shownTargetDeliveries = 10

func (a *app) targetsGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get NAME", Short: "Show a target of notifications and its ten newest deliveries",
		Args: exactly("the name of a target"), ValidArgsFunction: a.completeTargets(),
		Long: `Show a target of notifications and its ten newest deliveries. A delivery is an execution,
whose state says whether the target has received it: belay get shows its attempts, and
belay retry sends it again. The URL is shown as it is stored, so it may be a credential.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(r reader) error {
				t, err := r.NotificationTarget(c.Context(), args[0])
				if err != nil {
					return err
				}
				list, more, err := deliveriesTo(c.Context(), r, t.Name)
				if err != nil {
					return err
				}
				executions := make([]belay.Execution, len(list))
				for i := range list {
					executions[i] = list[i].Execution
				}
				defer a.noteNoEngine(executions...)
				return a.printTarget(&t, list, more)
			})
		},
	}
	return a.readFlag(c)
}

// deliveriesTo reads the newest deliveries to a target with their trigger payloads. more is the cursor of older ones.
func deliveriesTo(ctx context.Context, r reader, name string) (list []belay.ExecutionDetail, more string, err error) {
	page, err := search(ctx, r, belay.Filter{
		Labels: map[string]string{belay.LabelNotificationTarget: name}, Limit: shownTargetDeliveries,
	})
	list = []belay.ExecutionDetail{}
	for i := range page.Executions {
		d, err := r.Detail(ctx, page.Executions[i].ID)
		switch {
		case belay.CodeOf(err) == belay.CodeNotFound: // it was deleted meanwhile
		case err != nil:
			return nil, "", err
		default:
			list = append(list, d)
		}
	}
	return list, page.Next, err
}

// targetWithDeliveries is a target with its newest deliveries, as JSON.
type targetWithDeliveries struct {
	wire.Target
	Deliveries []belay.ExecutionDetail `json:"deliveries"`
}

func (a *app) printTarget(t *belay.NotificationTargetInfo, list []belay.ExecutionDetail, more string) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, targetWithDeliveries{wire.TargetOf(t), list})
	}
	line := func(name, text string) { fmt.Fprintf(a.out, "%-10s %s\n", name, screen.Line(text)) }
	line("target", t.Name)
	if t.Exchange == "" {
		line("url", t.URL)
	} else {
		line("exchange", t.Exchange)
	}
	if t.RoutingKey != "" {
		line("key", t.RoutingKey)
	}
	if t.Format == belay.FormatSlack {
		line("format", string(t.Format))
	}
	if t.Secret != "" {
		line("signed", "with the secret "+strings.Join(secretref.References(t.Secret), ""))
	}
	line("ends", dash(strings.Join(endsFor(&t.NotificationTarget), ", ")))
	line("alerts", dash(strings.Join(alertsFor(&t.NotificationTarget), ", ")))
	for _, x := range []struct {
		name string
		list []string
	}{{"workflows", t.Workflows}, {"queues", t.Queues}, {"labels", labelsOf(&t.NotificationTarget)}} {
		if len(x.list) > 0 {
			line(x.name, strings.Join(x.list, ", "))
		}
	}
	line("version", fmt.Sprintf("%d, changed %s ago%s", t.Version, since(t.UpdatedAt), by(t.UpdatedBy)))
	if p := t.Paused; p != nil {
		line("paused", done(since(p.At)+" ago", p.By, p.Reason))
	}
	if len(list) > 0 {
		fmt.Fprintln(a.out)
		table := screen.NewTable(a.out, "AGO", "STATE", "DELIVERY", "REPORTS", "ABOUT")
		for i := range list {
			e := &list[i].Execution
			table.Row(since(e.CreatedAt), stateWord(e), e.ID.String(), reportOf(&list[i]), dash(about(e)))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if more != "" {
		fmt.Fprintf(a.out, "there may be more: belay ls --label %s=%s --after %s\n", belay.LabelNotificationTarget,
			t.Name, more)
	}
	return nil
}

// reportOf names the end or the alert that a delivery reports.
func reportOf(d *belay.ExecutionDetail) string {
	var alert belay.AlertPayload
	var end belay.NotificationPayload
	if json.Unmarshal(d.TriggerPayload, &alert) != nil || json.Unmarshal(d.TriggerPayload, &end) != nil {
		return "-"
	}
	switch {
	case alert.Alert == belay.AlertTest:
		return "a test"
	case alert.Count > 1:
		return fmt.Sprintf("%s (%d)", alert.Alert, alert.Count)
	case alert.Alert != "":
		return string(alert.Alert)
	case end.Execution.IsZero():
		return "-"
	}
	return end.Execution.String() + " " + end.State.String()
}
