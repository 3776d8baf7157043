package webui

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// deed is an action on a worker, a gate, a schedule, a dead letter, a webhook or a target of notifications. All of
// them need the scope operate.
type deed struct {
	of, name     string // parts of the address of the form
	label, about string
	danger       bool
	unexplained  bool        // no reason is kept
	also         belay.Scope // another scope that it needs; empty if it needs none
	fields       []field     // before the reason
	// preset returns the values that the fields have at first; nil if they are empty. The value of "version" goes into
	// a hidden field.
	preset presetter
	do     doer
}

// presetter reads the values that the fields of a deed on a thing have at first.
type presetter func(ctx context.Context, b belay.Backend, id string) (url.Values, error)

// doer carries a deed out. It returns the address to which the browser goes; empty means the page of the thing.
type doer func(context.Context, belay.Backend, order) (to string, err error)

// order is what a visitor asks for with the form of a deed.
type order struct {
	id, actor, reason string
	op                belay.OpID
	form              url.Values
}

// allowed reports whether a visitor may carry the deed out.
func (d *deed) allowed(v Visitor) bool {
	return v.allows(belay.ScopeOperate) && (d.also == "" || v.allows(d.also))
}

const deedPath = "/act"

// The things on which there are deeds.
const (
	ofWorker   = "worker"
	ofGate     = "gate"
	ofSchedule = "schedule"
	ofWebhook  = "webhook"
	ofDelivery = "delivery" // the id is the name of the webhook, a slash, and the id of the delivery
	ofTarget   = "target"   // of notifications
	ofGroup    = "group"    // the id is a fingerprint
	ofLetter   = "letter"   // the id is that of the execution, a point, and the generation that failed
)

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
	case ofWebhook, ofDelivery:
		name, _, _ := strings.Cut(id, "/")
		return "/webhooks/" + url.PathEscape(name)
	case ofTarget:
		return "/notifications/" + url.PathEscape(id)
	case ofGroup:
		return addressOf("/dead", url.Values{}, "fingerprint", id)
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
		if d := &deeds[i]; d.of == of && slices.Contains(names, d.name) && d.allowed(visitorOf(ctx)) {
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
	form, ok := p.posted(w, r)
	if !ok {
		return
	}
	from := form
	if form == nil {
		from = r.URL.Query()
	}
	of, id := from.Get("of"), from.Get("id")
	d := deedNamed(of, from.Get("do"))
	switch v := visitorOf(ctx); {
	case d == nil || id == "" || len(id) > 1000:
		p.refuse(w, r, nothingThere())
		return
	case !v.allows(belay.ScopeOperate):
		p.refuse(w, r, lacks(belay.ScopeOperate))
		return
	case !d.allowed(v):
		p.refuse(w, r, lacks(d.also))
		return
	}
	if form == nil {
		first := url.Values{}
		if d.preset != nil {
			var err error
			if first, err = d.preset(ctx, p.backend, id); err != nil {
				p.refuse(w, r, err)
				return
			}
		}
		first.Set("back", from.Get("back"))
		p.deedForm(w, r, d, id, first, nil)
		return
	}
	o := order{id: id, actor: visitorOf(ctx).actor(), reason: formReason(form), form: form}
	if err := o.op.UnmarshalText([]byte(form.Get("op"))); err != nil || o.op.IsZero() {
		p.refuse(w, r, incomplete())
		return
	}
	switch to, err := d.do(ctx, p.backend, o); {
	case err == nil:
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, cmp.Or(to, doneAt(backTo(form, of, id), d)), http.StatusSeeOther)
	case repairable(err):
		p.deedForm(w, r, d, id, form, err)
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

// upOf are the addresses and names of the lists to which things belong.
var upOf = map[string]option{
	ofWorker: {Value: "/workers", Label: "Workers"}, ofGate: {Value: "/queues", Label: "Queues and gates"},
	ofSchedule: {Value: "/schedules", Label: "Schedules"}, ofLetter: {Value: "/dead", Label: "Dead letters"},
	ofGroup: {Value: "/dead", Label: "Dead letters"}, ofWebhook: {Value: "/webhooks", Label: "Webhooks"},
	ofDelivery: {Value: "/webhooks", Label: "Webhooks"}, ofTarget: {Value: "/notifications", Label: "Notifications"},
}

// deedForm shows the form of a deed with the values that it has; failed is set after the deed was refused.
func (p *pages) deedForm(w http.ResponseWriter, r *http.Request, d *deed, id string, form url.Values, failed error) {
	up := upOf[d.of]
	f := actionForm{
		ID: id, Up: up.Value, UpName: up.Label, Back: backTo(form, d.of, id), Post: deedPath,
		Heading: d.label, Button: d.label, About: d.about, Danger: d.danger, Op: newOp(),
		Hidden: []field{{Name: "of", Value: d.of}, {Name: "id", Value: id}, {Name: "do", Value: d.name}},
	}
	if execution, err := belay.ParseExecutionID(form.Get("back")); err == nil {
		f.Hidden = append(f.Hidden, field{Name: "back", Value: execution.String()})
	}
	for _, x := range d.fields {
		x.Options = slices.Clone(x.Options)
		f.Fields = append(f.Fields, x)
	}
	if !d.unexplained {
		reason := reasonField
		if d.name == "note" {
			reason.Label, reason.Required, reason.About = "Note", true, "It stays with the dead letter."
		}
		f.Fields = append(f.Fields, reason)
	}
	for i := range f.Fields {
		f.Fields[i].restore(form)
	}
	if v := form.Get("version"); v != "" {
		f.Hidden = append(f.Hidden, field{Name: "version", Value: v})
	}
	p.showForm(w, r, f, failed)
}

// Deeds returns the values of the fields "of" and "do" of all forms that pages send to /act.
func Deeds() [][2]string {
	all := make([][2]string, len(deeds))
	for i := range deeds {
		all[i] = [2]string{deeds[i].of, deeds[i].name}
	}
	return all
}
