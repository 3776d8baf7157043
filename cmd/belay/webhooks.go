package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/wire"
)

func (a *app) webhooksCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "webhooks", Short: "Start executions for signed HTTP requests", Args: none,
		Long: `Start executions for signed HTTP requests, such as those of GitHub or Stripe. A sender
posts a delivery to /hooks/NAME of a server. The signature stands in the place of an API
key. Each delivery starts one execution, however often the sender repeats it.

  belay webhooks set build --scheme github --secret GITHUB_HOOK review
                                           each delivery starts the workflow review
  belay webhooks ls                        list the webhooks
  belay webhooks get build                 the address for the sender, the newest deliveries
                                           and the newest refused requests
  belay webhooks test build --type push --body @push.json
                                           a delivery without a signature, as a test
  belay webhooks deliveries build --outcome failed
  belay webhooks delivery build ID         a delivery with its data
  belay webhooks replay build ID           start another execution of a delivery
  belay webhooks pause build               refuse deliveries until belay webhooks resume

belay ls --label webhook=build lists the executions of a webhook.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.setWebhookCommand(), a.webhooksLsCommand(), a.webhooksGetCommand(), a.pauseWebhookCommand(),
		a.resumeWebhookCommand(), a.removeWebhookCommand(), a.deliveriesCommand(), a.deliveryCommand(),
		a.replayCommand(), a.testWebhookCommand())
	return c
}

// completeWebhooks offers the names of webhooks to the shell.
func (a *app) completeWebhooks() cobra.CompletionFunc {
	return a.completeNamed(func(ctx context.Context, r reader) (names []string, err error) {
		page, err := r.Webhooks(ctx, belay.WebhookFilter{Limit: 100})
		for i := range page.Webhooks {
			h := &page.Webhooks[i]
			names = append(names, fmt.Sprintf("%s\t%s, %s", h.Name, h.Scheme, leadsTo(&h.Webhook)))
		}
		return names, err
	})
}

func (a *app) webhooksLsCommand() *cobra.Command {
	return a.listCommand("webhooks", `List the webhooks with the numbers of their deliveries by outcome: started, filtered (the
filter was false) or failed (no execution could be made of it).`, a.listWebhooks)
}

func (a *app) listWebhooks(ctx context.Context, r reader, limit int) error {
	all, err := upTo(a, limit, func(cursor string, most int) ([]belay.WebhookInfo, string, error) {
		page, err := r.Webhooks(ctx, belay.WebhookFilter{Cursor: cursor, Limit: most})
		return page.Webhooks, page.Next, err
	})
	if err != nil {
		return err
	}
	if a.output == "json" {
		return screen.PrintJSON(a.out, wired(all, wire.WebhookOf))
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no webhooks; belay webhooks set makes one")
		return nil
	}
	t := screen.NewTable(a.out, "NAME", "SCHEME", "LEADS TO", "DELIVERIES", "PAUSED", "DEFINED BY")
	for i := range all {
		h := &all[i]
		paused := "-"
		if h.Paused != nil {
			paused = since(h.Paused.At) + " ago"
		}
		t.Row(h.Name, string(h.Scheme), leadsTo(&h.Webhook), dash(deliveryCounts(h)), paused, dash(h.DefinedBy))
	}
	return t.Flush()
}

func deliveryCounts(h *belay.WebhookInfo) string {
	return countsOf(h.Deliveries, belay.DeliveryStarted, belay.DeliverySignalled, belay.DeliveryFiltered,
		belay.DeliveryFailed)
}

func (a *app) webhooksGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get NAME", Short: "Show a webhook, its newest deliveries and the newest refused requests",
		Args: exactly("the name of a webhook"), ValidArgsFunction: a.completeWebhooks(),
		Long: `Show a webhook, its newest deliveries and the newest requests that were refused, for
example because their signatures were wrong. Each server remembers the requests that it
has refused itself since its start, so only a server shows them.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(r reader) error {
				h, err := r.Webhook(c.Context(), args[0])
				if err != nil {
					return err
				}
				return a.printWebhook(&h)
			})
		},
	}
	return a.readFlag(c)
}

// shownDeliveries is how many deliveries belay webhooks get shows; belay webhooks deliveries shows all.
const shownDeliveries = 10

