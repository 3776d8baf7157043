package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"github.com/belaydev/belay"
)

// The budget of one evaluation.
const (
	// maxSteps limits the turns of loops and the values that functions and operators make.
	maxSteps = 200_000
	// maxValue is the largest size of a value, in bytes, and maxParts the largest number of its parts. A part that
	// stands in a value twice counts twice.
	maxValue = belay.MaxPayload
	maxParts = 100_000
	// maxMatch is the largest text, in bytes, on which matches works.
	maxMatch = 16 << 10
	maxTime  = time.Second
)

// ErrSlow is the error of an evaluation that took too long. Unlike the other limits it may pass at the next try, on a
// machine that has less to do.
var ErrSlow = fmt.Errorf("its evaluation took longer than %s", maxTime)

// The functions that guards inserts.
const (
	guardName   = "__guard"
	stepName    = "__step"
	matchesName = "__matches"
)

// guards inserts calls into an expression: __guard around each value that the expression makes, __step around the
// body of each loop, and __matches in place of the operator matches. So no value is larger than the budget, and no
// evaluation longer.
type guards struct{}

// Visit is called for each node after its children.
func (guards) Visit(node *ast.Node) {
	wrap := func(name string, n ast.Node) ast.Node {
		call := &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: []ast.Node{n}}
		call.SetLocation(n.Location())
		call.Callee.SetLocation(n.Location())
		return call
	}
	switch n := (*node).(type) {
	case *ast.CallNode:
		if id, ok := n.Callee.(*ast.IdentifierNode); ok && strings.HasPrefix(id.Value, "__") {
			return
		}
		ast.Patch(node, wrap(guardName, n))
	case *ast.BuiltinNode, *ast.ArrayNode, *ast.MapNode, *ast.SliceNode:
		ast.Patch(node, wrap(guardName, n))
	case *ast.PredicateNode:
		n.Node = wrap(stepName, n.Node)
	case *ast.BinaryNode:
		switch n.Operator {
		case "matches":
			call := &ast.CallNode{
				Callee: &ast.IdentifierNode{Value: matchesName}, Arguments: []ast.Node{n.Left, n.Right},
			}
			call.SetLocation(n.Location())
			call.Callee.SetLocation(n.Location())
			ast.Patch(node, call)
		case "+", "..":
			ast.Patch(node, wrap(guardName, n))
		}
	}
}

// meter counts the steps of one evaluation.
type meter struct {
	steps    int
	until    time.Time
	patterns map[string]pattern // the patterns that matches has compiled
}

// pattern is a compiled regular expression, with the number of its instructions.
type pattern struct {
	*regexp.Regexp
	size int
}

func (m *meter) spend(n int) error {
	if m.steps += n; m.steps > maxSteps {
		return fmt.Errorf("it needs more than %d steps, the limit", maxSteps)
	}
	if time.Now().After(m.until) {
		return ErrSlow
	}
	return nil
}

func (m *meter) step(v any) (any, error) { return v, m.spend(1) }

func (m *meter) guard(v any) (any, error) {
	s := size{}
	if err := s.add(v, 0); err != nil {
		return nil, err
	}
	return v, m.spend(1 + s.parts/16)
}

// size measures a value.
type size struct{ parts, bytes int }

var errLarge = fmt.Errorf("a value is larger than %d bytes or has more than %d parts, the limits", maxValue, maxParts)

func (s *size) add(v any, depth int) error {
	if s.parts++; depth > 100 {
		return errors.New("a value has more than 100 levels")
	}
	switch x := v.(type) {
	case nil, bool, int:
		s.bytes += 4
	case float64:
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return errors.New("a number is infinite or undefined, for example after a division by zero")
		}
		s.bytes += 8
	case string:
		s.bytes += len(x) + 2
	case []any:
		for _, e := range x {
			if err := s.add(e, depth+1); err != nil {
				return err
			}
		}
	case []string:
		s.parts += len(x)
		for _, e := range x {
			s.bytes += len(e) + 3
		}
	case []int:
		s.parts += len(x)
		s.bytes += 4 * len(x)
	case map[string]any:
		for k, e := range x {
			s.bytes += len(k) + 4
			if err := s.add(e, depth+1); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("an expression may not make a value of type %T", v)
	}
	if s.bytes > maxValue || s.parts > maxParts {
		return errLarge
	}
	return nil
}

