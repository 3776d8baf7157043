package definition

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Template is a value whose texts may contain expressions.
type Template struct {
	node *node
	// parts are the parts of a text with expressions; nil for a text without one, and for other values.
	parts []part
	items []*Template
}

// part is a constant text, an expression, or a reference to a secret.
type part struct {
	at
	text    string
	program *Program
	secret  string
}

// secretName is the form of the content of ${{ }} that refers to a secret.
var secretName = regexp.MustCompile(`^secrets\.([A-Za-z_][A-Za-z0-9_]*)$`)

// template compiles the expressions of a node. visit is called for each part that is no constant.
func (r *report) template(n *node, visit func(p *part)) *Template {
	if n == nil {
		return nil
	}
	t := &Template{node: n}
	for _, x := range n.items {
		t.items = append(t.items, r.template(x, visit))
	}
	if n.kind != textNode || !strings.Contains(n.text(), "${{") {
		return t
	}
	parts, err := split(n.text())
	if err != nil {
		r.add(n.at, `close it with }}, and quote the text if it contains " #", with which a comment begins`, "%s: %s",
			quoted(n.text()), err)
		return t
	}
	for i := range parts {
		p := &parts[i]
		p.at = n.at
		if p.program == nil && p.secret == "" {
			continue
		}
		if p.program != nil {
			if p.program = r.compile(n.at, p.program.Source); p.program == nil {
				continue
			}
		}
		visit(p)
	}
	t.parts = parts
	return t
}

// MaxExpressions is the largest number of expressions of a document.
const MaxExpressions = 2000

// compile compiles an expression of the document, or reports its error and returns nil.
func (r *report) compile(pos at, source string) *Program {
	if r.expressions++; r.expressions > MaxExpressions {
		if r.expressions == MaxExpressions+1 {
			r.add(pos, "", "the document has more than %d expressions", MaxExpressions)
		}
		return nil
	}
	c, known := r.programs[source]
	if !known {
		if r.programs == nil {
			r.programs = map[string]compilation{}
		}
		c.program, c.err = r.words.compile(source)
		r.programs[source] = c
	}
	if c.err != nil {
		r.expression(pos, c.err)
	}
	return c.program
}

// expression reports the error of an expression.
func (r *report) expression(pos at, err error) {
	suggestion := ""
	if i := strings.LastIndex(err.Error(), "; did you mean"); i >= 0 {
		suggestion = err.Error()[i+2:]
		r.add(pos, suggestion, "%s", err.Error()[:i])
		return
	}
	r.add(pos, suggestion, "%s", strings.ReplaceAll(err.Error(), "\n", " "))
}

// split splits a text into its constant parts and its expressions, which are not compiled yet.
func split(s string) ([]part, error) {
	var parts []part
	for {
		before, rest, found := strings.Cut(s, "${{")
		if before != "" {
			parts = append(parts, part{text: before})
		}
		if !found {
			return parts, nil
		}
		end := closing(rest)
		if end < 0 {
			return nil, errors.New("an expression that begins with ${{ does not end")
		}
		source := strings.TrimSpace(rest[:end])
		if m := secretName.FindStringSubmatch(source); m != nil {
			parts = append(parts, part{secret: m[1]})
		} else {
			parts = append(parts, part{program: &Program{Source: source}})
		}
		s = rest[end+2:]
	}
}

// closing returns the offset of the }} that ends an expression, or -1. Braces and quotes within the expression are
// skipped.
func closing(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case c == '}' && i+1 < len(s) && s[i+1] == '}':
			return i
		}
	}
	return -1
}

// Eval returns the value of the template. An expression that is a whole text gives the value of its type; within a
// text, its value becomes a part of the text. A reference to a secret stays a reference.
func (t *Template) Eval(e *Env) (any, error) {
	v, err := t.eval(e)
	if err != nil {
		return nil, err
	}
	s := size{}
	if err := s.add(v, 0); err != nil {
		return nil, fmt.Errorf("line %d: %w", t.node.line, err)
	}
	return v, nil
}

func (t *Template) eval(e *Env) (any, error) {
	n := t.node
	switch {
	case n.kind == listNode:
		list := make([]any, len(t.items))
		for i, x := range t.items {
			v, err := x.eval(e)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case n.kind == mapNode:
		m := make(map[string]any, len(t.items))
		for i, x := range t.items {
			v, err := x.eval(e)
			if err != nil {
				return nil, err
			}
			m[n.keys[i].name] = v
		}
		return m, nil
	case t.parts == nil:
		return n.value, nil
	case len(t.parts) == 1 && t.parts[0].program != nil:
		return t.parts[0].value(e)
	}
	var b strings.Builder
	secrets := 0
	for i := range t.parts {
		switch p := &t.parts[i]; {
		case p.secret != "":
			secrets++
			b.WriteString("${{ secrets." + p.secret + " }}")
		case p.program != nil:
			v, err := p.value(e)
			if err != nil {
				return nil, err
			}
			s, err := textOf(v)
			if err != nil {
				return nil, err
			}
			if v != nil {
				b.WriteString(s)
			}
		default:
			b.WriteString(p.text)
		}
		if b.Len() > maxValue {
			return nil, errLarge
		}
	}
	// Parts that are harmless alone could make a reference together.
	if e.NoReferences && strings.Count(b.String(), "${{") != secrets {
		return nil, &ExpressionError{Source: n.text(), Err: errReference}
	}
	return b.String(), nil
}

// value evaluates the expression of a part.
func (p *part) value(e *Env) (any, error) {
	v, err := p.program.Eval(e)
	if err == nil && e.NoReferences && refers(v) {
		err = &ExpressionError{Source: p.program.Source, Err: errReference}
	}
	return v, err
}

var errReference = errors.New("its value contains ${{, which could be a reference to a secret")

// refers reports whether a value contains a text that could be a reference to a secret.
func refers(v any) bool {
	switch x := v.(type) {
	case string:
		return strings.Contains(x, "${{")
	case []any:
		return slices.ContainsFunc(x, refers)
	case map[string]any:
		for k, y := range x {
			if refers(k) || refers(y) {
				return true
			}
		}
	}
	return false
}

// Has reports whether the template is a map with the key.
func (t *Template) Has(key string) bool { return t != nil && t.node.get(key) != nil }

// Entries calls each with the keys of a map and their values.
func (t *Template) Entries(each func(key string, value *Template)) {
	for i, x := range t.items {
		each(t.node.keys[i].name, x)
	}
}

// Text returns the text of a key, if the template is a map with this key and a text without expressions.
func (t *Template) Text(key string) string {
	if t == nil {
		return ""
	}
	return t.node.get(key).text()
}

// Constant returns the value of a template without expressions; ok is false if it has one.
func (t *Template) Constant() (v any, ok bool) {
	if t.dynamic() {
		return nil, false
	}
	return t.node.plain(), true
}

func (t *Template) dynamic() bool {
	if t.parts != nil {
		return true
	}
	for _, x := range t.items {
		if x.dynamic() {
			return true
		}
	}
	return false
}

// Tasks calls each with every task that the template reads, and with whether it reads the task's output.
func (t *Template) Tasks(each func(id string, output bool)) {
	if t == nil {
		return
	}
	for i := range t.parts {
		if p := t.parts[i].program; p != nil {
			for id, output := range p.Tasks {
				each(id, output)
			}
		}
	}
	for _, x := range t.items {
		x.Tasks(each)
	}
}
