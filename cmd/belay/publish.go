package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/webhook"
)

// maxEventsFile is the largest size of a file with CloudEvents, in bytes.
const maxEventsFile = 4 << 20

// publishing has the flags of belay publish.
type publishing struct {
	file, body string
	extensions []string
	event      belay.CloudEvent
}

func (a *app) publishCommand() *cobra.Command {
	var p publishing
	c := &cobra.Command{
		Use: "publish", Short: "Publish a CloudEvent, which starts executions by webhooks of CloudEvents",
		Long: `Publish CloudEvents 1.0. Each webhook of the scheme cloudevents whose filter is true for an event
starts an execution, once for the source and the id of the event. The exit code is 1 if no
execution can be made of an event.

  belay webhooks set orders ship --scheme cloudevents --filter 'event.type == "order.paid"'
  belay publish --type order.paid --source /shop --id 4711 --body '{"order": 4711}'
  belay publish --file events.json         an event as JSON, or a list of events; - for
                                           standard input`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			events, err := p.events(c)
			if err != nil {
				return err
			}
			return a.publish(c, events)
		},
	}
	f := c.Flags()
	f.StringVar(&p.file, "file", "", "read the events from this `file`, in the JSON format of CloudEvents")
	f.StringVar(&p.event.Type, "type", "", "the `type` of the event")
	f.StringVar(&p.event.Source, "source", "", "the `source` of the event, a URI such as /shop")
	f.StringVar(&p.event.ID, "id", "", "the `id` of the event, unique within the source; by default a new one")
	f.StringVar(&p.event.Subject, "subject", "", "the `subject` of the event")
	f.StringVar(&p.body, "body", "", "the data of the event, as `JSON`, @FILE, or - for standard input")
	f.StringArrayVar(&p.extensions, "extension", nil, "another attribute, as `name=value`; may be repeated")
	return c
}

// events are the events that the flags describe, or those of the file.
func (p *publishing) events(c *cobra.Command) ([]belay.CloudEvent, error) {
	if p.file != "" {
		if p.event.Type != "" || p.event.Source != "" || p.body != "" {
			return nil, usage("--file excludes --type, --source and --body")
		}
		source := "@" + p.file
		if p.file == "-" {
			source = "-"
		}
		text, err := payload("file", source, maxEventsFile, c.InOrStdin())
		if err != nil {
			return nil, err
		}
		kind := "application/cloudevents+json"
		if strings.HasPrefix(strings.TrimSpace(string(text)), "[") {
			kind = "application/cloudevents-batch+json"
		}
		return webhook.CloudEvents(http.Header{"Content-Type": {kind}}, text)
	}
	if p.event.Type == "" || p.event.Source == "" {
		return nil, usage("give --type and --source, or --file")
	}
	var err error
	if p.event.Extensions, err = pairs("extension", p.extensions); err != nil {
		return nil, err
	}
	if p.event.Data, err = payload("body", p.body, belay.MaxDeliveryBytes, c.InOrStdin()); err != nil {
		return nil, err
	}
	if len(p.event.Data) > 0 {
		p.event.DataContentType = "application/json"
	}
	if p.event.ID == "" {
		p.event.ID = strings.TrimPrefix(belay.ExecutionID(embedded.NewID()).String(), "ex_")
	}
	return []belay.CloudEvent{p.event}, nil
}

// publish publishes events and prints their results.
func (a *app) publish(c *cobra.Command, events []belay.CloudEvent) error {
	ctx := named(c)
	return a.writing(ctx, func(b belay.Backend) error {
		results, err := b.Publish(ctx, belay.CloudEventPublish{Events: events, Actor: actor()})
		if err != nil {
			return err
		}
		if a.output == "json" {
			err = screen.PrintJSON(a.out, results)
		} else {
			err = a.printPublished(results)
		}
		for i := range results {
			for _, d := range results[i].Deliveries {
				if err == nil && d.Outcome == belay.DeliveryFailed {
					return exitCode(1)
				}
			}
		}
		return err
	})
}

func (a *app) printPublished(results []belay.CloudEventResult) error {
	t := screen.NewTable(a.out, "EVENT", "WEBHOOK", "OUTCOME", "EXECUTION", "ABOUT")
	rows := 0
	for i := range results {
		r := &results[i]
		for _, d := range r.Deliveries {
			about := screen.Brief(strings.TrimPrefix(d.Text, "webhook: "), 60)
			t.Row(r.ID, d.Webhook, string(d.Outcome), idOrDash(d.Execution), dash(about))
			rows++
		}
		if len(r.Deliveries) == 0 {
			t.Row(r.ID, "-", "no webhook wants it", "-", "-")
			rows++
		}
	}
	if rows == 0 {
		_, err := fmt.Fprintln(a.out, "no events")
		return err
	}
	return t.Flush()
}
