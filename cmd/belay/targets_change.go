package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/secretref"
	"github.com/belaydev/belay/internal/wire"
)

// The values of --alert and --format.
var (
	alertWords  = []string{string(belay.AlertDeadLetter), string(belay.AlertBreakerOpen), string(belay.AlertNoWorker)}
	formatWords = []string{string(belay.FormatEvent), string(belay.FormatSlack)}
)

// targetFlags are the flags that describe a target of notifications.
type targetFlags struct {
	url, slack, format, secret string
	exchange, key              string
	on, alerts                 []string
	workflows, queues, labels  []string
}

func (f *targetFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "url", "",
		"the `URL` that gets the requests; '${{ secrets.NAME }}' may be the whole URL, or a part of its path or query")
	c.Flags().StringVar(&f.slack, "slack", "",
		"the `name` of the secret that is the URL of an incoming webhook of Slack, or of a compatible service; instead "+
			"of --url and --format slack")
	c.Flags().StringVar(&f.exchange, "exchange", "",
		"the `name` of an exchange of RabbitMQ that gets messages, instead of --url; Belay does not declare it")
	c.Flags().StringVar(&f.key, "routing-key", "",
		"the routing `key` of the messages to --exchange. By default execution.completed, or alert. and the alert")
	c.Flags().StringVar(&f.format, "format", "",
		"the `form` of the body: event (the default), JSON in the form of Standard Webhooks, or slack, a text")
	c.Flags().StringVar(&f.secret, "secret", "",
		"the `name` of the secret that signs the requests, as Standard Webhooks describes; never the secret itself")
	c.Flags().StringSliceVar(&f.on, "on", nil,
		"the `states` of an end that is reported: failed, succeeded, cancelled. By default failed, all with --exchange, or "+
			"none with --alert")
	c.Flags().StringSliceVar(&f.alerts, "alert", nil, "the `alerts` that the target gets: "+strings.Join(alertWords, ", "))
	c.Flags().StringSliceVar(&f.workflows, "workflow", nil,
		"the `workflows` of executions, and of alerts about them; * stands for any text. By default all; may be repeated")
	c.Flags().StringSliceVar(&f.queues, "queue", nil,
		"the `queues` of executions, and of alerts about lanes; * stands for any text. By default all; may be repeated")
	c.Flags().StringSliceVar(&f.labels, "label", nil,
		"a label that an execution must have, as `name=value`; may be repeated")
	for flag, words := range map[string][]string{"on": ends, "alert": alertWords, "format": formatWords} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	for _, flag := range []string{
		"url", "slack", "exchange", "routing-key", "secret", "workflow", "queue", "label",
	} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// target returns the target that the flags describe.
func (f *targetFlags) target(name string) (belay.NotificationTarget, error) {
	t := belay.NotificationTarget{Name: name, Workflows: f.workflows, Queues: f.queues}
	t.URL, t.Format = f.url, belay.NotificationFormat(f.format)
	t.Exchange, t.RoutingKey = f.exchange, f.key
	var err error
	switch {
	case f.format != "" && !slices.Contains(formatWords, f.format):
		return t, usage("--format is %s; it can be %s", quoted(f.format), strings.Join(formatWords, " or "))
	case f.url == "" && f.slack == "" && f.exchange == "":
		return t, usage("say with --url where the requests go, with --slack the name of the secret that is the URL, " +
			"or with --exchange which exchange of RabbitMQ gets messages")
	case f.url != "" && f.slack != "":
		return t, usage("give --url or --slack, not both")
	case f.exchange != "" && f.url+f.slack != "":
		return t, usage("give --exchange, or --url or --slack, not both")
	case f.slack != "" && t.Format == belay.FormatEvent:
		return t, usage("--slack has the format slack; for another format, give --url '${{ secrets.NAME }}'")
	case f.slack != "":
		t.Format = belay.FormatSlack
		if t.URL, err = secretOf("slack", f.slack); err != nil {
			return t, err
		}
	}
	if f.secret != "" {
		if t.Secret, err = secretOf("secret", f.secret); err != nil {
			return t, err
		}
	}
	if t.On, err = endsOf("on", f.on); err != nil {
		return t, err
	}
	for _, word := range f.alerts {
		if !slices.Contains(alertWords, word) {
			return t, usage("--alert is %s; it can be %s", quoted(word), strings.Join(alertWords, ", "))
		}
		t.Alerts = append(t.Alerts, belay.Alert(word))
	}
	if t.Labels, err = pairs("label", f.labels); err != nil {
		return t, err
	}
	err = belay.CheckNotificationTarget("notify set", &t)
	return t, err
}

