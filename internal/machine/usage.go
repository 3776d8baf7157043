package machine

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// UsageObject is the kind of the objects that have the usage of one execution on one day of UTC. Their
// names are the day, a slash and the id of the execution, so a store lists them by day. They outlive their
// execution.
const UsageObject ObjectKind = "usage"

// usageBody is the body of such an object.
type usageBody struct {
	Workflow string            `json:"workflow"`
	Labels   map[string]string `json:"labels,omitempty"`
	Usage    belay.ModelUsage  `json:"usage"`
}

var usages = codec[usageBody]{UsageObject}

// UsageDay returns the day of a time, as the names of usage objects begin.
func UsageDay(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func usageRef(day string, id belay.ExecutionID) ObjectRef { return usages.ref(day + "/" + id.String()) }

// usageRefs returns the objects that a report of usage may change: that of the day at which the rows were
// locked, and that of the next day, because the day may end before the store reads its clock again.
func (n *Need) usageRefs(rows *Rows) (refs []ObjectRef) {
	today := rows.Now.Time()
	for _, id := range n.Using {
		refs = append(refs, usageRef(UsageDay(today), id), usageRef(UsageDay(today.AddDate(0, 0, 1)), id))
	}
	return refs
}

// UsageRow is the usage of one execution on one day.
type UsageRow struct {
	Day, Execution, Workflow string
	Labels                   map[string]string
	belay.ModelUsage
}

// UsageOf decodes a usage object.
func UsageOf(o *Object) (UsageRow, error) {
	b, err := usages.decode(o)
	if err != nil {
		return UsageRow{}, err
	}
	day, id, _ := strings.Cut(o.Name, "/")
	return UsageRow{day, id, b.Workflow, b.Labels, b.Usage}, nil
}

// use adds usage to the object of an execution and the present day. It belongs to the execution that
// reported it, not to its ancestors, so that each usage is in one object. The lease of the execution
// protects the object.
func (w *world) use(e *Execution, u belay.ModelUsage) error {
	if u == (belay.ModelUsage{}) {
		return nil
	}
	ref := usageRef(UsageDay(w.Now.Time()), e.ID)
	b := &usageBody{Workflow: e.Workflow}
	if o := w.object(ref); o != nil {
		var err error
		if b, err = usages.decode(o); err != nil {
			return err
		}
	} else if s := w.specs[e.ID]; s != nil {
		b.Labels = s.Labels
	}
	b.Usage = b.Usage.Add(u)
	body, err := usages.encode(b)
	if err != nil {
		return err
	}
	o := w.rewrite(ref)
	o.Version, o.UpdatedAt, o.Body = o.Version+1, w.Now, body
	return nil
}

// usage adds usage to the content of an operation. Without usage the sum is the same as that of older
// servers, which know no usage.
func (s opContent) usage(u belay.ModelUsage) opContent {
	if u == (belay.ModelUsage{}) {
		return s
	}
	text, err := json.Marshal(u)
	if err != nil { // never happens: it consists of numbers
		return s
	}
	return s.text("usage").bytes(text)
}

// Group returns the key of the group to which a row belongs, and whether the filter selects the row.
func (r *UsageRow) Group(f belay.UsageFilter) (key string, ok bool) {
	if f.Workflow != "" && f.Workflow != r.Workflow {
		return "", false
	}
	for k, v := range f.Labels {
		if have, ok := r.Labels[k]; !ok || have != v {
			return "", false
		}
	}
	switch label, labelled := strings.CutPrefix(f.By, "label:"); {
	case labelled:
		return r.Labels[label], true
	case f.By == "job":
		return r.Execution, true
	case f.By == "workflow":
		return r.Workflow, true
	}
	return r.Day, true
}

// CheckUsageFilter checks a filter of usage.
func CheckUsageFilter(op string, f belay.UsageFilter) error {
	label, labelled := strings.CutPrefix(f.By, "label:")
	switch {
	case labelled && checkName(op, "the label", label, true) != nil,
		!labelled && f.By != "" && f.By != "day" && f.By != "job" && f.By != "workflow":
		return refuse(belay.CodeInvalid, op, "usage is grouped by day, job, workflow, or label:KEY")
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return refuse(belay.CodeInvalid, op, "since must be before until")
	case outOfYears(f.Since), outOfYears(f.Until):
		return refuse(belay.CodeInvalid, op, "since and until must be in the years 1970 to 9998")
	}
	if err := checkName(op, "the workflow", f.Workflow, false); err != nil {
		return err
	}
	for k, v := range f.Labels {
		if err := checkName(op, "the label", k, true); err != nil {
			return err
		}
		if err := checkName(op, "the value of the label", v, false); err != nil {
			return err
		}
	}
	return nil
}

// outOfYears reports whether a time is outside of the years in which names of days have the order of time.
func outOfYears(t time.Time) bool {
	return !t.IsZero() && (t.UTC().Year() < 1970 || t.UTC().Year() > 9998)
}
