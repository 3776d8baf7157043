package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
)

// Backend has the calls that a repair needs.
type Backend interface {
	Reader
	Control(ctx context.Context, c belay.Control) (belay.Execution, error)
}

const op = "repair"

func refused(code belay.Code, format string, args ...any) error {
	return &belay.Error{Code: code, Op: op, Message: fmt.Sprintf(format, args...)}
}

// Repair makes a failed or cancelled execution run again from some tasks on, or without some tasks. It returns
// CodeConflict if the execution is in another state or was reopened since, and CodeInvalid if the repair does not fit
// the document. A repair with an Op that was carried out before changes nothing.
func (v *Viewer) Repair(ctx context.Context, b Backend, r belay.Repair) (belay.Execution, error) {
	s, err := v.read(ctx, b, r.Execution)
	if err != nil {
		return belay.Execution{}, err
	}
	if done, err := s.repetition(&r); done || err != nil {
		if done {
			belay.NoteReplay(ctx)
		}
		return s.Execution, err
	}
	if err := s.repairable(&r); err != nil {
		return belay.Execution{}, err
	}
	added, err := s.decisions(&r)
	if err != nil {
		return belay.Execution{}, err
	}
	s.input.Repair = append(s.input.Repair, added...)
	if len(s.input.Repair) > runner.MaxRepairs {
		return belay.Execution{}, refused(belay.CodeConflict,
			"the execution has %d repairs already, and %d is the limit; "+
				"run the document anew", len(s.input.Repair)-len(added), runner.MaxRepairs)
	}
	input, err := encode(&s.input)
	if err != nil {
		return belay.Execution{}, err
	}
	if len(input) > belay.MaxPayload {
		return belay.Execution{}, refused(belay.CodePayloadTooLarge,
			"the document, its input and the outputs of skipped "+
				"tasks have %d bytes together; the limit is %d", len(input), belay.MaxPayload)
	}
	return b.Control(ctx, belay.Control{
		Execution: s.ID, Action: belay.ActionRequeue, Actor: r.Actor, Reason: history(&r), Op: r.Op, Input: input,
		KeepResults: true, Generation: s.Generation,
	})
}

// repetition reports whether the repair was carried out before.
func (s *snapshot) repetition(r *belay.Repair) (bool, error) {
	if r.Op.IsZero() {
		return false, nil
	}
	var before []runner.Repair
	for _, x := range s.input.Repair {
		if x.Op == r.Op {
			before = append(before, x)
		}
	}
	if before == nil {
		return false, nil
	}
	same := len(before) == len(r.From)+len(r.Skip)
	for i, x := range before {
		switch {
		case !same:
		case i < len(r.From):
			same = x.From == r.From[i]
		default:
			skip := r.Skip[i-len(r.From)]
			same = x.Skip == skip.Task && string(x.Output) == string(compact(skip.Output))
		}
	}
	if !same {
		return false, refused(belay.CodeIdempotencyMismatch, "operation %s has made another repair", r.Op)
	}
	return true, nil
}

// repairable refuses a repair of an execution that has not failed, with advice.
func (s *snapshot) repairable(r *belay.Repair) error {
	switch {
	case !s.Parent.IsZero():
		return refused(belay.CodeConflict, "%s is a task of %s; repair that execution", s.ID, s.Parent)
	case s.State == belay.Succeeded:
		return refused(belay.CodeConflict, "%s has succeeded; run the document anew to do its work again", s.ID)
	case s.State != belay.Failed && s.State != belay.Cancelled:
		return refused(belay.CodeConflict,
			"%s is %s; only a failed or cancelled execution can be repaired: wait for its "+
				"end, or cancel it first", s.ID, s.State)
	case len(r.Reason) > belay.MaxName:
		return refused(belay.CodeInvalid, "the reason has %d bytes; the limit is %d", len(r.Reason), belay.MaxName)
	case r.Generation < 0:
		return refused(belay.CodeInvalid, "the generation must not be negative")
	case r.Generation != 0 && r.Generation != s.Generation:
		return refused(belay.CodeConflict, "generation %d was reopened before, and the present one is %d", r.Generation,
			s.Generation)
	case len(r.From)+len(r.Skip) == 0:
		return refused(belay.CodeInvalid,
			"name a task from which the execution runs again, or a task to skip; to run all "+
				"tasks again that have not succeeded, use retry")
	case len(r.From)+len(r.Skip) > runner.MaxRepairs:
		return refused(belay.CodeInvalid, "%d tasks; at most %d", len(r.From)+len(r.Skip), runner.MaxRepairs)
	}
	return nil
}

// decisions checks the repair against the document and its progress, and returns it in the form in which the input
// keeps it.
func (s *snapshot) decisions(r *belay.Repair) ([]runner.Repair, error) {
	entry := runner.Repair{Generation: s.Generation + 1, By: r.Actor, Note: r.Reason, Op: r.Op}
	var added []runner.Repair
	for _, id := range r.From {
		if err := s.checkFrom(id); err != nil {
			return nil, err
		}
		x := entry
		x.From = id
		added = append(added, x)
	}
	// The next generation as it would be without the skips: a task that has succeeded there cannot be skipped.
	next, err := runner.Open(s.doc, s.Generation+1, append(s.input.Repair[:len(s.input.Repair):len(s.input.Repair)],
		added...), s.state)
	if err != nil {
		return nil, unreadable(s.ID, err)
	}
	seen := map[string]bool{}
	for i := range r.Skip {
		k := &r.Skip[i]
		if seen[k.Task] {
			return nil, refused(belay.CodeInvalid, "the task %s is skipped twice", k.Task)
		}
		seen[k.Task] = true
		if err := s.checkSkip(next, k); err != nil {
			return nil, err
		}
		x := entry
		x.Skip, x.Output = k.Task, compact(k.Output)
		added = append(added, x)
	}
	return added, nil
}