func (a *app) setTargetCommand() *cobra.Command {
	var to targetFlags
	var edit editFlags
	c := &cobra.Command{
		Use: "set NAME", Short: "Create a target of notifications, or change it",
		Long: `Create a target of notifications, or change it. The command line describes the whole
target: a flag that is left out has its default. Executions that end a second later, or
after that, are reported. Ends of child executions are not.

  belay notify set ops --url https://ops.example.org/belay --secret OPS_HOOK \
    --alert dead_letter,breaker_open,no_worker
  belay notify set billing --slack SLACK_URL --on failed,cancelled --workflow 'billing-*'
  belay notify set ci --url 'https://ci.example.org/hook?key=${{ secrets.CI_KEY }}' \
    --on succeeded,failed --queue builds --label team=web
  belay notify set events --exchange attune.executions

--exchange sends messages to an exchange of RabbitMQ, for all ends unless --on or --alert is
given. The exchange must exist, the user of broker.url must be permitted to write to it, and
the configuration of at least one server must have broker.url.

--alert reports what an operator may want to know at once:
  dead_letter   an execution has failed for good, and waits in belay dead ls
  breaker_open  the circuit breaker of a service that executions call has opened
  no_worker     executions have been due for 30 s, and no worker that could take them was
                connected

With --workflow and --queue a target gets dead letters and lanes without a worker of these
workflows, and lanes of these queues. Labels do not select alerts.

A URL is stored and shown as it is given. If a part of it is a credential, give a secret
instead. The configuration of each server must allow a secret with a rule in
secrets.allow, which belay notify set prints, and http.egress decides which hosts the
requests may reach. belay notify test shows whether the target receives them.`,
		Args: exactly("the name of a target"), ValidArgsFunction: a.completeTargets(),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := to.target(args[0])
			if err != nil {
				return err
			}
			return a.setTarget(c, &belay.NotificationTargetPut{
				NotificationTarget: t, IfVersion: edit.version, IfNew: edit.isNew, Reason: edit.reason, Actor: actor(),
				Op: belay.OpID(embedded.NewID()),
			})
		},
	}
	to.register(c)
	edit.register(c, "target")
	return c
}

func (a *app) setTarget(c *cobra.Command, p *belay.NotificationTargetPut) error {
	ctx := named(c)
	b, err := a.backend(ctx, c.CommandPath())
	if err != nil {
		return err
	}
	r, err := b.PutNotificationTarget(ctx, *p)
	switch {
	case err != nil:
	case a.output == "json":
		err = screen.PrintJSON(a.out, wire.TargetOf(&r.NotificationTargetInfo))
	default:
		a.printTargetPut(&r)
	}
	return closing(b, err)
}

// printTargetPut prints the result of a put. If the target was changed, it also prints what the operator must do next.
func (a *app) printTargetPut(r *belay.NotificationTargetPutResult) {
	a.printEdited(r.Name, r.Created, r.Changed, r.Version)
	if r.Paused != nil {
		fmt.Fprintf(a.out, "it is paused; belay notify resume %s continues it\n", r.Name)
	}
	if !r.Changed {
		return
	}
	if names, rules := rulesFor(&r.NotificationTarget); len(names) > 0 {
		a.printAllow("the requests", names, rules)
	}
	if r.Exchange != "" {
		fmt.Fprintln(a.out, "\nServers with broker.url in their configuration publish to the exchange; without one, "+
			"deliveries wait.")
	}
	fmt.Fprintf(a.out, "\nSend a test: belay notify test %s\n", r.Name)
}

// rulesFor returns the secrets of a target, and the rules that allow requests to use them. A secret that is the whole
// URL needs no host, and a secret that goes to the host of another secret needs a host that only the operator knows.
func rulesFor(t *belay.NotificationTarget) (names, rules []string) {
	host := "HOST"
	if plain, first, err := secretref.Plain(t.URL); err == nil && !first {
		if u, err := url.Parse(plain); err == nil && u.Host != "" {
			host = u.Host
		}
	}
	shown := secretref.Shown(t.URL)
	for _, name := range append(secretref.References(t.URL), secretref.References(t.Secret)...) {
		if slices.Contains(names, name) {
			continue
		}
		rule := name + " for http"
		if shown != "["+name+"]" {
			rule += " to " + host
		}
		names, rules = append(names, name), append(rules, rule)
	}
	return names, rules
}

func (a *app) pauseTargetCommand() *cobra.Command {
	return a.changeTargetCommand(belay.NotificationTargetPause, "pause NAME", "Pause a target of notifications",
		`Pause a target of notifications: it gets nothing until belay notify resume, and nothing of
this time is sent later. Deliveries that have begun go on. belay notify test still sends a
test.`)
}

func (a *app) resumeTargetCommand() *cobra.Command {
	return a.changeTargetCommand(belay.NotificationTargetResume, "resume NAME", "Resume a target of notifications",
		"Resume a target of notifications: it gets what happens from now on.")
}

func (a *app) removeTargetCommand() *cobra.Command {
	return a.changeTargetCommand(belay.NotificationTargetRemove, "rm NAME", "Remove a target of notifications",
		"Remove a target of notifications. Deliveries that have begun go on.")
}

func (a *app) changeTargetCommand(action belay.NotificationTargetAction, use, short, long string) *cobra.Command {
	return a.editCommand(&cobra.Command{Use: use, Short: short, Long: long}, "the name of a target",
		a.completeTargets(), func(ctx context.Context, b belay.Backend, name, reason string) error {
			t, err := b.ChangeNotificationTarget(ctx, belay.NotificationTargetChange{
				Name: name, Action: action, Reason: reason, Actor: actor(), Op: belay.OpID(embedded.NewID()),
			})
			switch {
			case err != nil:
				return err
			case a.output == "json" && action == belay.NotificationTargetRemove: // only the name is known
				return screen.PrintJSON(a.out, map[string]string{"name": name})
			case a.output == "json":
				return screen.PrintJSON(a.out, wire.TargetOf(&t))
			}
			fmt.Fprintf(a.out, "%s is %sd\n", name, action)
			return nil
		})
}
