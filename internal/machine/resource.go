package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Resource is the part of a gate that lets executions share a resource, such as a GPU, in one mode at
// a time. Executions of the present mode run together; those of other modes wait. A resource is idle or
// ready in its mode; it drains when another mode is due; it is empty and swapping while an execution
// changes the mode; and it is failed for a while after such an execution has failed. The resource has
// no mode while it is swapping or failed, so that no run can start.
type Resource struct {
	// Terms are the terms that an operator has set; nil for the defaults.
	Terms *belay.ResourceTerms `json:"terms,omitempty"`
	SetBy *SetBy               `json:"set_by,omitempty"`
	// Mode is the mode in which runs may start, empty if the mode is unknown. ReadyAt is when the
	// resource got the mode.
	Mode    string `json:"mode,omitempty"`
	ReadyAt Time   `json:"ready_at,omitzero"`
	// Fresh says that no execution has used the mode yet. A fresh mode is not given up while
	// executions wait for it, so that each swap serves some of them.
	Fresh bool `json:"fresh,omitempty"`
	// IdleAt is when the rules first saw that no run uses the resource; 0 while runs use it.
	IdleAt Time `json:"idle_at,omitzero"`
	// Wants are the modes of waiting executions, the longest waiting first.
	Wants []want `json:"wants,omitempty"`
	// Swap is the execution that changes the mode, nil if there is none.
	Swap *swap `json:"swap,omitempty"`
	// Failures is the number of swaps that failed in a row, and Error is the error of the last one.
	// The next swap begins at RetryAt at the earliest.
	Failures int    `json:"failures,omitempty"`
	Error    string `json:"error,omitempty"`
	RetryAt  Time   `json:"retry_at,omitzero"`
	// AskedAt is when preemptible runs were last asked to yield.
	AskedAt Time `json:"asked_at,omitzero"`
}

// want is a mode for which executions wait.
type want struct {
	Mode  string `json:"mode"`
	Since Time   `json:"since"`
	// Until is set while a program wants to lock an execution of this mode. Such an execution waits
	// in no line, so the want counts until this time although the line of the mode is empty.
	Until Time `json:"until,omitzero"`
}

// swap names the execution that changes the mode of a resource.
type swap struct {
	Execution belay.ExecutionID `json:"execution"`
	From      string            `json:"from,omitempty"`
	To        string            `json:"to"`
	Since     Time              `json:"since"`
}

const (
	// maxWants is the largest number of modes that wait at one resource in lines of their own.
	// Executions of further modes wait together until one of these lines is empty.
	maxWants = 100
	// wishFor is how long a refused lock keeps its mode wanted.
	wishFor = 15 * time.Second
	// linger is how long a resource whose mode is changed by a workflow stays in its mode after its
	// last run has ended, so that a worker can claim the next execution of this mode.
	linger = 500 * time.Millisecond
	// swapRetry is how long a resource waits after the first failed swap. Each further failure
	// doubles the time, up to swapRetryMax.
	swapRetry    = 10 * time.Second
	swapRetryMax = 5 * time.Minute
	// askAgain is the least time between two requests to the same runs to yield.
	askAgain = 10 * time.Second
)

// lineMark separates the id of a resource's gate from a mode in the id of the line of this mode. Names
// contain no control characters.
const lineMark = "\x1f"

// LineOf returns the id of the line in which executions wait for a mode of a resource. Each mode has a
// line of its own, so that a store finds the executions of one mode among many others.
func LineOf(resource belay.GateID, mode string) belay.GateID {
	return resource + lineMark + belay.GateID(mode)
}

// WaitsAt returns the gate at which the execution waits, empty for none.
func (e *Execution) WaitsAt() belay.GateID {
	gate, _, _ := strings.Cut(string(e.Gate), lineMark)
	return belay.GateID(gate)
}

// ResourceTerms returns the terms with defaults filled in.
func ResourceTerms(t belay.ResourceTerms) belay.ResourceTerms {
	setDefault(&t.MaxWait, belay.DefaultMaxWait)
	if s := t.Swap; s != nil {
		c := *s
		setDefault(&c.Queue, "default")
		setDefault(&c.Timeout, belay.DefaultSwapTimeout)
		setDefault(&t.MinResidency, min(belay.DefaultMinResidency, t.MaxWait))
		t.Swap = &c
	}
	return t
}

func (r *Resource) terms() belay.ResourceTerms {
	var t belay.ResourceTerms
	if r.Terms != nil {
		t = *r.Terms
	}
	return ResourceTerms(t)
}

// resource returns the resource of the gate.
func (g *gate) resource() *Resource {
	if g.Resource == nil {
		g.Resource = new(Resource)
	}
	return g.Resource
}

// state names the present state, for people.
func (r *Resource) state(held int, now Time) belay.ResourceState {
	switch {
	case r.Swap != nil:
		return belay.ResourceSwapping
	case r.Failures > 0 && r.Mode == "":
		return belay.ResourceFailed
	case held > 0 && r.wanted(held, now) != "":
		return belay.ResourceDraining
	case held > 0:
		return belay.ResourceReady
	}
	return belay.ResourceIdle
}

