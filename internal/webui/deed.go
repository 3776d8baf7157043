package webui

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// deed is an action on a worker, a gate, a schedule or a dead letter. All of them need the scope operate.
type deed struct {
	of, name     string // parts of the address of the form
	label, about string
	danger       bool
	unexplained  bool // no reason is kept
	do           func(context.Context, belay.Backend, order) error
}

// order is what a visitor asks for with the form of a deed.
type order struct {
	id, actor, reason string
	op                belay.OpID
}

const deedPath = "/act"

// The things on which there are deeds.
const (
	ofWorker   = "worker"
	ofGate     = "gate"
	ofSchedule = "schedule"
	ofLetter   = "letter" // the id is that of the execution, a point, and the generation that failed
)

var deeds = []deed{
	{
		of: ofWorker, name: "cordon", label: "Cordon", do: cordon(false),
		about: "The worker claims nothing more until an operator allows it again. Its present runs go on.",
	},
	{
		of: ofWorker, name: "uncordon", label: "Uncordon", do: cordon(true),
		about: "The worker claims executions again.",
	},
	{
		of: ofWorker, name: "drain", label: "Drain", danger: true, unexplained: true,
		about: "The worker claims nothing more, and its session ends after its present runs.",
		do: func(ctx context.Context, b belay.Backend, o order) error {
			id, err := belay.ParseWorkerID(o.id)
			if err != nil {
				return nothingThere()
			}
			return b.Drain(ctx, id)
		},
	},
	{
		of: ofGate, name: "pause", label: "Pause", do: changeGate(belay.GatePause),
		about: "No execution passes the gate until an operator resumes it. Present runs go on.",
	},
	{
		of: ofGate, name: "resume", label: "Resume", do: changeGate(belay.GateResume),
		about: "The pause ends, and waiting executions pass as far as the other parts of the gate allow.",
	},
	{
		of: ofGate, name: "open", label: "Force the breaker open", danger: true, do: changeGate(belay.GateForceOpen),
		about: "No step with this target starts until an operator changes it.",
	},
	{
		of: ofGate, name: "close", label: "Force the breaker closed", danger: true,
		do:    changeGate(belay.GateForceClosed),
		about: "Steps with this target start whatever happens, until an operator changes it.",
	},
	{
		of: ofGate, name: "auto", label: "Let the breaker decide", do: changeGate(belay.GateAutomatic),
		about: "The circuit breaker opens and closes by itself again.",
	},
	{
		of: ofSchedule, name: "pause", label: "Pause", do: changeSchedule(belay.SchedulePauseAction),
		about: "Slots whose times come are not started until an operator resumes the schedule.",
	},
	{
		of: ofSchedule, name: "resume", label: "Resume", do: changeSchedule(belay.ScheduleResume),
		about: "The schedule starts its next slot on time.",
	},
	{
		of: ofSchedule, name: "run", label: "Start one now", do: changeSchedule(belay.ScheduleRun),
		about: "The schedule starts an execution now, whether or not it is paused.",
	},
	{
		of: ofLetter, name: "fix", label: "Fixed", do: changeLetter(belay.DeadLetterFix),
		about: "The dead letter is resolved: a person has repaired the consequences. The execution stays as it ended.",
	},
	{
		of: ofLetter, name: "discard", label: "Not needed", do: changeLetter(belay.DeadLetterDiscard),
		about: "The dead letter is resolved: the work is not needed. The execution stays as it ended.",
	},
	{
		of: ofLetter, name: "note", label: "Add a note", do: changeLetter(belay.DeadLetterNoted),
		about: "The dead letter stays open, and everybody who looks at it sees the note.",
	},
}

func changeLetter(a belay.DeadLetterAction) func(context.Context, belay.Backend, order) error {
	return func(ctx context.Context, b belay.Backend, o order) error {
		text, generation, _ := strings.Cut(o.id, ".")
		id, err := belay.ParseExecutionID(text)
		n, err2 := strconv.Atoi(generation)
		if err != nil || err2 != nil || n < 1 {
			return nothingThere()
		}
		_, err = b.ChangeDeadLetter(ctx, belay.DeadLetterChange{
			Execution: id, Generation: n, Action: a, Actor: o.actor, Note: o.reason, Op: o.op,
		})
		return err
	}
}

func cordon(off bool) func(context.Context, belay.Backend, order) error {
	return func(ctx context.Context, b belay.Backend, o order) error {
		id, err := belay.ParseWorkerID(o.id)
		if err != nil {
			return nothingThere()
		}
		return b.Cordon(ctx, belay.Cordon{Worker: id, Off: off, Actor: o.actor, Reason: o.reason})
	}
}

func changeGate(a belay.GateAction) func(context.Context, belay.Backend, order) error {
	return func(ctx context.Context, b belay.Backend, o order) error {
		_, err := b.ChangeGate(ctx, belay.GateChange{
			Gate: belay.GateID(o.id), Action: a, Actor: o.actor, Reason: o.reason, Op: o.op,
		})
		return err
	}
}

func changeSchedule(a belay.ScheduleAction) func(context.Context, belay.Backend, order) error {
	return func(ctx context.Context, b belay.Backend, o order) error {
		_, err := b.ChangeSchedule(ctx, belay.ScheduleChange{
			Name: o.id, Action: a, Actor: o.actor, Reason: o.reason, Op: o.op,
		})
		return err
	}
}

