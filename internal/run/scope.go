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
	// step is the key of the step that the context belongs to, if it is one.
	step string
}

type scopeKey struct{}

// Value finds the scope itself under its key.
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

// From is the run that the context belongs to, nil if there is none.
func From(ctx context.Context) *Run {
	if c := find(ctx); c != nil {
		return c.r
	}
	return nil
}

// StepKey is the key of the step that the context belongs to, empty outside of
// steps.
func StepKey(ctx context.Context) string {
	if c := find(ctx); c != nil {
		return c.step
	}
	return ""
}

// within is the scope of a call that only the workflow itself may make, not a
// step of it, and the full key of the name it gives.
func within(ctx context.Context, what, name, key string) (*scope, string, error) {
	c := find(ctx)
	if c == nil {
		return nil, "", ErrNoRun
	}
	op := call{what, name}
	if c.step != "" {
		return nil, "", refuse(op, "it is called inside of step %q; call it from the workflow itself", c.step)
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

// call is what an author called under which name, for errors: the text is made
// when there is one.
type call struct{ what, name string }

func (c call) String() string { return c.what + " " + c.name }

// checkName refuses what the store would refuse, before anything is done under
// that name.
func checkName(op call) error {
	switch name := op.name; {
	case name == "":
		return refuse(op, "the name is empty; give one")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return refuse(op, "the name %q holds what is no text", name)
	case strings.HasSuffix(name, "]"):
		return refuse(op, "the name %q ends like a key; give the key with Key", name)
	}
	return nil
}
