package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/wire"
)

// The values of --scheme, --hmac-algorithm and --hmac-encoding. The first algorithm and the first encoding are the
// defaults.
var (
	schemes = []string{
		string(belay.SchemeHMAC), string(belay.SchemeStandard), string(belay.SchemeGitHub), string(belay.SchemeGitLab),
		string(belay.SchemeStripe), string(belay.SchemeSlack), string(belay.SchemeCloudEvents),
		string(belay.SchemeAMQP),
	}
	hmacAlgorithms = []string{"sha256", "sha512"}
	hmacEncodings  = []string{"hex", "base64"}
)

// hookFlags are the flags that describe what a webhook accepts.
type hookFlags struct {
	scheme, filter string
	secrets        []string
	maxBytes, rate int
	hmac           belay.WebhookHMAC
	queue          string
	withoutID      string
	signal         belay.WebhookSignal
	signalPayload  string
}

func (f *hookFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.scheme, "scheme", "", "how the sender signs: the `scheme` "+strings.Join(schemes, ", "))
	c.Flags().StringSliceVar(&f.secrets, "secret", nil,
		"the `name` of the secret with which the sender signs, never the secret itself; give two names while one "+
			"secret replaces the other")
	c.Flags().StringVar(&f.filter, "filter", "",
		"an `expression`, such as event.type == \"push\"; a delivery for which it is false starts nothing")
	c.Flags().IntVar(&f.maxBytes, "max-bytes", 0, fmt.Sprintf(
		"the largest `size` of a delivery's body; 0 means %d, which is also the maximum", belay.MaxDeliveryBytes))
	c.Flags().IntVar(&f.rate, "max-rate", 0, fmt.Sprintf(
		"the `number` of deliveries per second that one server accepts; 0 means %d, and with the scheme amqp no limit",
		belay.DefaultDeliveryRate))
	c.Flags().StringVar(&f.queue, "amqp-queue", "", "the `name` of the queue in RabbitMQ, for the scheme amqp")
	c.Flags().StringVar(&f.withoutID, "amqp-without-id", "",
		"decides about messages without an id: refuse (the default), or hash, so that the hash of the body is the id")
	c.Flags().StringVar(&f.hmac.Header, "hmac-header", "", "the `header` with the signature")
	c.Flags().StringVar(&f.hmac.Prefix, "hmac-prefix", "", "a `text` before the signature, such as sha256=")
	c.Flags().StringVar(&f.hmac.Algorithm, "hmac-algorithm", "", "sha256 (the default) or sha512")
	c.Flags().StringVar(&f.hmac.Encoding, "hmac-encoding", "", "hex (the default) or base64")
	c.Flags().StringVar(&f.hmac.TimestampHeader, "hmac-timestamp-header", "",
		"the `header` with the time in seconds since 1970; the signature is then that of the time, a dot and the body")
	c.Flags().StringVar(&f.hmac.IDHeader, "hmac-id-header", "",
		"the `header` with the id of the delivery; without it, the id is the hash of the body")
	c.Flags().StringVar(&f.signal.Name, "signal", "",
		"send the signal with this `name` to an execution, instead of starting one")
	c.Flags().StringVar(&f.signal.Execution, "signal-execution", "",
		"an `expression` for the id of the execution that gets the signal")
	c.Flags().StringVar(&f.signal.Workflow, "signal-workflow", "", "the `workflow` of the execution that gets the signal")
	c.Flags().StringVar(&f.signal.Key, "signal-key", "",
		"with --signal-workflow: an `expression` for the idempotency key of the execution, such as event.data.order")
	c.Flags().StringVar(&f.signalPayload, "signal-payload", "",
		"the payload of the signal, as `JSON`, @FILE, or - for standard input, whose texts may have expressions; by "+
			"default event.data")
	for flag, words := range map[string][]string{
		"scheme": schemes, "hmac-algorithm": hmacAlgorithms, "hmac-encoding": hmacEncodings,
		"amqp-without-id": {string(belay.RefuseWithoutID), string(belay.HashWithoutID)},
	} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	for _, flag := range []string{"secret", "filter", "hmac-header", "hmac-prefix", "amqp-queue"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// webhook returns what the flags describe: a webhook without executions.
func (f *hookFlags) webhook(name string) (belay.Webhook, error) {
	h := belay.Webhook{
		Name: name, Scheme: belay.WebhookScheme(f.scheme), Filter: f.filter, MaxBytes: f.maxBytes, Rate: f.rate,
	}
	switch signed := h.Scheme == belay.SchemeHMAC; {
	case f.scheme == "":
		return h, usage("say with --scheme how the sender signs: %s", strings.Join(schemes, ", "))
	case !slices.Contains(schemes, f.scheme):
		return h, usage("--scheme is %s; it can be %s", quoted(f.scheme), strings.Join(schemes, ", "))
	case signed && f.hmac.Header == "":
		return h, usage("the scheme hmac needs the header with the signature, as in: --hmac-header X-Signature")
	case h.Scheme == belay.SchemeAMQP && f.queue == "":
		return h, usage("the scheme amqp needs the name of a queue in RabbitMQ, as in: --amqp-queue orders")
	case h.Scheme != belay.SchemeAMQP && f.queue+f.withoutID != "":
		return h, usage("the flags --amqp-… describe the queue of the scheme amqp, and not of %s", f.scheme)
	case h.Scheme == belay.SchemeAMQP && len(f.secrets) > 0:
		return h, usage("a webhook of amqp has no secret: RabbitMQ decides who may write to the queue")
	case !signed && f.hmac != belay.WebhookHMAC{}:
		return h, usage("the flags --hmac-… describe the signature of the scheme hmac, and not of %s", f.scheme)
	case signed:
		hmac := f.hmac
		h.HMAC = &hmac
	}
	n := len(f.secrets)
	if h.Scheme == belay.SchemeAMQP {
		h.AMQP = &belay.WebhookAMQP{Queue: f.queue, WithoutID: belay.WithoutID(f.withoutID)}
		return h, nil
	}
	if h.Scheme == belay.SchemeCloudEvents {
		if n > 0 {
			return h, usage("a webhook of cloudevents has no secret: the senders of events have keys of the API")
		}
		return h, nil
	}
	if n < 1 || n > 2 {
		return h, usage("name one secret with --secret, or two while one replaces the other; there are %d", n)
	}
	for _, name := range f.secrets {
		reference, err := secretOf("secret", name)
		if err != nil {
			return h, err
		}
		h.Secrets = append(h.Secrets, reference)
	}
	return h, nil
}

var (
	secretName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)
	secretReference = regexp.MustCompile(`^\$\{\{ *secrets\.(\S*) *\}\}$`)
	// likelySecret matches what is a secret rather than its name: the secrets of Standard Webhooks and Stripe begin
	// with whsec_, and many others have hexadecimal digits only.
	likelySecret = regexp.MustCompile(`^(whsec_.*|whsk_.*|[0-9a-f]{32,})$`)
)

