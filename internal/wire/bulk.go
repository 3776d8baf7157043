package wire

import (
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// Bulk requests an action on many executions. The header Idempotency-Key has the operation id.
type Bulk struct {
	Action      belay.BulkAction `json:"action" enum:"requeue,discard,cancel,retry"`
	Filter      BulkFilter       `json:"filter,omitzero" doc:"Selects the executions. Without a field of it all are selected, which needs all."`
	All         bool             `json:"all,omitempty" doc:"Confirms a filter that selects everything: one without workflow, queue, labels, reason, class, fingerprint and text."`
	Input       json.RawMessage  `json:"input,omitempty" doc:"requeue: another input for each execution; then all steps run again."`
	InputPatch  json.RawMessage  `json:"input_patch,omitempty" doc:"requeue: a JSON Merge Patch (RFC 7396) of the input of each execution; then all steps run again."`
	Notes       string           `json:"notes,omitempty" maxLength:"150" doc:"The reason, which each dead letter and history shows with the id of the bulk."`
	Actor       string           `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
	Rate        float64          `json:"rate,omitempty" minimum:"0" maximum:"1000" doc:"The highest number of actions per second; 0 means 10."`
	Canary      []int            `json:"canary,omitzero" minItems:"0" maxItems:"5" doc:"The sizes of the stages before the rest; without it, 1 and 10. An empty list means no canary."`
	MaxFailures *float64         `json:"max_failures,omitempty" minimum:"0" maximum:"1" doc:"The largest share of failures before the bulk stops by itself; without it, 0.1."`
	DryRun      bool             `json:"dry_run,omitempty" doc:"Count the selection and show the first ten; nothing is changed. The key also needs the scope read."`
}

// BulkFilter selects the executions of a bulk.
type BulkFilter struct {
	Workflow    string            `json:"workflow,omitempty" maxLength:"200"`
	Since       time.Time         `json:"since,omitzero" doc:"Only failures (requeue, discard) or submissions (cancel, retry) at this time or later, by the store's clock."`
	Until       time.Time         `json:"until,omitzero" doc:"Only failures or submissions before this time, by the store's clock."`
	Reason      string            `json:"reason,omitempty" enum:"max_retries,permanent_error,timeout,lost,no_worker,circuit_breaker,expired,manual" doc:"requeue, discard: only dead letters with this reason."`
	Class       belay.Class       `json:"class,omitempty" doc:"requeue, discard: only dead letters whose error has this class."`
	Fingerprint string            `json:"fingerprint,omitempty" maxLength:"200" doc:"requeue, discard: only dead letters with this fingerprint."`
	Text        string            `json:"text,omitempty" maxLength:"200" doc:"requeue, discard: only dead letters whose message contains this text; upper and lower case are the same."`
	Queue       string            `json:"queue,omitempty" maxLength:"200" doc:"cancel, retry: only executions of this queue."`
	Labels      map[string]string `json:"labels,omitempty" doc:"cancel, retry: only executions that have all of these labels."`
	States      []string          `json:"states,omitempty" maxItems:"8" enum:"pending,scheduled,running,waiting,paused,failed,cancelled" doc:"cancel, retry: only executions in one of these states. Without it, cancel selects all that have not ended, and retry those that have failed."`
}

// BulkOf converts a bulk for the wire.
func BulkOf(b belay.Bulk) Bulk {
	f := b.Filter
	w := Bulk{
		Action: b.Action, All: b.All, Input: b.Input, InputPatch: b.InputPatch, Notes: b.Notes, Actor: b.Actor,
		Rate: b.Rate, Canary: b.Canary, MaxFailures: b.MaxFailures, DryRun: b.DryRun,
		Filter: BulkFilter{
			Workflow: f.Workflow, Since: f.Since, Until: f.Until, Reason: f.Reason, Class: f.Class,
			Fingerprint: f.Fingerprint, Text: f.Text, Queue: f.Queue, Labels: f.Labels,
		},
	}
	for _, s := range f.States {
		w.Filter.States = append(w.Filter.States, s.String())
	}
	return w
}

// Bulk converts the bulk from the wire.
func (w *Bulk) Bulk() (belay.Bulk, error) {
	f := &w.Filter
	b := belay.Bulk{
		Action: w.Action, All: w.All, Input: w.Input, InputPatch: w.InputPatch, Notes: w.Notes, Actor: w.Actor,
		Rate: w.Rate, Canary: w.Canary, MaxFailures: w.MaxFailures, DryRun: w.DryRun,
		Filter: belay.BulkFilter{
			Workflow: f.Workflow, Since: f.Since, Until: f.Until, Reason: f.Reason, Class: f.Class,
			Fingerprint: f.Fingerprint, Text: f.Text, Queue: f.Queue, Labels: f.Labels,
		},
	}
	for _, word := range f.States {
		var s belay.State
		if err := s.UnmarshalText([]byte(word)); err != nil {
			return b, err
		}
		b.Filter.States = append(b.Filter.States, s)
	}
	return b, nil
}