// task finds a task that a person may repair.
func (s *snapshot) task(id string) (*definition.Task, error) {
	t := s.doc.Task(id)
	switch {
	case t == nil:
		err := noTask(s.doc, id)
		return nil, err
	case t.Undoes:
		return nil, refused(belay.CodeInvalid,
			"the task %s undoes the work of %s, and runs only for this purpose; repair %s",
			id, t.Needs[0], t.Needs[0])
	}
	return t, nil
}

func (s *snapshot) checkFrom(id string) error {
	if name, item, is := itemOf(id); is && s.doc.Task(name) != nil {
		return refused(belay.CodeInvalid,
			"a single item cannot run again if it has succeeded; name the task %s without "+
				"[%d] to run all its items again", name, item)
	}
	_, err := s.task(id)
	return err
}

func (s *snapshot) checkSkip(next *runner.Progress, k *belay.TaskSkip) error {
	name, item, isItem := itemOf(k.Task)
	if !isItem {
		name = k.Task
	}
	t, err := s.task(name)
	if err != nil {
		return err
	}
	var status runner.Status
	switch {
	case !isItem:
		status = next.Task(name)
	case t.Foreach == nil:
		return refused(belay.CodeInvalid, "the task %s has no items, because it has no foreach; skip %s", name, name)
	case next.Task(name).State == string(belay.TaskSucceeded):
		status.State = string(belay.TaskSucceeded)
	case next.Renewed(name):
		return refused(belay.CodeConflict,
			"the items of %s are not known before it runs, because tasks that it needs run "+
				"again, or it has not started; skip the whole task with a list as its output", name)
	default:
		total, _, _, _, _ := next.Items(name)
		if item >= total {
			return refused(belay.CodeInvalid, "the task %s has %d items; the last one is %s[%d]", name, total, name,
				total-1)
		}
		status = next.Item(name, item)
	}
	if status.State == string(belay.TaskSucceeded) || status.State == string(belay.TaskSkipped) && !isItem {
		return refused(belay.CodeConflict,
			"%s is %s, and does not run again, so it cannot be skipped; to give it another "+
				"output, name it in from too", k.Task, status.State)
	}
	return checkOutput(t, isItem, k)
}

// checkOutput refuses an output that expressions could not read.
func checkOutput(t *definition.Task, isItem bool, k *belay.TaskSkip) error {
	var v any
	if len(k.Output) > 0 {
		if !json.Valid(k.Output) {
			return refused(belay.CodeInvalid, "the output of %s is not valid JSON", k.Task)
		}
		var err error
		if v, err = definition.Decode(k.Output); err != nil {
			return refused(belay.CodeInvalid, "the output of %s cannot be used: %s", k.Task, err)
		}
	}
	if list, ok := v.([]any); t.Foreach != nil && !isItem && (!ok || len(list) > runner.MaxItems) {
		return refused(belay.CodeInvalid,
			"the task %s has a foreach, so its output must be a list of at most %d outputs, as "+
				"in %s=[1, 2]", k.Task, runner.MaxItems, k.Task)
	}
	return nil
}

// itemOf splits the name of an item, such as build[7].
func itemOf(name string) (task string, item int, ok bool) {
	task, rest, found := strings.Cut(name, "[")
	number, closed := strings.CutSuffix(rest, "]")
	n, err := strconv.Atoi(number)
	if !found || !closed || err != nil || n < 0 || strconv.Itoa(n) != number {
		return "", 0, false
	}
	return task, n, true
}

// compact removes the white space of JSON, so that a stored output equals that of a repeated request.
func compact(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return data
	}
	return b.Bytes()
}

// history describes the repair for the history, with the reason of the person.
func history(r *belay.Repair) string {
	var parts []string
	if len(r.From) > 0 {
		parts = append(parts, "from task "+some(r.From))
	}
	var skipped []string
	for _, k := range r.Skip {
		skipped = append(skipped, k.Task)
	}
	if len(skipped) > 0 {
		parts = append(parts, "task "+some(skipped)+" skipped by hand")
	}
	text := strings.Join(parts, ", ")
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	const most = 200 // bytes of a reason; the note of the repair has all of it
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len("…")], "") + "…"
	}
	return text
}

// some lists the first names.
func some(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// NewInput returns the input for a requeue of an execution with another input of its document; all tasks run again.
func (v *Viewer) NewInput(ctx context.Context, r Reader, id belay.ExecutionID, input json.RawMessage) (json.RawMessage,
	error) {
	s, err := v.read(ctx, r, id)
	if err != nil {
		return nil, err
	}
	in := s.input
	in.Input, in.Repair = input, nil
	if _, err := in.Values(s.doc); err != nil {
		return nil, err
	}
	return encode(&in)
}

// encode encodes an input without the HTML escapes of encoding/json, which would make a document longer.
func encode(in *runner.Input) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(in); err != nil {
		return nil, refused(belay.CodeInvalid, "the input cannot be encoded: %s", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
