package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

// completeDeliveries offers the names of webhooks to the shell, and then the ids of deliveries.
func (a *app) completeDeliveries(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completeWebhooks()(c, args, typed)
	}
	var ids []string
	_ = a.reading(c.Context(), func(r reader) error {
		h, err := r.Webhook(c.Context(), args[0])
		for i := range h.Recent {
			d := &h.Recent[i]
			ids = append(ids, fmt.Sprintf("%s\t%s %s ago", d.ID, d.Outcome, since(d.At)))
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// printDeliveries prints a table of deliveries; nothing if there are none.
func (a *app) printDeliveries(list []belay.WebhookDelivery) error {
	if len(list) == 0 {
		return nil
	}
	head := []string{"AGO", "OUTCOME", "EXECUTION", "ID", "ABOUT"}
	if a.wide() {
		head = append(head, "BYTES")
	}
	t := screen.NewTable(a.out, head...)
	for i := range list {
		d := &list[i]
		row := []string{since(d.At), string(d.Outcome), idOrDash(d.Execution), d.ID, dash(aboutDelivery(d))}
		if a.wide() {
			row = append(row, fmt.Sprint(d.Bytes))
		}
		t.Row(row...)
	}
	return t.Flush()
}

// aboutDelivery is the type of a delivery, whether it is a test or a replay, and why it failed.
func aboutDelivery(d *belay.WebhookDelivery) string {
	why := screen.Brief(strings.TrimPrefix(d.Text, "webhook: "), 40)
	parts := slices.DeleteFunc([]string{d.Type, d.By, why}, func(s string) bool { return s == "" })
	return strings.Join(parts, ", ")
}

// rememberedOutcomes are the outcomes of the deliveries that a webhook remembers.
var rememberedOutcomes = []string{
	string(belay.DeliveryStarted), string(belay.DeliverySignalled), string(belay.DeliveryFiltered),
	string(belay.DeliveryFailed),
}

func (a *app) deliveriesCommand() *cobra.Command {
	outcome := ""
	c := &cobra.Command{
		Use: "deliveries NAME", Short: "List the newest deliveries of a webhook",
		Long: fmt.Sprintf(`List the newest deliveries of a webhook, %d at most, without duplicates: started, filtered
(the filter was false) or failed (no execution could be made of it).`, belay.MaxRecentDeliveries),
		Args: exactly("the name of a webhook"), ValidArgsFunction: a.completeWebhooks(),
		RunE: func(c *cobra.Command, args []string) error {
			if outcome != "" && !slices.Contains(rememberedOutcomes, outcome) {
				return usage("--outcome is %s; it can be %s", quoted(outcome), strings.Join(rememberedOutcomes, ", "))
			}
			return a.reading(c.Context(), func(r reader) error {
				h, err := r.Webhook(c.Context(), args[0])
				if err != nil {
					return err
				}
				list := slices.DeleteFunc(slices.Clone(h.Recent), func(d belay.WebhookDelivery) bool {
					return outcome != "" && string(d.Outcome) != outcome
				})
				if a.output == "json" {
					return screen.PrintJSON(a.out, append([]belay.WebhookDelivery{}, list...))
				}
				if len(list) == 0 {
					fmt.Fprintln(a.out, "no deliveries")
				}
				return a.printDeliveries(list)
			})
		},
	}
	c.Flags().StringVar(&outcome, "outcome", "",
		"list only deliveries with this `outcome`: "+strings.Join(rememberedOutcomes, ", "))
	_ = c.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(rememberedOutcomes,
		cobra.ShellCompDirectiveNoFileComp))
	return a.readFlag(c)
}

func (a *app) deliveryCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "delivery NAME ID", Short: "Show one of the newest deliveries, with its headers and data",
		Args: exactly("the name of a webhook", "the id of a delivery"), ValidArgsFunction: a.completeDeliveries,
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(r reader) error {
				d, err := r.WebhookDelivery(c.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				return a.printDeliveryData(&d)
			})
		},
	}
	return a.readFlag(c)
}

