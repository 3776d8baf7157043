package machine

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// DeadLetter records the failure of a root execution that will not be retried, one for each
// generation.
type DeadLetter struct {
	Execution  belay.ExecutionID
	Generation int
	Seq        int64
	Token      belay.Token // token of the run that failed, 0 if there was none
	Reason     string      // one of belay.DeadLetterReasons
	Class      belay.Class
	Message    string
	FailedBy   belay.FailedBy
	At         Time
	Resolution string // empty while the dead letter is open
	ResolvedBy string
	ResolvedAt Time
	Notes      []LetterNote
	New        bool
}

// LetterNote is a note on a dead letter, or a resolution of it without a text. Op is the operation
// that added it.
type LetterNote struct {
	At     Time                   `json:"at"`
	By     string                 `json:"by,omitempty"`
	Text   string                 `json:"text,omitempty"`
	Action belay.DeadLetterAction `json:"action,omitempty"`
	Op     belay.OpID             `json:"op,omitzero"`
}

// LetterRef names the dead letter of a generation of an execution. Generation 0 means the newest
// dead letter.
type LetterRef struct {
	Execution  belay.ExecutionID
	Generation int
}

// letterReason is the reason of the dead letter of an execution that has just failed.
func letterReason(e *Execution) string {
	switch e.FailedBy {
	case belay.FailedByDispatcher:
		return "no_worker"
	case belay.FailedByDeadLetterHandler:
		return "expired"
	default:
	}
	switch e.Class {
	case belay.ClassPermanent:
		return "permanent_error"
	case belay.ClassLost:
		return "lost"
	case belay.ClassTimeout:
		return "timeout"
	case belay.ClassCircuitOpen:
		return "circuit_breaker"
	default:
		return "max_retries"
	}
}

// writeDeadLetter writes the dead letter of a root execution that failed, in the same commit
// (guarantee G10).
func (w *world) writeDeadLetter(e *Execution, ran bool, reason string) {
	if !e.Parent.IsZero() || e.policy().NoDeadLetters {
		return
	}
	d := &DeadLetter{
		Execution: e.ID, Generation: e.Generation, Seq: e.Seq, Class: e.Class, Message: e.Message,
		FailedBy: e.FailedBy, At: w.Now, New: true, Reason: reason,
	}
	if reason == "" {
		d.Reason = letterReason(e)
	}
	if ran {
		d.Token = e.Token
	}
	w.letters[LetterRef{e.ID, e.Generation}] = d
	w.changedLetter(d)
}

// letter returns a dead letter that was loaded or that this batch has written; nil if there is none.
func (w *world) letter(id belay.ExecutionID, generation int) *DeadLetter {
	if generation != 0 {
		return w.letters[LetterRef{id, generation}]
	}
	var newest *DeadLetter
	for _, d := range w.letters {
		if d.Execution == id && (newest == nil || d.Generation > newest.Generation) {
			newest = d
		}
	}
	return newest
}

// changedLetter adds a dead letter to the changes of the batch, once.
func (w *world) changedLetter(d *DeadLetter) {
	if !slices.Contains(w.out.DeadLetters, d) {
		w.out.DeadLetters = append(w.out.DeadLetters, d)
	}
}

// resolve resolves a dead letter.
func (w *world) resolve(d *DeadLetter, resolution, by string) {
	d.Resolution, d.ResolvedBy, d.ResolvedAt = resolution, by, w.Now
	w.changedLetter(d)
}

// EditLetter resolves a dead letter, or adds a note to one.
type EditLetter struct{ belay.DeadLetterChange }

// Need asks the store for the dead letter. The lock of its execution makes commands on it run one
// after the other.
func (c *EditLetter) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Letters = append(n.Letters, LetterRef{c.Execution, c.Generation})
}

func (c *EditLetter) apply(w *world) (Reply, error) {
	op := string(c.Action) + " dead letter"
	if err := c.check(op); err != nil {
		return Reply{}, err
	}
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	d := w.letter(e.ID, c.Generation)
	if d == nil {
		return Reply{}, NoLetter(op, e.ID, c.Generation)
	}
	r := Reply{Letter: d.copy()}
	if n := d.operation(c.Op); n != nil {
		if n.Action != c.Action || n.Text != c.Note {
			return Reply{}, refuse(belay.CodeIdempotencyMismatch, op,
				"operation %s was another action on this dead letter", c.Op)
		}
		r.Replayed = true
		return r, nil
	}
	if c.Action != belay.DeadLetterNoted && d.Resolution != "" {
		return Reply{}, d.resolved(op)
	}
	if len(d.Notes) >= belay.MaxNotes {
		return Reply{}, refuse(belay.CodeConflict, op, "the dead letter has %d notes, which is the limit", len(d.Notes))
	}
	d.Notes = append(d.Notes, LetterNote{At: w.Now, By: c.Actor, Text: c.Note, Action: c.Action, Op: c.Op})
	switch c.Action {
	case belay.DeadLetterFix:
		w.resolve(d, belay.ResolvedFixed, actorOf(c.Actor))
	case belay.DeadLetterDiscard:
		w.resolve(d, belay.ResolvedDiscarded, actorOf(c.Actor))
	case belay.DeadLetterNoted:
	}
	w.changedLetter(d)
	w.out.Audit = append(w.out.Audit, &Audit{
		At: w.Now, Actor: c.Actor, ObjectRef: ObjectRef{LetterObject, fmt.Sprintf("%s.%d", e.ID, d.Generation)},
		Version: int64(len(d.Notes)), Action: string(c.Action), Reason: c.Note, Op: c.Op,
	})
	r.Letter = d.copy()
	return r, nil
}