// wants reports whether executions wait for the mode.
func (r *Resource) wants(mode string) bool {
	return slices.ContainsFunc(r.Wants, func(w want) bool { return w.Mode == mode })
}

// want notes that executions wait for the mode. It reports false if too many modes wait.
func (r *Resource) want(mode string, now Time) bool {
	if r.wants(mode) {
		return true
	}
	if len(r.Wants) >= maxWants {
		return false
	}
	r.Wants = append(slices.Clip(r.Wants), want{Mode: mode, Since: now})
	return true
}

// wish notes that a program wants to lock an execution of the mode.
func (r *Resource) wish(mode string, now Time) {
	if !r.want(mode, now) {
		return
	}
	r.Wants = slices.Clone(r.Wants)
	for i := range r.Wants {
		if w := &r.Wants[i]; w.Mode == mode {
			w.Until = now.Add(wishFor)
		}
	}
}

// forget removes a mode for which nothing waits any more.
func (r *Resource) forget(mode string) {
	r.Wants = slices.DeleteFunc(slices.Clone(r.Wants), func(w want) bool { return w.Mode == mode })
}

// modes lists the modes for which executions wait.
func (r *Resource) modes() []string {
	all := make([]string, len(r.Wants))
	for i, w := range r.Wants {
		all[i] = w.Mode
	}
	return all
}

// other returns the mode beside the present one for which executions have waited longest, nil if
// there is none.
func (r *Resource) other() *want {
	for i := range r.Wants {
		if r.Wants[i].Mode != r.Mode {
			return &r.Wants[i]
		}
	}
	return nil
}

// wanted returns the mode to which the resource must change, empty if it keeps its mode. It must change
// when the executions of another mode have waited for the maximum wait, or when no run uses the
// resource; in both cases after the minimum residency. From that moment no run of the present mode
// starts. held is the number of executions that use the resource.
func (r *Resource) wanted(held int, now Time) string {
	w := r.other()
	switch {
	case w == nil, r.Swap != nil, r.RetryAt > now:
	case r.Mode == "":
		return w.Mode
	case r.Fresh && r.wants(r.Mode), now < r.resident():
	case now >= w.Since.Add(r.terms().MaxWait.D()):
		return w.Mode
	case held == 0 && !r.wants(r.Mode) && r.lingered(now):
		return w.Mode
	}
	return ""
}

// resident is the end of the minimum residency of the present mode.
func (r *Resource) resident() Time {
	if r.Mode == "" || r.ReadyAt == 0 {
		return 0
	}
	return r.ReadyAt.Add(r.terms().MinResidency.D())
}

func (r *Resource) lingered(now Time) bool {
	return r.swapper() == nil || r.IdleAt != 0 && now >= r.IdleAt.Add(linger)
}

func (r *Resource) swapper() *belay.ResourceSwapper { return r.terms().Swap }

// times are the next times at which wanted may give another answer.
func (r *Resource) times() []Time {
	all := []Time{r.RetryAt, r.resident()}
	if w := r.other(); w != nil {
		all = append(all, w.Since.Add(r.terms().MaxWait.D()))
	}
	if r.IdleAt != 0 {
		all = append(all, r.IdleAt.Add(linger))
	}
	return all
}

