package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/trigger"
	"github.com/belaydev/belay/internal/webhook"
)

// Parse reads and validates a document with its schedules and webhooks, which definition.Parse does not check fully.
func Parse(file string, text []byte) (*definition.Document, definition.Problems) {
	d, problems := definition.Parse(file, text)
	if d == nil {
		return nil, problems
	}
	if problems = d.On.Check(rules{}); len(problems) > 0 {
		return nil, problems
	}
	return d, nil
}

// Triggers returns the schedules and webhooks that a text defines when it is stored as the document of a name. It does
// not check the other keys of the text. A text that is no document defines none.
func Triggers(op, document, text string) (*definition.Triggers, error) {
	name, t, problems := definition.ParseTriggers(document, text)
	if len(problems) == 0 {
		problems = t.Check(rules{})
	}
	wrong := func(format string, args ...any) error {
		return &belay.Error{Code: belay.CodeInvalid, Op: op, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(problems) > 0:
		return nil, wrong("the document is wrong: %s", problems)
	case len(t.Schedules)+len(t.Webhooks) > 0 && name != document:
		return nil, wrong("the document says name: %.100q, and is stored as %s; make them equal", name, document)
	}
	return t, nil
}

// rules checks schedules and webhooks as the rules do when they are stored. It implements definition.TriggerRules.
type rules struct{}

func (rules) CheckSchedule(s belay.Schedule) error {
	return cmp.Or(freeLabels(s.Execution.Labels), PutSchedule(s, &trigger.Calendar{}).Check())
}

func (rules) CheckWebhook(h belay.Webhook) error {
	return cmp.Or(freeLabels(h.Execution.Labels), PutWebhook(h).Check())
}

// freeLabels refuses the labels that Belay sets when an execution of a document starts.
func freeLabels(labels map[string]string) error {
	for _, own := range []string{belay.LabelDocument, belay.LabelDocumentVersion} {
		if _, given := labels[own]; given {
			return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf("Belay sets the label %s itself", own)}
		}
	}
	return nil
}

// PutSchedule returns the part of machine.ApplyDocument for a schedule.
func PutSchedule(s belay.Schedule, c machine.Calendar) *machine.PutSchedule {
	return &machine.PutSchedule{SchedulePut: belay.SchedulePut{Schedule: s}, Calendar: c}
}

// PutWebhook returns the part of machine.ApplyDocument for a webhook.
func PutWebhook(h belay.Webhook) *machine.PutWebhook {
	return &machine.PutWebhook{WebhookPut: belay.WebhookPut{Webhook: h}, Rules: webhook.Rules{}}
}

// Sample returns the submission that a schedule or webhook of a document would make if the text were stored, for a
// judgement before that.
func Sample(s belay.Submission, document, text string) (belay.Submission, error) {
	return with(s, &belay.Document{DocumentVersion: belay.DocumentVersion{Name: document}, Text: text})
}

// Stored reads what Plan compares.
type Stored interface {
	DocumentVersions(ctx context.Context, name string) (belay.DocumentVersions, error)
	Schedule(ctx context.Context, name string) (belay.ScheduleInfo, error)
	Webhook(ctx context.Context, name string) (belay.WebhookInfo, error)
}

// Plan returns the changes of schedules and webhooks that storing a text would make now, or the error with which it
// would be refused because of them.
func Plan(ctx context.Context, from Stored, document, text string) ([]belay.DocumentTrigger, error) {
	t, err := Triggers("apply document", document, text)
	if err != nil {
		return nil, err
	}
	has, err := from.DocumentVersions(ctx, document)
	if err != nil && belay.CodeOf(err) != belay.CodeNotFound {
		return nil, err
	}
	p := &plan{document: document}
	for _, s := range t.Schedules {
		put := PutSchedule(s, &trigger.Calendar{})
		put.Judge() // sets the defaults
		info, err := from.Schedule(ctx, s.Name)
		if err := p.compare(belay.ScheduleKind, s.Name, info.DefinedBy, info.Schedule, put.Schedule, err); err != nil {
			return nil, err
		}
	}
	for _, h := range t.Webhooks {
		put := PutWebhook(h)
		put.Judge()
		info, err := from.Webhook(ctx, h.Name)
		if err := p.compare(belay.WebhookKind, h.Name, info.DefinedBy, info.Webhook, put.Webhook, err); err != nil {
			return nil, err
		}
	}
	p.removed(belay.ScheduleKind, has.Schedules)
	p.removed(belay.WebhookKind, has.Webhooks)
	return p.changes, nil
}

type plan struct {
	document string
	wanted   []string // the kinds and names that the text defines
	changes  []belay.DocumentTrigger
}

// compare adds the change of a schedule or webhook, if there is one. err is the error of reading what exists.
func (p *plan) compare(kind belay.TriggerKind, name, by string, is, wanted any, err error) error {
	p.wanted = append(p.wanted, string(kind)+name)
	change := belay.TriggerChanged
	switch {
	case belay.CodeOf(err) == belay.CodeNotFound && err != nil:
		change = belay.TriggerCreated
	case err != nil:
		return err
	case by != p.document:
		return machine.Foreign("apply document "+p.document, kind, name)
	default:
		a, err := json.Marshal(is)
		if err != nil {
			return err
		}
		b, err := json.Marshal(wanted)
		if err != nil || bytes.Equal(a, b) {
			return err
		}
	}
	p.changes = append(p.changes, belay.DocumentTrigger{Kind: kind, Name: name, Change: change})
	return nil
}

// removed adds the removal of those that the document has and the text does not define.
func (p *plan) removed(kind belay.TriggerKind, names []string) {
	for _, name := range names {
		if !slices.Contains(p.wanted, string(kind)+name) {
			change := belay.DocumentTrigger{Kind: kind, Name: name, Change: belay.TriggerRemoved}
			p.changes = append(p.changes, change)
		}
	}
}