// secretOf returns the reference to the secret that the argument of a flag names; the argument may be the reference
// itself. The error does not contain the argument, which may be a secret.
func secretOf(flag, arg string) (string, error) {
	name := arg
	if m := secretReference.FindStringSubmatch(arg); m != nil {
		name = m[1]
	}
	if !secretName.MatchString(name) || likelySecret.MatchString(name) {
		return "", usage("--%s is the name of a secret, such as GITHUB_HOOK: letters, digits and _. Do not give "+
			"the secret itself: the setting secrets.allow of the server says where it is. If you have typed the "+
			"secret, remove it from the history of your shell", flag)
	}
	return "${{ secrets." + name + " }}", nil
}

func (a *app) setWebhookCommand() *cobra.Command {
	var hook hookFlags
	var work submitFlags
	var edit editFlags
	c := &cobra.Command{
		Use:   "set NAME [WORKFLOW] [flags] [-- COMMAND [ARG…]]",
		Short: "Create a webhook, or change it",
		Long: `Create a webhook, or change its signatures and executions. The command line describes the
whole webhook: a flag that is left out has its default. The executions are described as
for belay submit. The texts of the input and the values of labels may have expressions,
which read event.id, event.type, event.source (the name of the webhook), event.headers
(with names in lower case) and event.data (the body). If a part of the body can be
missing, write ?. before the next name. Without --input, the input is the body.

  belay webhooks set build --scheme github --secret GITHUB_HOOK \
    --filter 'event.type == "push"' --input '{"commit": "${{ event.data.after }}"}' review
  belay webhooks set orders --scheme hmac --secret SHOP --hmac-header X-Signature \
    --document order --label 'shop=${{ event.data.shop?.name }}'
  belay webhooks set paid --scheme stripe --secret STRIPE --signal paid \
    --signal-workflow order --signal-key event.data.data.object.client_reference_id

With --signal a delivery sends a signal to an execution, instead of starting one.

--secret is the name of a secret. The configuration of each server must allow the secret
to the webhook with a rule in secrets.allow; belay webhooks set prints this rule. To
replace a secret without a pause, give the old name and the new one until the sender signs
with the new secret.

--scheme says how the sender signs:
  hmac       a keyed hash of the body, which the flags --hmac-… describe
  standard   Standard Webhooks (https://www.standardwebhooks.com)
  github     GitHub, and programs that sign as GitHub does
  gitlab     GitLab: the secret itself in a header, so that nothing protects the body
  stripe     Stripe
  slack      Slack
  cloudevents
             no signature: senders publish events to /v1/cloudevents with a key of the API,
             or by belay publish; event.source is the source of the event
  amqp       no signature: the deliveries are the messages of the queue in RabbitMQ that
             --amqp-queue names; servers with a broker consume it, and never declare it`,
		Args:              namedFirst("webhook", "build --scheme github --secret GITHUB_HOOK --document build"),
		ValidArgsFunction: a.completeWebhooks(),
		RunE: func(c *cobra.Command, args []string) error {
			h, err := hook.webhook(args[0])
			if err != nil {
				return err
			}
			if err := hook.work(c, &h, args[1:], &work); err != nil {
				return err
			}
			return a.setWebhook(c, &belay.WebhookPut{
				Webhook: h, IfVersion: edit.version, IfNew: edit.isNew, Reason: edit.reason, Actor: actor(),
				Op: belay.OpID(embedded.NewID()),
			})
		},
	}
	hook.register(c)
	work.register(a, c)
	// Each --label is one label, since the commas and quotes of an expression do not separate labels.
	whole := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	whole.StringArrayVar(&work.labels, "label", nil, "")
	c.Flags().Lookup("label").Value = whole.Lookup("label").Value
	edit.register(c, "webhook")
	return c
}

