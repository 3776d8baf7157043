package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// TargetsObject is the kind of the one object that has all targets of notifications. They are one object, and not one
// for each target, because every commit that may end executions needs all of them; see Targets.
const TargetsObject ObjectKind = "notification_targets"

var targetsCodec = codec[targetsBody]{TargetsObject}

// TargetsRef is the name of the object with all targets of notifications.
func TargetsRef() ObjectRef { return targetsCodec.ref("all") }

// targetsBody is the body of the object of all targets.
type targetsBody struct {
	Targets targetList   `json:"targets,omitempty"` // in the order of their names
	Done    []targetEdit `json:"done,omitempty"`
}

// notifyTarget is a target with its state. The changes that the targets remember are in the body of the object, so that
// the repetition of a removal is known too.
type notifyTarget struct {
	edited
	Terms belay.NotificationTarget `json:"terms"`
	// unread is the target as JSON if this version cannot read it: a newer version has written it.
	unread json.RawMessage
}

// MarshalJSON writes a target that could not be read as it was.
func (t *notifyTarget) MarshalJSON() ([]byte, error) {
	if t.unread != nil {
		return t.unread, nil
	}
	type plain notifyTarget
	return json.Marshal((*plain)(t))
}

// targetList decodes targets one by one. A target that this version cannot read gets nothing from its servers, and
// stays as it is until it is removed or set again. Otherwise no execution could end.
type targetList []notifyTarget

// UnmarshalJSON implements json.Unmarshaler.
func (l *targetList) UnmarshalJSON(b []byte) error {
	var all []json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for _, raw := range all {
		var t notifyTarget
		if json.Unmarshal(raw, &t) != nil {
			var known struct {
				edited
				Terms struct {
					Name     string `json:"name"`
					URL      string `json:"url"`
					Exchange string `json:"exchange"`
				} `json:"terms"`
			}
			if err := json.Unmarshal(raw, &known); err != nil {
				return err
			}
			t = notifyTarget{edited: known.edited, unread: raw}
			t.Terms.Name, t.Terms.URL, t.Terms.Exchange = known.Terms.Name, known.Terms.URL, known.Terms.Exchange
			t.Paused = &paused{At: t.EditedAt, By: System, Reason: "this version of Belay cannot read it; set it again"}
		}
		*l = append(*l, t)
	}
	return nil
}

// targetEdit is a change by an operator.
type targetEdit struct {
	Op     belay.OpID `json:"op"`
	Action string     `json:"action"`
	Name   string     `json:"name"`
	Hash   string     `json:"hash,omitempty"` // of the terms
}

// maxTargetEdits is how many changes of targets the object remembers.
const maxTargetEdits = 20

func (t *notifyTarget) view() belay.NotificationTargetInfo {
	v := belay.NotificationTargetInfo{
		NotificationTarget: t.Terms, Version: t.Edit, CreatedAt: t.CreatedAt.Time(), UpdatedAt: t.EditedAt.Time(),
		UpdatedBy: t.EditedBy,
	}
	if p := t.Paused; p != nil {
		v.Paused = &belay.NotificationPause{At: p.At.Time(), By: p.By, Reason: p.Reason}
	}
	return v
}

// Targets are the targets of notifications as Fold uses them.
type Targets struct{ all []notifyTarget }

// TargetsOf decodes the targets from their object, which is nil if there are none.
func TargetsOf(o *Object) (*Targets, error) {
	if o == nil {
		return &Targets{}, nil
	}
	b, err := targetsCodec.decode(o)
	if err != nil {
		return nil, err
	}
	return &Targets{b.Targets}, nil
}

// View returns the targets in the order of their names.
func (t *Targets) View() []belay.NotificationTargetInfo {
	out := make([]belay.NotificationTargetInfo, len(t.all))
	for i := range t.all {
		out[i] = t.all[i].view()
	}
	return out
}

