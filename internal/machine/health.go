package machine

import (
	"strings"
	"time"
	"unicode"

	"github.com/belaydev/belay"
)

// Probe records the result of a health probe of a worker. A failed probe stops the claims of the
// worker until a probe succeeds. It takes nothing from the worker: neither its runs nor the
// executions that are scheduled to it. Only a change is written, so a probe with the same result as
// the last one writes nothing, and several servers may probe the same worker.
type Probe struct {
	Worker belay.WorkerID
	// Error says why the probe failed; it is empty if the probe succeeded.
	Error string
}

// Need asks the store for the session.
func (c *Probe) Need(n *Need) { n.Workers = append(n.Workers, c.Worker) }

func (c *Probe) apply(w *world) (Reply, error) {
	const op = "probe"
	x, err := w.session(op, c.Worker)
	switch {
	case err != nil:
		return Reply{}, err
	case x.Spec.External:
		return Reply{}, refuseExternal(op, x)
	case x.Spec.Health == "":
		return Reply{}, refuse(belay.CodeConflict, op, "worker %s has no address for health probes", x.Spec.Name)
	case x.State == belay.WorkerDraining: // a draining session claims nothing more, whatever its health
		return Reply{}, nil
	}
	cond := x.condition()
	switch failure := c.failure(); {
	case failure == "":
		cond.UnhealthySince, cond.HealthError = time.Time{}, ""
	case cond.HealthError == "":
		cond.UnhealthySince, cond.HealthError = w.Now.Time(), failure
	default:
		cond.HealthError = failure
	}
	state, why := x.State, x.Why
	if x.Why = cond.why(); x.State != belay.WorkerCordoned {
		x.State = x.uncordoned()
	}
	var r Reply
	if x.State != state {
		r.Worker = x.State
	}
	if x.State != state || x.Why != why {
		w.changedWorker(x)
	}
	return r, nil
}

// failure is the error of the probe as one short line without characters that cannot be printed.
// The error may contain text of a program that only claims to be a worker.
func (c *Probe) failure() string {
	if c.Error == "" {
		return ""
	}
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(c.Error, "�"))
	if line = strings.Join(strings.Fields(line), " "); line == "" {
		line = "the probe failed"
	}
	return clip(line, belay.MaxName)
}
