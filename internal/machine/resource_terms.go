package machine

import (
	"slices"

	"github.com/belaydev/belay"
)

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

// changeResource sets or removes the terms of a resource that held executions use. A resource whose last
// swap has failed tries again at once, because the operator may have repaired it. If another workflow
// changes the modes from now on, the present mode is unknown to it, so it must be loaded again.
func (c *SetGate) changeResource(g *Gate, held int, now Time) {
	var r Resource
	if g.Resource != nil {
		r = *g.Resource
	}
	was := r.swapper()
	if c.Action == belay.GateUnsetResource {
		r.Terms, r.SetBy = nil, nil
	} else {
		terms := ResourceTerms(*c.Resource)
		r.SetBy = c.setBy(r.SetBy, r.Terms != nil && sameTerms(*r.Terms, terms), now)
		r.Terms = &terms
	}
	r.Wants = slices.Clone(r.Wants)
	for i := range r.Wants {
		r.Wants[i].RetryAt = 0
	}
	if s := r.swapper(); s != nil && !sameSwapper(s, was) && r.Mode != "" {
		if r.Stale = true; held == 0 {
			r.unload()
		}
	}
	g.Resource = &r
}

// sameSwapper reports whether two terms let the same workers change the mode.
func sameSwapper(a, b *belay.ResourceSwapper) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Workflow == b.Workflow && a.Version == b.Version && a.Queue == b.Queue
}

// replaced reports whether the terms have changed so that other workers change the mode than those of
// the swap.
func (r *Resource) replaced(s *swap) bool { return s.By != nil && !sameSwapper(s.By, r.swapper()) }

func sameTerms(a, b belay.ResourceTerms) bool { return a.Text() == b.Text() }