// Env has the values of the names in an expression. Each value is as encoding/json decodes it, except that an integer
// is an int.
type Env struct {
	Input     any
	Tasks     map[string]Outcome
	Item      any
	Index     int
	Execution map[string]any
	// Output is what a task has returned, for the expressions in its outputs.
	Output any
	// NoReferences refuses texts of a template that look like references to secrets and come from an expression, and
	// not from the document itself.
	NoReferences bool
}

// Outcome is what an expression can read of a task that has ended.
type Outcome struct {
	// State is succeeded, failed or skipped.
	State  string
	Output any
	// Error is the message of a failed task.
	Error string
}

// Eval evaluates the expression. Its errors are ExpressionErrors.
func (p *Program) Eval(e *Env) (any, error) {
	m := &meter{until: time.Now().Add(maxTime)}
	tasks := make(map[string]any, len(p.Tasks))
	for id := range p.Tasks {
		o := e.Tasks[id]
		t := map[string]any{"state": o.State, "output": o.Output, "error": nil}
		if o.Error != "" {
			t["error"] = o.Error
		}
		tasks[id] = t
	}
	machine := vm.VM{MemoryBudget: maxParts}
	v, err := machine.Run(p.code, map[string]any{
		"input": e.Input, "tasks": tasks, "item": e.Item, "index": e.Index, "execution": e.Execution,
		"output":  e.Output,
		guardName: m.guard, stepName: m.step, matchesName: m.matches,
	})
	if err == nil {
		v, err = m.guard(v)
		if err == nil {
			return normal(v), nil
		}
		return nil, &ExpressionError{Source: p.Source, Err: err}
	}
	return nil, wrapExpr(p.Source, err)
}

// normal makes the lists of a value []any, as encoding/json would decode it.
func normal(v any) any {
	switch x := v.(type) {
	case []string:
		list := make([]any, len(x))
		for i := range x {
			list[i] = x[i]
		}
		return list
	case []int:
		list := make([]any, len(x))
		for i := range x {
			list[i] = x[i]
		}
		return list
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = normal(x[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(x))
		for k, e := range x {
			m[k] = normal(e)
		}
		return m
	}
	return v
}

// function is a function that expressions can call in addition to plainBuiltins.
type function struct {
	name  string
	call  func(args ...any) (any, error)
	types []any
}

// functions replace builtins of package expr: their result depends on nothing but the arguments, and their size is
// checked before it is made.
var functions = []function{
	{"string", func(a ...any) (any, error) { return textOf(a[0]) }, []any{new(func(any) string)}},
	{"toJSON", func(a ...any) (any, error) { return jsonOf(a[0]) }, []any{new(func(any) string)}},
	{"fromJSON", func(a ...any) (any, error) { return Decode([]byte(str(a[0]))) }, []any{new(func(string) any)}},
	{"keys", func(a ...any) (any, error) { return keysOf(a[0]) }, []any{new(func(any) []any)}},
	{"values", func(a ...any) (any, error) { return valuesOf(a[0]) }, []any{new(func(any) []any)}},
	{"join", func(a ...any) (any, error) { return joined(a...) },
		[]any{new(func(any) string), new(func(any, string) string)}},
	{"replace", func(a ...any) (any, error) { return replaced(str(a[0]), str(a[1]), str(a[2])) },
		[]any{new(func(string, string, string) string)}},
	{"concat", func(a ...any) (any, error) { return concat(a...) }, []any{new(func(...any) []any)}},
	{"flatten", func(a ...any) (any, error) { return flatten(a[0]) }, []any{new(func(any) []any)}},
	{"uniq", func(a ...any) (any, error) { return uniq(a[0]) }, []any{new(func(any) []any)}},
}

// str returns an argument that the compiler has found to be a text.
func str(v any) string {
	s, _ := v.(string)
	return s
}

// textOf returns a value as a text: a text as it is, any other value as JSON.
func textOf(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	return jsonOf(v)
}

func jsonOf(v any) (string, error) {
	s := size{}
	if err := s.add(v, 0); err != nil {
		return "", err
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func listOf(v any) ([]any, error) {
	list, ok := normal(v).([]any)
	if !ok {
		return nil, fmt.Errorf("a list is needed, not %s", typeName(v))
	}
	return list, nil
}

func keysOf(v any) ([]any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("keys needs a map, not %s", typeName(v))
	}
	list := make([]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k)
	}
	return list, nil
}

func valuesOf(v any) ([]any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("values needs a map, not %s", typeName(v))
	}
	list := make([]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[k])
	}
	return list, nil
}