func (a *app) printDeliveryData(d *belay.WebhookDeliveryData) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, d)
	}
	t := screen.NewTable(a.out, "DELIVERY", d.ID)
	t.Row("received", since(d.At)+" ago")
	t.Row("type", dash(d.Type))
	if d.By != "" {
		t.Row("by", d.By)
	}
	t.Row("outcome", string(d.Outcome))
	if d.Text != "" {
		t.Row("reason", d.Text)
	}
	t.Row("execution", idOrDash(d.Execution))
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		t.Row("header", name+": "+d.Headers[name])
	}
	if err := t.Flush(); err != nil || len(d.Data) == 0 {
		return err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, screen.Escaped(d.Data), "", "  "); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "\n%s\n", text.Bytes())
	return nil
}

func (a *app) replayCommand() *cobra.Command {
	return &cobra.Command{
		Use: "replay NAME ID", Short: "Start another execution of one of the newest deliveries",
		Long: `Start another execution of one of the newest deliveries, by the terms that the webhook has
now. The filter does not apply, and the webhook may be paused. The exit code is 1 if no
execution can be made of the delivery.`,
		Args: exactly("the name of a webhook", "the id of a delivery"), ValidArgsFunction: a.completeDeliveries,
		RunE: func(c *cobra.Command, args []string) error {
			return a.delivering(c, func(ctx context.Context, b belay.Backend) (belay.WebhookDelivery, error) {
				return b.ReplayDelivery(ctx, belay.WebhookReplay{
					Webhook: args[0], ID: args[1], Actor: actor(), Op: belay.OpID(embedded.NewID()),
				})
			})
		},
	}
}

func (a *app) testWebhookCommand() *cobra.Command {
	var id, kind, body string
	var headers []string
	c := &cobra.Command{
		Use: "test NAME", Short: "Make a delivery without a signature, as a test",
		Long: `Make a delivery without a signature, as a test. It starts an execution as a delivery of the
sender would, also while the webhook is paused. The exit code is 1 if no execution can be
made of the delivery.

  belay webhooks test build --type push --body '{"after": "3f2a9c1"}'
  belay webhooks test build --body @push.json --header x-github-event=push`,
		Args: exactly("the name of a webhook"), ValidArgsFunction: a.completeWebhooks(),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := payload("body", body, belay.MaxDeliveryBytes, c.InOrStdin())
			if err != nil {
				return err
			}
			if len(data) == 0 {
				data = []byte("{}")
			}
			named, err := pairs("header", headers)
			if err != nil {
				return err
			}
			lower := make(map[string]string, len(named))
			for name, value := range named {
				lower[strings.ToLower(name)] = value
			}
			if id == "" {
				id = "test-" + strings.TrimPrefix(belay.ExecutionID(embedded.NewID()).String(), "ex_")
			}
			return a.delivering(c, func(ctx context.Context, b belay.Backend) (belay.WebhookDelivery, error) {
				return b.Deliver(ctx, belay.WebhookEvent{
					Webhook: args[0], ID: id, Type: kind, Headers: lower, Data: data, By: "test", Actor: actor(),
				})
			})
		},
	}
	c.Flags().StringVar(&id, "id", "", "the `id` of the delivery; a repeat with the same id starts nothing. By default a new one")
	c.Flags().StringVar(&kind, "type", "", "the `name` of the event, which expressions read as event.type")
	c.Flags().StringVar(&body, "body", "", "the body, as `JSON`, @FILE, or - for standard input; by default {}")
	c.Flags().StringArrayVar(&headers, "header", nil, "a header for expressions, as `name=value`; may be repeated")
	return c
}

// delivering makes a delivery and prints it. If no execution can be made of the delivery, the exit code is 1.
func (a *app) delivering(
	c *cobra.Command, deliver func(context.Context, belay.Backend) (belay.WebhookDelivery, error),
) error {
	ctx := named(c)
	return a.writing(ctx, func(b belay.Backend) error {
		d, err := deliver(ctx, b)
		switch {
		case err != nil:
			return err
		case a.output == "json":
			err = screen.PrintJSON(a.out, &d)
		default:
			fmt.Fprintf(a.out, "delivery   %s\noutcome    %s\nexecution  %s\n", d.ID, d.Outcome, idOrDash(d.Execution))
		}
		if err == nil && d.Outcome == belay.DeliveryFailed {
			if a.output != "json" {
				fmt.Fprintf(a.err, "belay: failed: %s\n", screen.Line(d.Text))
			}
			err = exitCode(1)
		}
		return err
	})
}
