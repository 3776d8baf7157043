package definition

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/belaydev/belay"
)

// check reports every value of a node that is not of the type. what names the node in messages.
func (r *report) check(n *node, t *Type, what string) {
	if t.Kind == kindAny {
		return
	}
	for i := range t.Or {
		if t.Or[i].takes(n) && !t.takes(n) {
			r.check(n, &t.Or[i], what)
			return
		}
	}
	if !t.takes(n) {
		if n.kind == textNode && t.Expression && strings.Contains(n.text(), "${{") {
			return // the value has the type that the expression gives it
		}
		r.add(n.at, t.repair(n), "%s must be %s, not %s", what, t.described(), n.kind)
		return
	}
	switch n.kind {
	case textNode:
		r.checkText(n, t, what)
	case numberNode:
		if v, ok := n.value.(int); !ok || v < t.Min || v > t.Max {
			r.add(n.at, "", "%s must be a whole number between %d and %d", what, t.Min, t.Max)
		}
	case listNode:
		r.checkList(n, t, what)
	case mapNode:
		r.checkMap(n, t, what)
	case nullNode, boolNode: // they have no further rules
	}
}

// takes reports whether a node is of the kind of the type.
func (t *Type) takes(n *node) bool {
	switch t.Kind {
	case kindText, kindDuration:
		return n.kind == textNode
	case kindExpression:
		return n.kind == textNode || n.kind == boolNode
	case kindNumber:
		return n.kind == numberNode
	case kindBool:
		return n.kind == boolNode
	case kindList:
		return n.kind == listNode
	case kindMap:
		return n.kind == mapNode
	case kindSchema:
		return n.kind == mapNode || n.kind == boolNode
	}
	return true
}

// described describes the type in a message.
func (t *Type) described() string {
	s := map[string]string{
		kindText: "a text", kindNumber: "a number", kindBool: "true or false", kindList: "a list", kindMap: "a map",
		kindSchema: "a JSON Schema", kindExpression: "an expression", kindDuration: "a duration such as 90s or 15m",
	}[t.Kind]
	for i := range t.Or {
		s += " or " + t.Or[i].described()
	}
	return s
}

// repair suggests how to make a value of the type of a node of another kind.
func (t *Type) repair(n *node) string {
	switch {
	case t.Kind == kindDuration && n.kind == numberNode:
		return fmt.Sprintf(`write the unit, as in "%vs"`, n.value)
	case t.Kind == kindText && (n.kind == numberNode || n.kind == boolNode):
		return "quote it"
	case t.Kind == kindText && n.kind == mapNode && strings.HasPrefix(t.Example, "${{"):
		return "quote it"
	case n.kind == nullNode:
		return "give it a value, or remove the key"
	case t.Kind == kindNumber && n.kind == textNode:
		return "remove the quotes"
	}
	return ""
}

// patterns caches the compiled patterns of the format, which are constants of this package.
var patterns sync.Map

func full(pattern string) *regexp.Regexp {
	if re, ok := patterns.Load(pattern); ok {
		return re.(*regexp.Regexp) //nolint:errcheck // the map has nothing else
	}
	re := regexp.MustCompile("^(?:" + pattern + ")$")
	patterns.Store(pattern, re)
	return re
}

func (r *report) checkText(n *node, t *Type, what string) {
	s := n.text()
	if t.Expression && strings.Contains(s, "${{") || t.Kind == kindExpression {
		return
	}
	switch {
	case t.Kind == kindDuration:
		if d, err := time.ParseDuration(s); err != nil || d <= 0 || d > 10*365*24*time.Hour {
			r.add(n.at, `write a number with a unit, as in "90s", "15m" or "12h"`, "%s must be a duration, not %s", what,
				quoted(s))
		}
	case len(t.Enum) > 0:
		for _, e := range t.Enum {
			if e == s {
				return
			}
		}
		r.add(n.at, orList(s, t.Enum), "%s may not be %s", what, quoted(s))
	case t.Pattern != "" && !full(t.Pattern).MatchString(s):
		r.add(n.at, fmt.Sprintf("write a name such as %s", t.Example), "%s has a form that it may not have: %s", what,
			quoted(s))
	case len(s) < t.Min:
		r.add(n.at, "", "%s must not be empty", what)
	case t.Max > 0 && len(s) > t.Max:
		r.add(n.at, "", "%s has %d bytes; the limit is %d", what, len(s), t.Max)
	case t.Max == belay.MaxName && strings.Contains(s, "${{"):
		r.add(n.at, "write the name itself", "%s cannot contain expressions", what)
	case t.Max > 0 && t.Max <= 200 && strings.ContainsFunc(s, unicode.IsControl):
		r.add(n.at, "", "%s may not have control characters", what)
	}
}

func (r *report) checkList(n *node, t *Type, what string) {
	if len(n.items) < t.Min {
		r.add(n.at, "", "%s must have at least one entry", what)
	}
	if t.Max > 0 && len(n.items) > t.Max {
		r.add(n.items[t.Max].at, "", "%s has %d entries; the limit is %d", what, len(n.items), t.Max)
		return
	}
	if t.Item == nil {
		return
	}
	for i, x := range n.items {
		name := fmt.Sprintf("entry %d of %s", i+1, what)
		if id := x.get("id").text(); id != "" {
			name = "task " + quoted(id)
		}
		r.check(x, t.Item, name)
	}
}

func (r *report) checkMap(n *node, t *Type, what string) {
	if t.Kind == kindSchema {
		return // see compileSchema
	}
	if t.Fields == nil {
		for i, x := range n.items {
			if t.Item != nil {
				r.check(x, t.Item, n.keys[i].name+" of "+what)
			}
		}
		return
	}
	known := make([]string, len(t.Fields))
	for i := range t.Fields {
		known[i] = t.Fields[i].Name
	}
	for i, k := range n.keys {
		f := fieldOf(t.Fields, k.name)
		if f == nil {
			suggestion := orList(k.name, known)
			r.add(k.at, suggestion, "%s has no key %s", what, quoted(k.name))
			continue
		}
		name := k.name
		if what != document {
			name += " of " + what
		}
		r.check(n.items[i], &f.Type, name)
	}
	for i := range t.Fields {
		if f := &t.Fields[i]; f.Required && n.get(f.Name) == nil {
			r.add(n.at, "add "+strings.TrimSuffix(f.Name+": "+f.Type.Example, ": "), "%s lacks the key %q", what,
				f.Name)
		}
	}
}

// document names the whole document in messages.
const document = "the document"

func fieldOf(fields []Field, name string) *Field {
	for i := range fields {
		if fields[i].Name == name {
			return &fields[i]
		}
	}
	return nil
}