func nothingThere() error {
	return &belay.Error{Code: belay.CodeNotFound, Message: "There is no page at this address."}
}

// pageOf returns the address of the page of a thing.
func pageOf(of, id string) string {
	switch of {
	case ofGate:
		return addressOf("/queues", url.Values{}, "gate", id)
	case ofSchedule:
		return "/schedules/" + url.PathEscape(id)
	case ofLetter:
		execution, _, _ := strings.Cut(id, ".")
		return "/executions/" + url.PathEscape(execution)
	}
	return "/workers"
}

// deedsOn returns the named deeds on a thing, as far as the visitor may carry them out.
func deedsOn(ctx context.Context, of, id string, names ...string) []offer {
	var all []offer
	for i := range deeds {
		if d := &deeds[i]; d.of == of && slices.Contains(names, d.name) && visitorOf(ctx).allows(belay.ScopeOperate) {
			all = append(all, offer{d.address(id), d.label, d.danger})
		}
	}
	return all
}

// address returns the address of the form of a deed on a thing.
func (d *deed) address(id string) string {
	return deedPath + "?" + url.Values{"of": {d.of}, "id": {id}, "do": {d.name}}.Encode()
}

// deedNamed returns the deed of a name on a kind of thing; nil if there is none.
func deedNamed(of, name string) *deed {
	i := slices.IndexFunc(deeds, func(d deed) bool { return d.of == of && d.name == name })
	if i < 0 {
		return nil
	}
	return &deeds[i]
}

// backTo returns the page to which the browser goes after a deed: that of the execution whose page offered the deed,
// which the field "back" of the form names, or that of the thing.
func backTo(form url.Values, of, id string) string {
	if execution, err := belay.ParseExecutionID(form.Get("back")); err == nil {
		return "/executions/" + execution.String()
	}
	return pageOf(of, id)
}

// deed shows the form of a deed, or carries the deed out and goes to the page of the thing.
func (p *pages) deed(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		p.refuse(w, r, &belay.Error{Code: belay.CodeMalformed, Message: "The form cannot be read, or it is too large."})
		return
	}
	of, id := r.Form.Get("of"), r.Form.Get("id")
	d := deedNamed(of, r.Form.Get("do"))
	switch {
	case d == nil || id == "" || len(id) > 1000:
		p.refuse(w, r, nothingThere())
		return
	case !visitorOf(ctx).allows(belay.ScopeOperate):
		p.refuse(w, r, lacks(belay.ScopeOperate))
		return
	}
	if r.Method != http.MethodPost {
		p.deedForm(w, r, d, id, nil)
		return
	}
	o := order{id: id, actor: visitorOf(ctx).actor(), reason: formReason(r.PostForm)}
	if err := o.op.UnmarshalText([]byte(r.PostForm.Get("op"))); err != nil || o.op.IsZero() {
		p.refuse(w, r, incomplete())
		return
	}
	switch err := d.do(ctx, p.backend, o); {
	case err == nil:
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, doneAt(backTo(r.PostForm, of, id), d), http.StatusSeeOther)
	case repairable(err):
		p.deedForm(w, r, d, id, err)
	default:
		p.refuse(w, r, err)
	}
}

// doneAt adds the deed that was carried out to the address of the page of an execution, which shows a note about it.
func doneAt(address string, d *deed) string {
	if !strings.HasPrefix(address, "/executions/") {
		return address
	}
	return address + "?" + url.Values{"done": {d.of + "." + d.name}}.Encode()
}

func formReason(form url.Values) string {
	return excerpt(strings.TrimSpace(form.Get("reason")), maxLine)
}

// deedForm shows the form of a deed; failed is set after the deed was refused.
func (p *pages) deedForm(w http.ResponseWriter, r *http.Request, d *deed, id string, failed error) {
	f := actionForm{
		ID: id,
		UpName: map[string]string{
			ofWorker: "Workers", ofGate: "Queues and gates", ofSchedule: "Schedules", ofLetter: "Dead letters",
		}[d.of],
		Up: map[string]string{
			ofWorker: "/workers", ofGate: "/queues", ofSchedule: "/schedules", ofLetter: "/dead",
		}[d.of],
		Back: backTo(r.Form, d.of, id), Post: deedPath, Heading: d.label, Button: d.label, About: d.about,
		Danger: d.danger,
		Hidden: []field{{Name: "of", Value: d.of}, {Name: "id", Value: id}, {Name: "do", Value: d.name}},
	}
	if execution, err := belay.ParseExecutionID(r.Form.Get("back")); err == nil {
		f.Hidden = append(f.Hidden, field{Name: "back", Value: execution.String()})
	}
	var op belay.OpID
	_, _ = rand.Read(op[:]) // never fails
	f.Op = op.String()
	if !d.unexplained {
		reason := reasonField
		if d.name == "note" {
			reason.Label, reason.Required, reason.About = "Note", true, "It stays with the dead letter."
		}
		reason.Value = r.PostForm.Get("reason")
		f.Fields = []field{reason}
	}
	p.showForm(w, r, f, failed)
}