func joined(args ...any) (string, error) {
	list, err := listOf(args[0])
	if err != nil {
		return "", err
	}
	sep := ""
	if len(args) > 1 {
		sep = str(args[1])
	}
	texts := make([]string, len(list))
	total := 0
	for i := range list {
		if texts[i], err = textOf(list[i]); err != nil {
			return "", err
		}
		if total += len(texts[i]) + len(sep); total > maxValue+len(sep) {
			return "", errLarge
		}
	}
	return strings.Join(texts, sep), nil
}

func replaced(s, old, with string) (string, error) {
	if n := strings.Count(s, old); len(s)+n*(len(with)-len(old)) > maxValue {
		return "", errLarge
	}
	return strings.ReplaceAll(s, old, with), nil
}

func concat(args ...any) ([]any, error) {
	var all []any
	for _, a := range args {
		list, err := listOf(a)
		if err != nil {
			return nil, err
		}
		if all = append(all, list...); len(all) > maxParts {
			return nil, errLarge
		}
	}
	return all, nil
}

// flatten replaces each list within a list by its entries.
func flatten(v any) ([]any, error) {
	list, err := listOf(v)
	if err != nil {
		return nil, err
	}
	all := []any{}
	for _, x := range list {
		if inner, ok := x.([]any); ok {
			all = append(all, inner...)
		} else {
			all = append(all, x)
		}
		if len(all) > maxParts {
			return nil, errLarge
		}
	}
	return all, nil
}

func uniq(v any) ([]any, error) {
	list, err := listOf(v)
	if err != nil {
		return nil, err
	}
	seen, all := map[string]bool{}, []any{}
	for _, x := range list {
		k, err := jsonOf(x)
		if err != nil {
			return nil, err
		}
		if !seen[k] {
			seen[k] = true
			all = append(all, x)
		}
	}
	return all, nil
}

// maxProgram is the largest number of instructions of a regular expression.
const maxProgram = 1000

// checkPattern returns the number of instructions of a regular expression, and refuses one that could take long.
func checkPattern(pattern string) (size int, err error) {
	if len(pattern) > maxPattern {
		return 0, fmt.Errorf("the pattern has %d bytes; the limit is %d", len(pattern), maxPattern)
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("the pattern is no regular expression: %w", err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return 0, fmt.Errorf("the pattern is no regular expression: %w", err)
	}
	if len(prog.Inst) > maxProgram {
		return 0, errors.New("the pattern repeats too much")
	}
	return len(prog.Inst), nil
}

// compilePattern compiles a regular expression that checkPattern accepts.
func compilePattern(text string) (pattern, error) {
	size, err := checkPattern(text)
	if err != nil {
		return pattern{}, err
	}
	re, err := regexp.Compile(text)
	return pattern{re, size}, err
}

// workPerStep is how many instructions of a pattern, times bytes of a text, count as one step. It makes one step of
// matches take about as long as one step of a loop.
const workPerStep = 512

// matches is the operator matches. It spends steps in proportion to the time that it may take.
func (m *meter) matches(v any, text string) (bool, error) {
	s, ok := v.(string)
	switch {
	case !ok:
		return false, fmt.Errorf("matches needs a text, not %s", typeName(v))
	case len(s) > maxMatch:
		return false, fmt.Errorf("matches works on a text of at most %d bytes", maxMatch)
	}
	p, known := m.patterns[text]
	if !known {
		var err error
		if p, err = compilePattern(text); err != nil {
			return false, err
		}
		if m.patterns == nil {
			m.patterns = map[string]pattern{}
		}
		m.patterns[text] = p
	}
	if err := m.spend(1 + p.size*len(s)/workPerStep); err != nil {
		return false, err
	}
	return p.MatchString(s), m.spend(0)
}

// typeName names the type of a value as the author of a document knows it.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return nullNode.String()
	case bool:
		return "a boolean"
	case int, float64:
		return numberNode.String()
	case string:
		return textNode.String()
	case []any, []string, []int:
		return listNode.String()
	}
	return mapNode.String()
}

// Decode reads JSON as values of expressions: an integer becomes an int.
func Decode(data []byte) (any, error) {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	return numbers(v)
}

// numbers replaces the numbers of package json by ints and floats.
func numbers(v any) (_ any, err error) {
	switch x := v.(type) {
	case json.Number:
		n := node{}
		r := report{}
		if r.number(&n, x.String()); len(r.list) > 0 {
			return nil, fmt.Errorf("the number %.40s is too large", x)
		}
		return n.value, nil
	case []any:
		for i := range x {
			if x[i], err = numbers(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range x {
			if x[k], err = numbers(x[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