func (c *EditLetter) check(op string) error {
	switch c.Action {
	case belay.DeadLetterFix, belay.DeadLetterDiscard:
	case belay.DeadLetterNoted:
		if strings.TrimSpace(c.Note) == "" {
			return refuse(belay.CodeInvalid, op, "the note is empty; give a text")
		}
	default:
		return refuse(belay.CodeInvalid, op, "there is no action %q on a dead letter; there are fix, discard and note",
			c.Action)
	}
	if c.Generation < 0 {
		return refuse(belay.CodeInvalid, op, "the generation must not be negative")
	}
	if err := checkName(op, "the actor", c.Actor, false); err != nil {
		return err
	}
	return checkNote(op, c.Note)
}

// checkNote refuses a note that is too long, or that a screen could not show as text.
func checkNote(op, text string) error {
	odd := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	switch {
	case len(text) > belay.MaxNote:
		return refuse(belay.CodeInvalid, op, "the note has %d bytes; the limit is %d", len(text), belay.MaxNote)
	case !utf8.ValidString(text):
		return refuse(belay.CodeInvalid, op, "the note is not valid UTF-8")
	case strings.ContainsFunc(text, odd):
		return refuse(belay.CodeInvalid, op, "the note contains a control character")
	}
	return nil
}

// NoLetter is the error for a dead letter that does not exist.
func NoLetter(op string, id belay.ExecutionID, generation int) error {
	if generation == 0 {
		return refuse(belay.CodeNotFound, op, "the execution %s has no dead letter", id)
	}
	return refuse(belay.CodeNotFound, op, "generation %d of the execution %s has no dead letter", generation, id)
}

// resolved is the error for a dead letter that was resolved before; it names the first resolution.
func (d *DeadLetter) resolved(op string) error {
	return refuse(belay.CodeConflict, op, "the dead letter of generation %d of %s was %s by %s at %s; a dead letter "+
		"is resolved once", d.Generation, d.Execution, d.Resolution, d.ResolvedBy,
		d.ResolvedAt.Time().UTC().Format("2006-01-02 15:04:05 UTC"))
}

// operation returns the note that an operation added; nil if there is none.
func (d *DeadLetter) operation(op belay.OpID) *LetterNote {
	if op.IsZero() {
		return nil
	}
	i := slices.IndexFunc(d.Notes, func(n LetterNote) bool { return n.Op == op })
	if i < 0 {
		return nil
	}
	return &d.Notes[i]
}

// copy returns a copy of the row, because later commands of the batch may change the row.
func (d *DeadLetter) copy() *DeadLetter {
	c := *d
	c.Notes = slices.Clone(d.Notes)
	return &c
}

// actorOf is the name of an actor, who may have given none.
func actorOf(name string) string {
	if name == "" {
		return "an operator"
	}
	return name
}

// CheckLetterFilter refuses a filter with a word that no dead letter can have.
func CheckLetterFilter(op string, f belay.DeadLetterFilter) error {
	switch {
	case f.Resolution != "" && !slices.Contains(belay.DeadLetterWords, f.Resolution):
		return refuse(belay.CodeInvalid, op, "there is no resolution %q; it can be %s", f.Resolution,
			strings.Join(belay.DeadLetterWords, ", "))
	case f.Reason != "" && !slices.Contains(belay.DeadLetterReasons, f.Reason):
		return refuse(belay.CodeInvalid, op, "there is no reason %q; it can be %s", f.Reason,
			strings.Join(belay.DeadLetterReasons, ", "))
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return refuse(belay.CodeInvalid, op, "since must be before until")
	}
	for _, text := range []struct{ what, text string }{
		{"the workflow", f.Workflow}, {"the fingerprint", f.Fingerprint}, {"the text", f.Text},
	} {
		if err := checkName(op, text.what, text.text, false); err != nil {
			return err
		}
	}
	return nil
}

// LetterView returns a dead letter in the form of the API.
func LetterView(d *DeadLetter, workflow string) belay.DeadLetter {
	v := belay.DeadLetter{
		Execution: d.Execution, Generation: d.Generation, Workflow: workflow, Reason: d.Reason, Class: d.Class,
		Message: d.Message, FailedBy: d.FailedBy, At: d.At.Time(), Fingerprint: Fingerprint(d, workflow),
		Resolution: d.Resolution, ResolvedBy: d.ResolvedBy, ResolvedAt: d.ResolvedAt.Time(),
	}
	if d.Token != 0 {
		v.Run = belay.RunID{Execution: d.Execution, Token: d.Token}
	}
	for _, n := range d.Notes {
		if n.Text != "" {
			v.Notes = append(v.Notes, belay.DeadLetterNote{At: n.At.Time(), By: n.By, Text: n.Text})
		}
	}
	return v
}

// varying are the parts of a message that differ between failures of the same cause: quoted texts,
// and words with a digit, such as numbers, ids and addresses.
var varying = regexp.MustCompile("\"[^\"]*\"|'[^']*'|`[^`]*`|[\\pL_]*\\d[\\pL\\d_]*")

// Fingerprint is equal for dead letters whose workflow, reason and class are equal, and whose
// messages differ only in their varying parts.
func Fingerprint(d *DeadLetter, workflow string) string {
	message := varying.ReplaceAllLiteralString(d.Message, "#")
	s := contentOf("letter").text(workflow).text(d.Reason).int(int64(d.Class)).text(message).sum()
	return hex.EncodeToString(s[:8])
}
