package machine

import (
	"fmt"
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
	// Stale says that the workflow which changes the mode was replaced since the resource got its mode.
	// No run starts in this mode; when no run uses the resource any more, its mode is unknown.
	Stale bool `json:"stale,omitempty"`
	// IdleAt is when the rules first saw that no run uses the resource; 0 while runs use it.
	IdleAt Time `json:"idle_at,omitzero"`
	// Wants are the modes of waiting executions, the longest waiting first.
	Wants []want `json:"wants,omitempty"`
	// Swap is the execution that changes the mode, nil if there is none.
	Swap *swap `json:"swap,omitempty"`
	// Number is the number of the last swap.
	Number int64 `json:"number,omitempty"`
	// Failures is the number of swaps that failed in a row, and Error is the error of the last one.
	Failures int    `json:"failures,omitempty"`
	Error    string `json:"error,omitempty"`
	// Let is at least the number of executions that the resource has let through and that have not
	// started a run yet. LetAt is when it let the last of them through.
	Let   int  `json:"let,omitempty"`
	LetAt Time `json:"let_at,omitzero"`
	// AskedAt is when preemptible runs were last asked to yield.
	AskedAt Time `json:"asked_at,omitzero"`
}

// swap names the execution that changes the mode of a resource.
type swap struct {
	Execution belay.ExecutionID `json:"execution"`
	From      string            `json:"from,omitempty"`
	To        string            `json:"to"`
	Since     Time              `json:"since"`
	// By are the terms that named its workflow; nil in rows of older versions.
	By *belay.ResourceSwapper `json:"by,omitempty"`
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
	// swapRetry is how long a mode whose swap has failed must wait for the next swap. Each further
	// failure in a row doubles the time, up to swapRetryMax. Other modes need not wait for so long.
	swapRetry    = 10 * time.Second
	swapRetryMax = 5 * time.Minute
	// maxLet is the largest number of executions that a resource has let through and that have not
	// started a run yet. So another mode waits for a bounded number of runs.
	maxLet = 2 * MaxHeads
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
	case held > 0 && (r.Stale || r.wanted(held, now) != ""):
		return belay.ResourceDraining
	case held > 0:
		return belay.ResourceReady
	}
	return belay.ResourceIdle
}

// wanted returns the mode to which the resource must change, empty if it keeps its mode. It must change
// when the executions of another mode have waited for the maximum wait, or when no run uses the
// resource; in both cases after the minimum residency. From that moment no run of the present mode
// starts. held is the number of executions that use the resource.
func (r *Resource) wanted(held int, now Time) string {
	w := r.other(now)
	switch {
	case w == nil, r.Swap != nil:
	case r.Mode == "", r.Stale:
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
func (r *Resource) times(now Time) []Time {
	all := []Time{r.resident()}
	if r.full(now) {
		all = append(all, r.LetAt.Add(admitFor))
	}
	for _, w := range r.Wants {
		all = append(all, w.RetryAt)
	}
	if w := r.other(now); w != nil {
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
	case r.retryAt(mode, now) != 0:
		return "the last change of its mode failed: " + r.Error, r.retryAt(mode, now)
	case next != "":
		return "its mode is about to change to " + quoted(next), 0
	case r.Stale:
		return "its mode must be loaded again, because another workflow loads its modes now", 0
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

// become gives the resource a mode in which no execution has run yet. If further executions of the mode
// wait when its turn is over, all modes that wait now come before it, so that each mode has its turn.
func (r *Resource) become(mode string, now Time) {
	r.Mode, r.ReadyAt, r.Fresh, r.Stale, r.IdleAt, r.AskedAt = mode, now, true, false, now, 0
	r.Let, r.LetAt = 0, 0
	r.Failures, r.Error = 0, ""
	if r.wants(mode) {
		w := r.putLast(mode, now)
		w.Failures, w.RetryAt = 0, 0
	}
}

// unload makes the mode of the resource unknown. No run must use the resource.
func (r *Resource) unload() { r.Mode, r.ReadyAt, r.Fresh, r.Stale, r.IdleAt = "", 0, false, false, 0 }

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

// full reports whether the resource has let so many executions through that have not started a run yet
// that it lets no more through. Those that nothing has started in time have lost their places.
func (r *Resource) full(now Time) bool { return r.Let >= maxLet && now < r.LetAt.Add(admitFor) }

// let notes that an execution was let through.
func (r *Resource) let(now Time) {
	if r.Let >= maxLet || now >= r.LetAt.Add(admitFor) { // the places of the earlier ones have lapsed
		r.Let = 0
	}
	r.Let, r.LetAt = r.Let+1, now
}

// failed notes that a swap to the mode has failed. The other modes come before the next attempt.
func (r *Resource) failed(mode, why string, now Time) {
	r.unload()
	r.Failures++
	r.Error = clip(why, 300)
	if !r.want(mode, now) {
		return
	}
	w := r.putLast(mode, now)
	w.RetryAt = now.Add(min(swapRetry<<min(w.Failures, 8), swapRetryMax))
	w.Failures++
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

// yielding is the reason of a run that was asked to yield its resource. An operator's preempt sets no
// reason.
const yielding = "yielding"

// yields reports whether the run of the execution was asked to yield its resource.
func (e *Execution) yields() bool {
	return e.Preempting && e.Reason == yielding && e.Places&PlaceResource != 0
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

// view returns the resource in the form of the API.
func (r *Resource) view(held int, now Time) *belay.GateResourceInfo {
	t := r.terms()
	v := &belay.GateResourceInfo{
		State: r.state(held, now), Mode: r.Mode, Since: r.ReadyAt.Time(), Wanted: r.wanted(held, now),
		ResourceTerms: t, Set: r.Terms != nil, Failures: r.Failures, Error: r.Error,
		Waiting: []belay.ModeWaiting{},
	}
	v.RetryAt = r.retryAt("", now).Time()
	if s := r.Swap; s != nil {
		v.Swapping = &belay.ResourceSwap{Execution: s.Execution, From: s.From, To: s.To, Since: s.Since.Time()}
	}
	for _, w := range r.Wants {
		m := belay.ModeWaiting{Mode: w.Mode, Since: w.Since.Time(), Failures: w.Failures}
		if w.RetryAt > now {
			m.RetryAt = w.RetryAt.Time()
		}
		v.Waiting = append(v.Waiting, m)
	}
	if s := r.SetBy; s != nil {
		v.By, v.Reason = s.By, s.Reason
	}
	return v
}