// refuses returns the reason for which no run of the mode may start now, empty if it may. until is the
// time at which the reason is over, 0 if that is not known.
func (r *Resource) refuses(mode string, held int, now Time) (why string, until Time) {
	switch next := r.wanted(held, now); {
	case r.Swap != nil:
		return "its mode changes to " + quoted(r.Swap.To), 0
	case r.RetryAt > now && r.Mode == "":
		return "the last change of its mode failed: " + r.Error, r.RetryAt
	case next != "":
		return "its mode is about to change to " + quoted(next), 0
	case r.Mode == mode && mode != "":
		return "", 0
	case r.swapper() == nil && held == 0 && len(r.Wants) == 0 && now >= r.resident():
		return "", 0
	case r.Mode == "":
		return "it has no mode yet", 0
	}
	return "its mode is " + quoted(r.Mode), 0
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// become gives the resource a mode in which no execution has run yet.
func (r *Resource) become(mode string, now Time) {
	r.Mode, r.ReadyAt, r.Fresh, r.IdleAt, r.AskedAt = mode, now, true, now, 0
	r.Failures, r.RetryAt, r.Error = 0, 0, ""
}

// entered notes that a run of the mode has started or was let through. It reports whether the row
// changed.
func (r *Resource) entered(mode string, now Time) bool {
	if r.Mode == mode && !r.Fresh && r.IdleAt == 0 {
		return false
	}
	if r.Mode != mode {
		r.become(mode, now)
	}
	r.Fresh, r.IdleAt = false, 0
	return true
}

// failed notes that a swap has failed.
func (r *Resource) failed(why string, now Time) {
	r.Failures++
	r.Error = clip(why, 300)
	r.RetryAt = now.Add(min(swapRetry<<min(r.Failures-1, 8), swapRetryMax))
	r.Mode, r.ReadyAt, r.Fresh, r.IdleAt = "", 0, false, 0
}

// bars returns the reason for which the gate does not let an execution through now that has no place
// in it, empty if it does.
func (g *gate) bars(e *Execution, now Time) (why string, until Time) {
	why, until = g.shut(now)
	switch {
	case g.id.Kind() == belay.GateResource:
		if g.err == nil && !g.paused(now) && e.requires(g.id) {
			return g.resource().refuses(e.Gates.Requires.Mode, g.held, now)
		}
	case why == "" && g.waits():
		return "others have waited for longer", 0
	}
	return why, until
}

// requires reports whether the submission of the execution names the resource of this gate.
func (e *Execution) requires(resource belay.GateID) bool {
	return e.Gates != nil && e.Gates.Requires != nil && e.gateOf(PlaceResource) == resource
}

// yields reports whether the run of the execution was asked to yield its resource, and may be asked so.
func (e *Execution) yields() bool {
	return e.Preempting && e.Places&PlaceResource != 0 && e.Gates.Requires.Preemptible
}

// DueSince is the time since which the execution waits for a run, 0 if it is not due. It differs from
// DueAt after a run has yielded its resource: DueAt is then the time of the submission, which puts the
// execution at the head of its lane.
func (e *Execution) DueSince() Time {
	if e.DueAt == 0 {
		return 0
	}
	return max(e.DueAt, e.ProgressAt)
}

// isSwap reports whether the execution changes the mode of a resource.
func (e *Execution) isSwap() bool { return e.Gates != nil && e.Gates.Swap != "" }

func (c *SetGate) checkResource(op string) error {
	if c.Action != belay.GateSetResource {
		if c.Resource != nil {
			return refuse(belay.CodeInvalid, op, "only the action %q takes the terms of a resource",
				belay.GateSetResource)
		}
		return nil
	}
	if c.Resource == nil {
		return refuse(belay.CodeInvalid, op, "the action %q needs the terms of the resource", c.Action)
	}
	for _, d := range []struct {
		what string
		d    belay.Duration
	}{{"min_residency", c.Resource.MinResidency}, {"max_wait", c.Resource.MaxWait}} {
		if d.d < 0 || d.d > belay.MaxResourceWait {
			return refuse(belay.CodeInvalid, op, "%s is %s; it must be between 0 and %s", d.what, d.d.D(),
				belay.MaxResourceWait.D())
		}
	}
	if t := ResourceTerms(*c.Resource); t.MinResidency > t.MaxWait {
		return refuse(belay.CodeInvalid, op, "the minimum residency of %s is longer than the maximum wait of %s",
			t.MinResidency.D(), t.MaxWait.D())
	}
	s := c.Resource.Swap
	if s == nil {
		return nil
	}
	if s.Timeout < 0 {
		return refuse(belay.CodeInvalid, op, "the timeout of a swap is negative")
	}
	for _, n := range []struct {
		what, s string
		needed  bool
	}{
		{"the workflow of the swap", s.Workflow, true}, {"its version", s.Version, false},
		{"its queue", s.Queue, false},
	} {
		if err := checkName(op, n.what, n.s, n.needed); err != nil {
			return err
		}
	}
	return nil
}

// changeResource sets or removes the terms of a resource. A resource whose last swap has failed tries
// again at once, because the operator may have repaired it.
func (c *SetGate) changeResource(g *Gate, now Time) {
	var r Resource
	if g.Resource != nil {
		r = *g.Resource
	}
	if c.Action == belay.GateUnsetResource {
		r.Terms, r.SetBy = nil, nil
	} else {
		terms := ResourceTerms(*c.Resource)
		r.SetBy = c.setBy(r.SetBy, r.Terms != nil && sameTerms(*r.Terms, terms), now)
		r.Terms = &terms
	}
	r.RetryAt = 0
	g.Resource = &r
}

func sameTerms(a, b belay.ResourceTerms) bool { return a.Text() == b.Text() }

// view returns the resource in the form of the API.
func (r *Resource) view(held int, now Time) *belay.GateResourceInfo {
	t := r.terms()
	v := &belay.GateResourceInfo{
		State: r.state(held, now), Mode: r.Mode, Since: r.ReadyAt.Time(), Wanted: r.wanted(held, now),
		ResourceTerms: t, Set: r.Terms != nil, Failures: r.Failures, Error: r.Error,
		Waiting: []belay.ModeWaiting{}, MinResidencyMS: t.MinResidency.D().Milliseconds(),
		MaxWaitMS: t.MaxWait.D().Milliseconds(),
	}
	if r.RetryAt > now {
		v.RetryAt = r.RetryAt.Time()
	}
	if s := r.Swap; s != nil {
		v.Swapping = &belay.ResourceSwap{Execution: s.Execution, From: s.From, To: s.To, Since: s.Since.Time()}
	}
	for _, w := range r.Wants {
		v.Waiting = append(v.Waiting, belay.ModeWaiting{Mode: w.Mode, Since: w.Since.Time()})
	}
	if s := r.SetBy; s != nil {
		v.By, v.Reason = s.By, s.Reason
	}
	return v
}
