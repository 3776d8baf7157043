package webui

import (
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// webhookDeeds are the deeds on webhooks and their deliveries.
var webhookDeeds = []deed{
	{
		of: ofWebhook, name: "pause", label: "Pause", do: changeWebhook(belay.WebhookPauseAction),
		about: "Deliveries are refused, so that senders repeat them later, and messages wait in their queue.",
	},
	{
		of: ofWebhook, name: "resume", label: "Resume", do: changeWebhook(belay.WebhookResume),
		about: "The webhook accepts deliveries again.",
	},
	{
		of: ofWebhook, name: "test", label: "Make a test delivery", unexplained: true, also: belay.ScopeSubmit,
		about: "A delivery without a signature starts an execution, as a delivery of the sender would, also while the " +
			"webhook is paused.",
		fields: []field{
			{
				Name: "delivery", Kind: "line", Label: "Id", Required: true,
				About: "An id that was delivered before starts nothing.",
			},
			{Name: "type", Kind: "line", Label: "Type", About: "The sender's name of the event, as in push."},
			{Name: "data", Kind: "text", Label: "Data", Rows: 8, About: "JSON: the body of the delivery."},
			{Name: "headers", Kind: "text", Label: "Headers", Rows: 2, About: "NAME=VALUE, one in each line."},
		},
		preset: func(context.Context, belay.Backend, string) (url.Values, error) {
			return url.Values{"delivery": {"test-" + newOp()[:10]}, "data": {"{}"}}, nil
		},
		do: testWebhook,
	},
	{
		of: ofWebhook, name: "change", label: "Change", also: belay.ScopeSubmit, preset: presetWebhook, do: editWebhook,
		about: "The webhook gets other secrets, another filter or another rate. With two secrets, signatures with either " +
			"are right, so that one can be replaced without a pause.",
		fields: []field{
			{
				Name: "secret1", Kind: "line", Label: "Secret",
				About: "The name of a secret in the configuration of the server.",
			},
			{Name: "secret2", Kind: "line", Label: "Second secret", About: "While one secret replaces the other."},
			{Name: "filter", Kind: "text", Label: "Filter", Rows: 2, About: `An expression, as in event.type == "push". ` +
				"Empty: every delivery counts."},
			{Name: "rate", Kind: "line", Label: "Deliveries per second", Numeric: true, About: "Empty: the default."},
		},
	},
	{
		of: ofWebhook, name: "remove", label: "Remove", danger: true, do: changeWebhook(belay.WebhookRemove),
		about: "The webhook is removed, and its deliveries are refused. Executions that it has started go on.",
	},
	{
		of: ofDelivery, name: "replay", label: "Replay", unexplained: true, do: replayDelivery,
		about: "The delivery starts another execution, or sends its signal again, by the terms that the webhook has now. " +
			"The filter does not apply.",
	},
}

func changeWebhook(a belay.WebhookAction) doer {
	return func(ctx context.Context, b belay.Backend, o order) (string, error) {
		_, err := b.ChangeWebhook(ctx, belay.WebhookChange{
			Name: o.id, Action: a, Actor: o.actor, Reason: o.reason, Op: o.op,
		})
		if a == belay.WebhookRemove {
			return "/webhooks", err
		}
		return "", err
	}
}

// delivered returns the page of the execution that a delivery has started.
func delivered(d belay.WebhookDelivery, err error) (string, error) {
	switch {
	case err != nil:
		return "", err
	case d.Outcome == belay.DeliveryFailed:
		return "", &belay.Error{Code: belay.CodeConflict, Message: "the delivery starts nothing: " + d.Text}
	case !d.Execution.IsZero():
		return "/executions/" + d.Execution.String(), nil
	}
	return "", nil
}

func replayDelivery(ctx context.Context, b belay.Backend, o order) (string, error) {
	name, id, ok := strings.Cut(o.id, "/")
	if !ok {
		return "", nothingThere()
	}
	return delivered(b.ReplayDelivery(ctx, belay.WebhookReplay{Webhook: name, ID: id, Actor: o.actor, Op: o.op}))
}

func testWebhook(ctx context.Context, b belay.Backend, o order) (string, error) {
	data, err := jsonOf(o.form.Get("data"))
	if err != nil {
		return "", err
	}
	if data == nil {
		data = json.RawMessage("null")
	}
	headers, err := labelLines(o.form.Get("headers"))
	if err != nil {
		return "", err
	}
	return delivered(b.Deliver(ctx, belay.WebhookEvent{
		Webhook: o.id, ID: strings.TrimSpace(o.form.Get("delivery")), Type: strings.TrimSpace(o.form.Get("type")),
		Headers: headers, Data: data, By: "test", Actor: o.actor,
	}))
}

// secretReference matches a reference to a secret.
var secretReference = regexp.MustCompile(`^\$\{\{ *secrets\.([A-Za-z0-9_]+) *\}\}$`)

func presetWebhook(ctx context.Context, b belay.Backend, name string) (url.Values, error) {
	h, err := b.Webhook(ctx, name)
	if err != nil {
		return nil, err
	}
	form := url.Values{"filter": {h.Filter}, "version": {strconv.Itoa(h.Version)}}
	for i, s := range h.Secrets[:min(len(h.Secrets), 2)] {
		if m := secretReference.FindStringSubmatch(s); m != nil {
			form.Set("secret"+strconv.Itoa(i+1), m[1])
		}
	}
	if h.Rate > 0 {
		form.Set("rate", strconv.Itoa(h.Rate))
	}
	return form, nil
}

// seenVersion returns the version that the person has seen when the form was opened.
func seenVersion(form url.Values) (int, error) {
	n, err := strconv.Atoi(form.Get("version"))
	if err != nil || n < 1 {
		return 0, incomplete()
	}
	return n, nil
}

func editWebhook(ctx context.Context, b belay.Backend, o order) (string, error) {
	version, err := seenVersion(o.form)
	if err != nil {
		return "", err
	}
	h, err := b.Webhook(ctx, o.id)
	if err != nil {
		return "", err
	}
	put := belay.WebhookPut{Webhook: h.Webhook, IfVersion: version, Actor: o.actor, Reason: o.reason, Op: o.op}
	put.Secrets, put.Filter, put.Rate = nil, strings.TrimSpace(o.form.Get("filter")), 0
	for _, field := range []string{"secret1", "secret2"} {
		if name := strings.TrimSpace(o.form.Get(field)); name != "" {
			put.Secrets = append(put.Secrets, "${{ secrets."+name+" }}")
		}
	}
	if text := strings.TrimSpace(o.form.Get("rate")); text != "" {
		if put.Rate, err = strconv.Atoi(text); err != nil {
			return "", invalidField("the rate is a whole number")
		}
	}
	_, err = b.PutWebhook(ctx, put)
	return "", err
}

// webhookOffers returns the deeds on a webhook. A document that defines it decides about its terms.
func webhookOffers(ctx context.Context, h *belay.WebhookInfo) []offer {
	names := []string{"pause", "test"}
	if h.Paused != nil {
		names[0] = "resume"
	}
	if h.DefinedBy == "" {
		names = append(names, "change", "remove")
	}
	return deedsOn(ctx, ofWebhook, h.Name, names...)
}

// targetDeeds are the deeds on targets of notifications.
var targetDeeds = []deed{
	{
		of: ofTarget, name: "pause", label: "Pause", do: changeTarget(belay.NotificationTargetPause),
		about: "The target gets nothing until an operator resumes it. Nothing of this time is sent later.",
	},
	{
		of: ofTarget, name: "resume", label: "Resume", do: changeTarget(belay.NotificationTargetResume),
		about: "The target gets notifications again.",
	},
	{
		of: ofTarget, name: "test", label: "Send a test", unexplained: true, do: testTarget,
		about: "The target gets a test, also while it is paused. The page of the delivery then shows whether it was received.",
	},
	{
		of: ofTarget, name: "change", label: "Change", also: belay.ScopeSubmit, preset: presetTarget, do: editTarget,
		about: "The target gets other notifications. Its address stays as it is.",
		fields: []field{
			{
				Name: "on", Kind: "checks", Label: "Ends of executions", Options: endOptions(),
				About: "None: failures, or, if there are alerts below, no ends.",
			},
			{Name: "alerts", Kind: "checks", Label: "Alerts", Options: alertOptions()},
			{
				Name: "workflows", Kind: "text", Label: "Workflows", Rows: 3,
				About: "Each line is a name; an asterisk stands for any text. Empty: all.",
			},
			{Name: "queues", Kind: "text", Label: "Queues", Rows: 3, About: "Likewise."},
			{
				Name: "labels", Kind: "text", Label: "Labels", Rows: 3,
				About: "NAME=VALUE, one in each line: only executions with all of them.",
			},
		},
	},
	{
		of: ofTarget, name: "remove", label: "Remove", danger: true, do: changeTarget(belay.NotificationTargetRemove),
		about: "The target is removed. Deliveries that were created go on.",
	},
}

func endOptions() []option {
	var all []option
	for s := belay.Succeeded; s <= belay.Cancelled; s++ {
		all = append(all, option{Value: s.String(), Label: s.String()})
	}
	return all
}

func alertOptions() []option {
	var all []option
	for _, a := range belay.Alerts {
		all = append(all, option{Value: string(a), Label: strings.ReplaceAll(string(a), "_", " ")})
	}
	return all
}

func changeTarget(a belay.NotificationTargetAction) doer {
	return func(ctx context.Context, b belay.Backend, o order) (string, error) {
		_, err := b.ChangeNotificationTarget(ctx, belay.NotificationTargetChange{
			Name: o.id, Action: a, Actor: o.actor, Reason: o.reason, Op: o.op,
		})
		if a == belay.NotificationTargetRemove {
			return "/notifications", err
		}
		return "", err
	}
}

func testTarget(ctx context.Context, b belay.Backend, o order) (string, error) {
	id, err := b.TestNotificationTarget(ctx, belay.NotificationTargetTest{Name: o.id, Actor: o.actor, Op: o.op})
	return "/executions/" + id.String(), err
}

func presetTarget(ctx context.Context, b belay.Backend, name string) (url.Values, error) {
	t, err := b.NotificationTarget(ctx, name)
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"version": {strconv.Itoa(t.Version)}, "workflows": {strings.Join(t.Workflows, "\n")},
		"queues": {strings.Join(t.Queues, "\n")}, "labels": {labelText(t.Labels)},
	}
	for _, s := range t.On {
		form.Add("on", s.String())
	}
	for _, a := range t.Alerts {
		form.Add("alerts", string(a))
	}
	return form, nil
}

