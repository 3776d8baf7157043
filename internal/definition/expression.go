package definition

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
)

// MaxExpression is the largest length of an expression in bytes, and maxExprNodes the largest number of its parts.
const (
	MaxExpression = 4 << 10
	maxExprNodes  = 500
)

// Program is a compiled expression.
type Program struct {
	// Source is the text of the expression.
	Source string
	// Tasks are the tasks that the expression reads. The value says whether the expression reads the output of the
	// task, and not only its state or its error.
	Tasks map[string]bool
	// Item says that the expression reads the item or the index of a foreach.
	Item bool
	// inputs are the chains of keys below input that the expression reads.
	inputs [][]string
	code   *vm.Program
}

// ExpressionError is the error of an expression that cannot be compiled or evaluated.
type ExpressionError struct {
	// Source is the text of the expression.
	Source string
	// Column is the character of the expression at which the error is, from 1; 0 if it is unknown.
	Column int
	Err    error
}

// Error names the expression and the error.
func (e *ExpressionError) Error() string {
	s := "expression " + quoted(e.Source)
	if e.Column > 0 {
		s += fmt.Sprintf(" at character %d", e.Column)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the error of the expression.
func (e *ExpressionError) Unwrap() error { return e.Err }

// vocabulary is the names that an expression can read.
type vocabulary struct {
	words []string
	// configs keeps the configuration of package expr, which takes longer to make than to compile most expressions. A
	// configuration serves one compilation at a time.
	configs sync.Pool
}

func newVocabulary(words ...string) *vocabulary {
	v := &vocabulary{words: words}
	v.configs.New = func() any { return v.configure() }
	return v
}

// documentWords are the names in a document, and eventWords those in the filter and the input of a trigger.
var (
	documentWords = newVocabulary("input", "tasks", "item", "index", "execution", "output")
	eventWords    = newVocabulary("event")
)

// types gives the types of the names in an expression.
func (v *vocabulary) types() types.Map {
	m := types.Map{
		guardName:   types.TypeOf(func(any) (any, error) { return nil, nil }),
		stepName:    types.TypeOf(func(any) (any, error) { return nil, nil }),
		matchesName: types.TypeOf(func(any, string) (bool, error) { return false, nil }),
	}
	for _, word := range v.words {
		m[word] = types.Any
	}
	return m
}

// plainBuiltins are the builtins of package expr that expressions may call. The package's own versions of other
// builtins depend on the clock, on the order of a map, or need memory that its budget does not count.
var plainBuiltins = []string{
	"all", "any", "none", "one", "filter", "map", "find", "findIndex", "findLast", "findLastIndex", "count", "sum",
	"sortBy", "len", "abs", "ceil", "floor", "round", "int", "float", "trim", "trimPrefix", "trimSuffix", "upper",
	"lower",
	"split", "indexOf", "lastIndexOf", "hasPrefix", "hasSuffix", "max", "min", "first", "last", "get", "take",
	"reverse",
	"sort", "type",
}

// Compile compiles an expression of a document.
func Compile(source string) (*Program, error) { return documentWords.compile(source) }

// CompileEvent compiles an expression that reads an event and nothing else.
func CompileEvent(source string) (*Program, error) { return eventWords.compile(source) }

func (v *vocabulary) compile(source string) (*Program, error) {
	fail := func(column int, format string, args ...any) error {
		return &ExpressionError{Source: source, Column: column, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case strings.TrimSpace(source) == "":
		return nil, fail(0, "it is empty")
	case len(source) > MaxExpression:
		return nil, fail(0, "it has %d bytes; the limit is %d", len(source), MaxExpression)
	case nesting(source) > MaxDepth:
		return nil, fail(0, "it has more than %d brackets within each other", MaxDepth)
	}
	tree, err := parser.Parse(source)
	if err != nil {
		return nil, v.wrap(source, err)
	}
	p := &Program{Source: source, Tasks: map[string]bool{}}
	look := &lookup{words: v.words, program: p, covered: map[ast.Node]bool{}}
	ast.Walk(&tree.Node, look)
	look.finish()
	if look.err != nil {
		return nil, fail(look.column, "%w", look.err)
	}
	config := v.configs.Get().(*conf.Config) //nolint:errcheck // the pool has nothing else
	defer v.configs.Put(config)
	if tree, err = checker.ParseCheck(source, config); err == nil {
		p.code, err = compiler.Compile(tree, config)
	}
	if err != nil {
		return nil, v.wrap(source, err)
	}
	return p, nil
}

func (v *vocabulary) configure() *conf.Config {
	c := conf.CreateNew()
	options := []expr.Option{
		expr.Env(v.types()), expr.Optimize(false), expr.MaxNodes(maxExprNodes), expr.DisableAllBuiltins(),
		expr.Patch(guards{}),
	}
	for _, name := range plainBuiltins {
		options = append(options, expr.EnableBuiltin(name))
	}
	for _, f := range functions {
		options = append(options, expr.Function(f.name, f.call, f.types...))
	}
	for _, set := range options {
		set(c)
	}
	for name := range c.Disabled {
		delete(c.Builtins, name)
	}
	c.Check()
	return c
}

// callable returns the names of all functions that expressions can call.
func callable() []string {
	names := slices.Clone(plainBuiltins)
	for _, f := range functions {
		names = append(names, f.name)
	}
	return names
}

// nesting returns how many brackets of a text stand within each other at most. It may count brackets within quotes.
func nesting(s string) int {
	depth, most := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(', '[', '{':
			depth++
			most = max(most, depth)
		case ')', ']', '}':
			depth--
		}
	}
	return most
}

// unknownName is the form of the error of package expr for a name that does not exist.
var unknownName = regexp.MustCompile(`^unknown name (.*)$`)

// wrap makes an ExpressionError of an error of package expr at the compilation of an expression.
func (v *vocabulary) wrap(source string, err error) error {
	e := wrapExpr(source, err)
	m := unknownName.FindStringSubmatch(e.Err.Error())
	switch {
	case m == nil:
	case strings.HasPrefix(m[1], "secrets"):
		e.Err = errors.New("a secret must stand alone, as in ${{ secrets.NAME }}")
	default:
		e.Err = fmt.Errorf("unknown name %s; %s", m[1], orList(m[1], append(slices.Clone(v.words), callable()...)))
	}
	return e
}

// wrapExpr makes an ExpressionError of an error of package expr.
func wrapExpr(source string, err error) *ExpressionError {
	e := &ExpressionError{Source: source, Err: err}
	var at *file.Error
	if errors.As(err, &at) {
		e.Column = at.From + 1
		switch {
		case at.Prev != nil:
			e.Err = at.Prev
		default:
			e.Err = errors.New(strings.ReplaceAll(at.Message, "interface {}", "any"))
		}
	}
	return e
}

// lookup finds what an expression reads, and refuses what an expression may not have.
type lookup struct {
	words   []string
	program *Program
	chains  []*chain
	roots   []*ast.IdentifierNode
	covered map[ast.Node]bool
	// programs is the number of instructions of all patterns.
	programs int
	err      error
	column   int
}

// chain is a name with the constant keys after it: tasks.build.output.
type chain struct {
	node ast.Node
	root *ast.IdentifierNode
	keys []string
}

func (l *lookup) refuse(n ast.Node, format string, args ...any) {
	if l.err == nil {
		l.err, l.column = fmt.Errorf(format, args...), n.Location().From+1
	}
}

// Visit is called for each node after its children.
func (l *lookup) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		if strings.HasPrefix(n.Value, "__") || n.Value == "$env" {
			l.refuse(n, "unknown name %s", n.Value)
		}
		l.roots = append(l.roots, n)
		l.chains = append(l.chains, &chain{node: n, root: n})
	case *ast.VariableDeclaratorNode:
		if strings.HasPrefix(n.Name, "__") || slices.Contains(l.words, n.Name) {
			l.refuse(n, "a variable may not have the name %s; choose another", n.Name)
		}
	case *ast.MemberNode:
		l.extend(n, n.Node, n.Property)
	case *ast.ChainNode:
		l.extend(n, n.Node, nil)
	case *ast.BinaryNode:
		if n.Operator == "matches" {
			l.pattern(n)
		}
	case *ast.BuiltinNode:
		if !slices.Contains(callable(), n.Name) {
			l.refuse(n, "expressions have no function %s; %s", n.Name, orList(n.Name, callable()))
		}
	case *ast.BytesNode:
		l.refuse(n, "an expression may not have bytes")
	}
}

// extend makes a longer chain of the chain of a node and the property after it.
func (l *lookup) extend(n, of, property ast.Node) {
	for _, c := range l.chains {
		if c.node != of {
			continue
		}
		switch p := property.(type) {
		case nil:
			l.covered[of] = true
			l.chains = append(l.chains, &chain{n, c.root, c.keys})
		case *ast.StringNode:
			l.covered[of] = true
			l.chains = append(l.chains, &chain{n, c.root, append(slices.Clip(c.keys), p.Value)})
		}
		return
	}
}

// maxPattern limits a regular expression: its length, and the instructions of its program.
const maxPattern = 200

func (l *lookup) pattern(n *ast.BinaryNode) {
	s, ok := n.Right.(*ast.StringNode)
	if !ok {
		l.refuse(n, "the pattern of matches must be a text in quotes")
		return
	}
	size, err := checkPattern(s.Value)
	if l.programs += size; err == nil && l.programs > maxProgram {
		err = errors.New("the patterns repeat too much together")
	}
	if err != nil {
		l.refuse(s, "%w", err)
	}
}

// finish evaluates the longest chains.
func (l *lookup) finish() {
	for _, c := range l.chains {
		if l.covered[c.node] {
			continue
		}
		switch c.root.Value {
		case "tasks":
			if slices.Contains(l.words, "tasks") {
				l.task(c)
			}
		case "input":
			l.program.inputs = append(l.program.inputs, c.keys)
		case "item", "index":
			l.program.Item = true
		case "event":
			l.event(c)
		}
	}
}

// eventKeys are what an expression can read of an event.
var eventKeys = []string{"data", "headers", "id", "source", "type"}

func (l *lookup) event(c *chain) {
	switch {
	case !slices.Contains(l.words, "event"): // a variable of the expression, or an unknown name
	case len(c.keys) == 0:
		l.refuse(c.root, "name what you want of the event, as in event.data")
	case !slices.Contains(eventKeys, c.keys[0]):
		l.refuse(c.root, "an event has no %s; %s", c.keys[0], orList(c.keys[0], eventKeys))
	}
}

// taskKeys are what an expression can read of a task.
var taskKeys = []string{"output", "state", "error"}

func (l *lookup) task(c *chain) {
	if len(c.keys) == 0 {
		l.refuse(c.root, "name one task after tasks, as in tasks.build.output")
		return
	}
	id := c.keys[0]
	if len(c.keys) == 1 {
		l.refuse(c.root, "name what you want of the task, as in tasks.%s.output; it can be output, state or error", id)
		return
	}
	if !slices.Contains(taskKeys, c.keys[1]) {
		l.refuse(c.root, "a task has no %s; %s", c.keys[1], orList(c.keys[1], taskKeys))
		return
	}
	l.program.Tasks[id] = l.program.Tasks[id] || c.keys[1] == "output"
}