// work sets what a delivery leads to: a signal or an execution.
func (f *hookFlags) work(c *cobra.Command, h *belay.Webhook, args []string, work *submitFlags) error {
	var err error
	if f.signal.Name != "" {
		if len(args) > 0 || work.document != "" {
			return usage("a webhook sends a --signal or starts a workflow, not both")
		}
		s := f.signal
		if s.Payload, err = payload("signal-payload", f.signalPayload, belay.MaxSignal, c.InOrStdin()); err != nil {
			return err
		}
		h.Signal = &s
		return nil
	}
	if f.signal.Execution+f.signal.Workflow+f.signal.Key+f.signalPayload != "" {
		return usage("the flags --signal-… describe a --signal, which is missing")
	}
	if h.Execution, err = work.described(args, c.ArgsLenAtDash()-1, c.InOrStdin()); err != nil {
		return err
	}
	return completeExecution(&h.Execution, work)
}

// completeExecution makes a submission the description of a webhook's executions, whose inputs and labels may contain
// expressions.
func completeExecution(x *belay.Submission, f *submitFlags) error {
	x.ID, x.Actor = belay.ExecutionID{}, ""
	given, err := pairs("label", f.labels)
	if err != nil {
		return err
	}
	// Belay has shortened the command for its label, perhaps within an expression.
	if given[agent.LabelCommand] == "" && strings.Contains(x.Labels[agent.LabelCommand], "${") {
		delete(x.Labels, agent.LabelCommand)
	}
	if len(x.Input) > 0 && !strings.Contains(string(x.Input), "${{") {
		return checkInput(x.Workflow, x.Input)
	}
	return nil
}