func editTarget(ctx context.Context, b belay.Backend, o order) (string, error) {
	version, err := seenVersion(o.form)
	if err != nil {
		return "", err
	}
	t, err := b.NotificationTarget(ctx, o.id)
	if err != nil {
		return "", err
	}
	put := belay.NotificationTargetPut{
		NotificationTarget: t.NotificationTarget, IfVersion: version, Actor: o.actor, Reason: o.reason, Op: o.op,
	}
	put.On, put.Alerts, put.Workflows, put.Queues = nil, nil, textLines(o.form.Get("workflows")),
		textLines(o.form.Get("queues"))
	for _, word := range o.form["on"] {
		var s belay.State
		if err := s.UnmarshalText([]byte(word)); err != nil {
			return "", err
		}
		put.On = append(put.On, s)
	}
	for _, word := range o.form["alerts"] {
		put.Alerts = append(put.Alerts, belay.Alert(word))
	}
	if put.Labels, err = labelLines(o.form.Get("labels")); err != nil {
		return "", err
	}
	_, err = b.PutNotificationTarget(ctx, put)
	return "", err
}

// textLines returns the lines of a text that are not empty.
func textLines(text string) []string {
	var all []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			all = append(all, l)
		}
	}
	return all
}

// targetOffers returns the deeds on a target.
func targetOffers(ctx context.Context, t *belay.NotificationTargetInfo) []offer {
	pause := "pause"
	if t.Paused != nil {
		pause = "resume"
	}
	return deedsOn(ctx, ofTarget, t.Name, pause, "test", "change", "remove")
}
