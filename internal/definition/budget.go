package definition

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"

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