func (a *app) setWebhook(c *cobra.Command, p *belay.WebhookPut) error {
	ctx := named(c)
	b, err := a.backend(ctx, c.CommandPath())
	if err != nil {
		return err
	}
	r, err := b.PutWebhook(ctx, *p)
	switch {
	case err != nil:
	case a.output == "json":
		err = screen.PrintJSON(a.out, wire.WebhookOf(&r.WebhookInfo))
	default:
		a.printWebhookPut(&r)
	}
	return closing(b, err)
}

// printWebhookPut prints the result of a put. After the creation of a webhook, or while one secret replaces
// another, it also prints what the operator must do next.
func (a *app) printWebhookPut(r *belay.WebhookPutResult) {
	a.printEdited(r.Name, r.Created, r.Changed, r.Version)
	if r.Paused != nil {
		fmt.Fprintf(a.out, "it is paused; belay webhooks resume %s continues it\n", r.Name)
	}
	if r.Scheme == belay.SchemeAMQP {
		fmt.Fprintf(a.out, "\nServers with a broker consume the queue %s; belay webhooks get %s shows how. The queue\n"+
			"should have a dead-letter exchange, which gets the messages that are refused.\n",
			screen.Line(r.AMQP.Queue), r.Name)
		return
	}
	if r.Scheme == belay.SchemeCloudEvents {
		if r.Created {
			fmt.Fprintln(a.out, "\nEvents come from belay publish, or from senders that post to /v1/cloudevents of a "+
				"server.")
		}
		return
	}
	if r.Created {
		fmt.Fprintf(a.out, "\nThe sender posts its deliveries to:\n  %s\n", a.hookAddress(r.Name))
	}
	if !r.Created && (!r.Changed || len(r.Secrets) < 2) {
		return
	}
	names := secretNames(&r.Webhook)
	rules := make([]string, len(names))
	for i, name := range names {
		rules[i] = name + " for webhook:" + r.Name
	}
	a.printAllow("the webhook", names, rules)
}

// printAllow prints the rules of secrets.allow that whom needs. rules[i] is the rule for the secret names[i], and
// begins with its name.
func (a *app) printAllow(whom string, names, rules []string) {
	list := make([]string, len(rules))
	for i, rule := range rules {
		list[i] = fmt.Sprintf("%q", rule)
	}
	fmt.Fprintf(a.out, `
Allow %s to use %s, in the configuration of each server:
  secrets: {allow: [%s]}
A secret is the environment variable with its name. If it is in a file, the rule is
like "%s from file:/etc/belay/hook%s".
`, whom, strings.Join(names, " and "), strings.Join(list, ", "), names[0], strings.TrimPrefix(rules[0], names[0]))
}

func (a *app) pauseWebhookCommand() *cobra.Command {
	return a.changeWebhookCommand(belay.WebhookPauseAction, "pause NAME", "Pause a webhook",
		`Pause a webhook: its deliveries are refused with 503, so that senders repeat them later.
Executions that run go on.`)
}

func (a *app) resumeWebhookCommand() *cobra.Command {
	return a.changeWebhookCommand(belay.WebhookResume, "resume NAME", "Resume a webhook", "Resume a webhook.")
}

func (a *app) removeWebhookCommand() *cobra.Command {
	return a.changeWebhookCommand(belay.WebhookRemove, "rm NAME", "Remove a webhook",
		`Remove a webhook, with the deliveries that it remembers. Executions that it has started go
on.`)
}

func (a *app) changeWebhookCommand(action belay.WebhookAction, use, short, long string) *cobra.Command {
	return a.editCommand(&cobra.Command{Use: use, Short: short, Long: long}, "the name of a webhook",
		a.completeWebhooks(), func(ctx context.Context, b belay.Backend, name, reason string) error {
			h, err := b.ChangeWebhook(ctx, belay.WebhookChange{
				Name: name, Action: action, Reason: reason, Actor: actor(), Op: belay.OpID(embedded.NewID()),
			})
			switch {
			case err != nil:
				return err
			case a.output == "json" && action == belay.WebhookRemove: // of a removed webhook only the name is known
				return screen.PrintJSON(a.out, map[string]string{"name": name})
			case a.output == "json":
				return screen.PrintJSON(a.out, wire.WebhookOf(&h))
			}
			fmt.Fprintf(a.out, "%s is %sd\n", name, action)
			return nil
		})
}