// Labelled reports whether a target selects executions by labels, so that Fold must know the labels of executions that
// end.
func (t *Targets) Labelled() bool {
	return slices.ContainsFunc(t.all, func(x notifyTarget) bool { return x.Paused == nil && len(x.Terms.Labels) > 0 })
}

// Ends is the number of targets that may get the end of an execution.
func (t *Targets) Ends() (n int) {
	for i := range t.all {
		x := &t.all[i]
		if x.Paused == nil && (len(x.Terms.On) > 0 || len(x.Terms.Alerts) == 0) {
			n++
		}
	}
	return n
}

// Wants reports whether a target gets alerts of this kind.
func (t *Targets) Wants(a belay.Alert) bool {
	return slices.ContainsFunc(t.all, func(x notifyTarget) bool { return x.gets(a) })
}

// WantsLetter reports whether a target gets alerts about the dead letters of a workflow.
func (t *Targets) WantsLetter(workflow string) bool {
	return slices.ContainsFunc(t.all, func(x notifyTarget) bool {
		return x.gets(belay.AlertDeadLetter) && matchesAny(x.Terms.Workflows, workflow)
	})
}

func (t *notifyTarget) gets(a belay.Alert) bool {
	return t.Paused == nil && slices.Contains(t.Terms.Alerts, a)
}

// notifyTargets submits the deliveries of an execution that has just ended to the targets of operators.
func (w *world) notifyTargets(e *Execution) {
	if w.Targets == nil || !e.Parent.IsZero() || belay.IsNotificationID(e.ID) {
		return
	}
	for i := range w.Targets.all {
		t := &w.Targets.all[i]
		if t.Paused != nil || !t.Terms.Reports(e.State) || !w.selects(&t.Terms, e) {
			continue
		}
		w.deliverNews(&news{
			to: t.Terms, id: belay.TargetNotificationID(e.ID, e.Generation, t.Terms.Name),
			key: fmt.Sprintf("%s:%d:target:%s", e.ID, e.Generation, t.Terms.Name), label: e.ID.String(),
			payload: belay.NotificationPayload{
				Execution: e.ID, Generation: e.Generation, State: e.State, Name: t.Terms.Name,
			},
			event: eventOf(e), text: slackText(e),
		})
	}
}

// selects reports whether a target selects an execution.
func (w *world) selects(t *belay.NotificationTarget, e *Execution) bool {
	if !matchesAny(t.Workflows, e.Workflow) || !matchesAny(t.Queues, e.Queue) {
		return false
	}
	if len(t.Labels) == 0 {
		return true
	}
	spec := w.specs[e.ID]
	if spec == nil {
		return false
	}
	for name, value := range t.Labels {
		if has, ok := spec.Labels[name]; !ok || has != value {
			return false
		}
	}
	return true
}

