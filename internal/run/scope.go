package run

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// scope is the context of a run, of one of its branches, or of a step.
type scope struct {
	context.Context
	r *Run
	b *Branch
	// step is the key of the step that the context belongs to; "" outside of steps.
	step string
}

type scopeKey struct{}

// Value returns the scope itself for the key scopeKey.
func (c *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func find(ctx context.Context) *scope {
	c, _ := ctx.Value(scopeKey{}).(*scope)
	return c
}

// From returns the run that the context belongs to; nil if it belongs to no run.
func From(ctx context.Context) *Run {
	if c := find(ctx); c != nil {
		return c.r
	}
	return nil
}

// StepKey returns the key of the step that the context belongs to; "" outside of steps.
func StepKey(ctx context.Context) string {
	if c := find(ctx); c != nil {
		return c.step
	}
	return ""
}

// within returns the scope and the full key of a call. It refuses a call from inside a step,
// because only the workflow function may make such a call.
func within(ctx context.Context, what, name, key string) (*scope, string, error) {
	c := find(ctx)
	if c == nil {
		return nil, "", ErrNoRun
	}
	op := call{what, name}
	if c.step != "" {
		return nil, "", refuse(op, "the call is inside step %q; make it from the workflow itself", c.step)
	}
	if err := checkName(op); err != nil {
		return nil, "", err
	}
	full := name
	if key != "" {
		full = name + "[" + key + "]"
	}
	if c.b.prefix != "" {
		full = c.b.prefix + full
	}
	if len(full) > belay.MaxName {
		return nil, "", refuse(op, "the name with its branch and key has %d bytes; the limit is %d", len(full),
			belay.MaxName)
	}
	return c, full, nil
}

// call is the kind (step, sleep, signal, …) and the name of an operation that a workflow has
// called, for error messages.
type call struct{ what, name string }

func (c call) String() string { return c.what + " " + c.name }

// checkName returns an error for a name that the store would refuse. So a call with such a name fails
// before it has any effect.
func checkName(op call) error {
	switch name := op.name; {
	case name == "":
		return refuse(op, "the name is empty; give one")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return refuse(op, "the name %q has control characters or invalid UTF-8", name)
	case strings.HasSuffix(name, "]"):
		return refuse(op, "the name %q ends like a key; give the key with Key", name)
	}
	return nil
}