func (a *app) printWebhook(h *belay.WebhookInfo) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, wire.WebhookOf(h))
	}
	line := func(name, text string) { fmt.Fprintf(a.out, "%-10s %s\n", name, screen.Line(text)) }
	line("webhook", h.Name)
	address := a.hookAddress(h.Name)
	switch {
	case h.Scheme == belay.SchemeCloudEvents:
		address = "/v1/cloudevents of the server, or belay publish"
	case h.AMQP != nil:
		address = "the queue " + h.AMQP.Queue + " in RabbitMQ"
	}
	line("address", address)
	if c := h.Consumer; c != nil {
		line("consumer", consumerOf(c))
	}
	line("scheme", schemeOf(&h.Webhook))
	if h.Scheme.Signs() {
		line("secrets", strings.Join(secretNames(&h.Webhook), " or "))
	}
	if h.Filter != "" {
		line("filter", h.Filter)
	}
	if x := h.Signal; x != nil {
		to := "the execution " + x.Execution
		if x.Key != "" {
			to = "the execution of " + x.Workflow + " with the key " + x.Key
		}
		line("signals", x.Name+" to "+to)
	} else {
		line("starts", startsOf(&h.Execution))
	}
	input := "event.data"
	if len(h.Execution.Input) > 0 {
		input = screen.Brief(string(h.Execution.Input), 100)
	}
	if h.Signal != nil && len(h.Signal.Payload) > 0 {
		input = screen.Brief(string(h.Signal.Payload), 100)
	}
	line("input", input)
	for _, name := range slices.Sorted(maps.Keys(h.Execution.Labels)) {
		line("label", name+"="+h.Execution.Labels[name])
	}
	limits := fmt.Sprintf("%d bytes", h.MaxBytes)
	if h.Rate > 0 {
		limits += fmt.Sprintf(", %d deliveries per second and server", h.Rate)
	}
	line("limits", limits)
	definedBy(line, h.DefinedBy)
	line("version", fmt.Sprintf("%d, changed %s ago%s", h.Version, since(h.UpdatedAt), by(h.UpdatedBy)))
	if p := h.Paused; p != nil {
		line("paused", done(since(p.At)+" ago", p.By, p.Reason))
	}
	if counts := deliveryCounts(h); counts != "" {
		line("deliveries", counts)
	}
	if len(h.Recent) > 0 {
		fmt.Fprintln(a.out)
	}
	if err := a.printDeliveries(h.Recent[:min(shownDeliveries, len(h.Recent))]); err != nil || len(h.Refused) == 0 {
		return err
	}
	fmt.Fprintln(a.out)
	t := screen.NewTable(a.out, "AGO", "REFUSED FROM", "WHY")
	for _, r := range h.Refused {
		t.Row(since(r.At), r.From, r.Text)
	}
	return t.Flush()
}

// consumerOf describes how a server consumes the queue of a webhook.
func consumerOf(c *belay.WebhookConsumer) string {
	text := "none"
	switch {
	case c.Consuming:
		text = "the server has consumed the queue for " + since(c.Since)
	case !c.Since.IsZero():
		text = "none for " + since(c.Since)
	}
	if c.Text != "" {
		text += ": " + c.Text
	}
	return text
}

// hookAddress is the address for the sender of a webhook.
func (a *app) hookAddress(name string) string {
	path := "/hooks/" + name
	if strings.HasPrefix(a.server, "http://") || strings.HasPrefix(a.server, "https://") {
		return strings.TrimRight(a.server, "/") + path
	}
	return path + " of the server (belay serve)"
}

// secretNames are the names of the secrets with which the senders of a webhook sign.
func secretNames(h *belay.Webhook) []string {
	names := make([]string, len(h.Secrets))
	for i, reference := range h.Secrets {
		names[i] = strings.TrimPrefix(strings.Trim(reference, "${} "), "secrets.")
	}
	return names
}

// schemeOf describes how the senders of a webhook sign.
func schemeOf(h *belay.Webhook) string {
	s := h.HMAC
	if s == nil {
		return string(h.Scheme)
	}
	text := fmt.Sprintf("%s: %s in %s in the header %s", h.Scheme, cmp.Or(s.Algorithm, hmacAlgorithms[0]),
		cmp.Or(s.Encoding, hmacEncodings[0]), s.Header)
	if s.Prefix != "" {
		text += " after " + quoted(s.Prefix)
	}
	if s.TimestampHeader != "" {
		text += ", the time in " + s.TimestampHeader
	}
	if s.IDHeader != "" {
		text += ", the id in " + s.IDHeader
	}
	return text
}

// leadsTo describes in short what the deliveries of a webhook lead to.
func leadsTo(h *belay.Webhook) string {
	if h.Signal != nil {
		return "signal " + h.Signal.Name
	}
	return startsOf(&h.Execution)
}