// matchesAny reports whether a name matches one of the patterns, or there are none.
func matchesAny(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// matches reports whether a name matches a pattern, in which an asterisk stands for any text.
func matches(pattern, name string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	parts := strings.Split(rest, "*")
	last := len(parts) - 1
	for i := 0; ok && i < last; i++ {
		_, name, ok = strings.Cut(name, parts[i])
	}
	return ok && strings.HasSuffix(name, parts[last])
}

// MayEnd returns the executions that a command may end; ok is false if the command ends none and opens no circuit
// breaker. A command that is not listed may end the executions that it needs.
func MayEnd(c Command) (ids []belay.ExecutionID, ok bool) {
	switch c := c.(type) {
	case *Heartbeat, *Renew, *Mark, *Open, *Claim, *Lock, *Schedule, *Accept, *Submit, *Deliver, *Receive, *Save,
		*Append, *Progress, *Fire:
		return nil, false
	case *CallTarget:
		return nil, c.Outcome == belay.OutcomeFailed
	case *Outcome:
		return nil, c.Failed
	}
	var n Need
	c.Need(&n)
	return n.Executions, len(n.Executions) > 0
}

// PutTarget creates a target of notifications or changes its terms.
type PutTarget struct{ belay.NotificationTargetPut }

// Need asks the store for the targets, and for the state of the alerts.
func (c *PutTarget) Need(n *Need) { n.Objects = append(n.Objects, TargetsRef(), AlertsRef()) }

func (c *PutTarget) apply(w *world) (Reply, error) {
	op := "put notification target"
	if err := belay.CheckNotificationTarget(op, &c.NotificationTarget); err != nil {
		return Reply{}, err
	}
	if err := checkLabels(op, "labels", c.Labels); err != nil {
		return Reply{}, err
	}
	if err := checkEdit(op, c.Actor, c.Reason, c.IfVersion, c.IfNew); err != nil {
		return Reply{}, err
	}
	terms, err := json.Marshal(&c.NotificationTarget)
	if err != nil {
		return Reply{}, err
	}
	if n := len(terms); n > belay.MaxTargetBytes {
		return Reply{}, refuse(belay.CodePayloadTooLarge, op, "the target has %d bytes as JSON; the limit is %d", n,
			belay.MaxTargetBytes)
	}
	op += " " + c.Name
	t, err := w.targets()
	if err != nil {
		return Reply{}, err
	}
	sum := sha256.Sum256(terms)
	done := targetEdit{Op: c.Op, Action: "put", Name: c.Name, Hash: hex.EncodeToString(sum[:16])}
	i, exists := t.find(c.Name)
	if found, err := t.repeated(op, done); found || err != nil {
		return t.again(op, c.Name, i, exists, err)
	}
	var is notifyTarget
	if exists {
		is = t.body.Targets[i]
	}
	if err := is.expect(op, "target", exists, c.IfVersion, c.IfNew); err != nil {
		return Reply{}, err
	}
	switch {
	case exists && is.unread != nil:
		is.unread, is.Paused = nil, nil
	case exists:
		if old, err := json.Marshal(&is.Terms); err == nil && bytes.Equal(old, terms) {
			return t.reply(i, true, true), nil
		}
	case len(t.body.Targets) >= belay.MaxNotificationTargets:
		return Reply{}, refuse(belay.CodeConflict, op, "there are %d targets of notifications, the limit; remove one "+
			"that is not needed", belay.MaxNotificationTargets)
	default:
		is.CreatedAt = w.Now
		t.body.Targets = slices.Insert(t.body.Targets, i, notifyTarget{})
	}
	is.Terms = c.NotificationTarget
	is.change(w.Now, c.Actor)
	t.body.Targets[i] = is
	if err := t.write(w, op, done, is.Edit, c.Actor, c.Reason); err != nil {
		return Reply{}, err
	}
	return t.reply(i, true, false), nil
}

// ChangeTarget pauses, resumes or removes a target of notifications.
type ChangeTarget struct{ belay.NotificationTargetChange }

// Need asks the store for the targets, and for the state of the alerts.
func (c *ChangeTarget) Need(n *Need) { n.Objects = append(n.Objects, TargetsRef(), AlertsRef()) }

func (c *ChangeTarget) apply(w *world) (Reply, error) {
	op := fmt.Sprintf("%s notification target %s", c.Action, c.Name)
	if err := belay.CheckTargetName(op, c.Name); err != nil {
		return Reply{}, err
	}
	if err := checkEdit(op, c.Actor, c.Reason, c.IfVersion, false); err != nil {
		return Reply{}, err
	}
	t, err := w.targets()
	if err != nil {
		return Reply{}, err
	}
	done := targetEdit{Op: c.Op, Action: string(c.Action), Name: c.Name}
	i, exists := t.find(c.Name)
	if found, err := t.repeated(op, done); found || err != nil {
		if err == nil && c.Action == belay.NotificationTargetRemove {
			return Reply{Replayed: true}, nil
		}
		return t.again(op, c.Name, i, exists, err)
	}
	if !exists {
		return Reply{}, noTarget(op, c.Name)
	}
	is := &t.body.Targets[i]
	if err := is.expect(op, "target", true, c.IfVersion, false); err != nil {
		return Reply{}, err
	}
	if is.unread != nil && c.Action != belay.NotificationTargetRemove {
		return Reply{}, refuse(belay.CodeConflict, op, "this version of Belay cannot read the target; remove it or "+
			"set it again")
	}
	switch c.Action {
	case belay.NotificationTargetPause:
		if is.Paused != nil && is.Paused.Reason == c.Reason {
			return t.reply(i, true, true), nil
		}
		is.Paused = &paused{At: w.Now, By: c.Actor, Reason: c.Reason}
	case belay.NotificationTargetResume:
		if is.Paused == nil {
			return t.reply(i, true, true), nil
		}
		is.Paused = nil
	case belay.NotificationTargetRemove:
	default:
		return Reply{}, refuse(belay.CodeInvalid, op, "there is no action %q on a target", c.Action)
	}
	is.change(w.Now, c.Actor)
	r, edit := t.reply(i, true, false), is.Edit
	if c.Action == belay.NotificationTargetRemove {
		t.body.Targets = slices.Delete(t.body.Targets, i, i+1)
	}
	return r, t.write(w, op, done, edit, c.Actor, c.Reason)
}

func noTarget(op, name string) error {
	return refuse(belay.CodeNotFound, op, "there is no target of notifications %s; `belay notify ls` lists them", name)
}

// targets is the object of all targets in the state after the earlier commands of the batch. body is a copy that the
// present command may change.
type targets struct {
	row  *Object // nil if there is none
	body targetsBody
}

func (w *world) targets() (*targets, error) {
	t := &targets{row: w.object(TargetsRef())}
	if t.row == nil {
		return t, nil
	}
	b, err := targetsCodec.decode(t.row)
	if err != nil {
		return nil, err
	}
	t.body = *b
	return t, nil
}

// find returns the index that a target has, or would have.
func (t *targets) find(name string) (int, bool) {
	return slices.BinarySearchFunc(t.body.Targets, name, func(x notifyTarget, name string) int {
		return strings.Compare(x.Terms.Name, name)
	})
}

func (t *targets) reply(i int, exists, replayed bool) Reply {
	r := Reply{Replayed: replayed}
	if exists {
		r.NotificationTarget = t.body.Targets[i].view()
	}
	return r
}

// again answers the repetition of a change. The target may have been removed since.
func (t *targets) again(op, name string, i int, exists bool, err error) (Reply, error) {
	if err == nil && !exists {
		err = noTarget(op, name)
	}
	return t.reply(i, exists, true), err
}

// repeated reports whether a change was carried out before, and refuses another change with its operation.
func (t *targets) repeated(op string, change targetEdit) (bool, error) {
	if change.Op.IsZero() {
		return false, nil
	}
	for _, was := range t.body.Done {
		switch {
		case was.Op != change.Op:
		case was == change:
			return true, nil
		default:
			return true, refuse(belay.CodeIdempotencyMismatch, op, "the operation %s was another change", change.Op)
		}
	}
	return false, nil
}

// write writes the object of the targets, and an entry in the audit that names the target. If a target wants alerts,
// write lets the engine look for them.
func (t *targets) write(w *world, op string, done targetEdit, edit int, actor, reason string) error {
	if !done.Op.IsZero() {
		t.body.Done = append(slices.Clone(t.body.Done[max(0, len(t.body.Done)-maxTargetEdits+1):]), done)
	}
	body, err := targetsCodec.encode(&t.body)
	if err != nil {
		return err
	}
	expected := int64(0)
	if t.row != nil {
		expected = t.row.Version
	}
	about := fmt.Sprintf("%s, version %d", done.Name, edit)
	if reason != "" {
		about += ": " + reason
	}
	if _, err = w.put(op, put{
		ref: TargetsRef(), expected: expected, body: body, action: done.Action, actor: actor,
		reason: clip(about, belay.MaxName), op: done.Op,
	}); err != nil {
		return err
	}
	return w.watchAlerts(&Targets{t.body.Targets})
}
