package definition

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The budget of one validation. Package jsonschema has no budget of its own, and keeps an error for each comparison of
// a schema with a part of a value that fails.
const (
	// maxComparisons limits how often schemas are compared with parts of the value.
	maxComparisons = 500_000
	// maxPatternWork limits the instructions of patterns times the bytes of the texts on which they work.
	maxPatternWork = 50_000_000
	// maxSchemaProgram is the largest number of instructions of all patterns of a schema.
	maxSchemaProgram = 10_000
)

// run validates a value within the budget.
func (s *Schema) run(v any) error {
	if c := (comparisons{left: maxComparisons}); !c.schema(s.node, v) {
		return fmt.Errorf("it is too large for its schema: the validation would take more than %d comparisons",
			maxComparisons)
	}
	s.patterns.mu.Lock()
	defer s.patterns.mu.Unlock()
	s.patterns.left = maxPatternWork
	err := s.compiled.Validate(v)
	if s.patterns.left < 0 {
		return errors.New("its texts are too long for the patterns of its schema")
	}
	return err
}

// comparisons counts the comparisons of a validation in advance. It counts too many rather than too few.
type comparisons struct{ left int }

// spend reports whether there is budget left.
func (c *comparisons) spend(n int) bool {
	c.left -= n
	return c.left >= 0
}

// schema counts the comparisons of a value with a schema, and reports whether there is budget left.
func (c *comparisons) schema(n *node, v any) bool {
	if !c.spend(1) {
		return false
	}
	for i, k := range n.keys {
		if !c.keyword(k.name, n.items[i], v) {
			return false
		}
	}
	return true
}

func (c *comparisons) keyword(name string, n *node, v any) bool {
	switch {
	case slices.Contains(schemaMany, name) && n.kind == listNode:
		list, _ := v.([]any)
		for i, x := range n.items {
			switch {
			case name != "prefixItems":
				if !c.schema(x, v) {
					return false
				}
			case i < len(list) && !c.schema(x, list[i]):
				return false
			}
		}
	case slices.Contains(schemaMaps, name) && n.kind == mapNode:
		return c.properties(name, n, v)
	case name == "not", name == "if", name == "then", name == "else":
		return c.schema(n, v)
	case slices.Contains(schemaOne, name):
		return c.parts(name == "propertyNames", n, v)
	case name == "uniqueItems":
		return c.unique(v)
	case name == "minLength", name == "maxLength":
		text, _ := v.(string)
		return c.spend(len(text) / 256)
	case n.kind == listNode || n.kind == mapNode: // such as enum and required
		return c.spend(n.count())
	}
	return true
}

// unique counts the comparisons of the entries of a list with each other. Package jsonschema compares entries with
// equal hashes, and many lists and maps have equal hashes.
func (c *comparisons) unique(v any) bool {
	list, _ := v.([]any)
	n := partsOf(v) * min(len(list), 20)
	if slices.ContainsFunc(list, func(e any) bool { return partsOf(e) > 1 || isEmpty(e) }) {
		n += len(list) * len(list) / 100
	}
	return c.spend(n)
}

// isEmpty reports whether a value is a list or map without entries.
func isEmpty(v any) bool {
	switch x := v.(type) {
	case []any:
		return len(x) == 0
	case map[string]any:
		return len(x) == 0
	}
	return false
}

// properties counts the comparisons of the entries of a map with the schemas that a keyword gives them.
func (c *comparisons) properties(name string, n *node, v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return true
	}
	for i, k := range n.keys {
		e, has := m[k.name]
		switch {
		case !c.spend(1):
			return false
		case name == "patternProperties":
			if !c.parts(false, n.items[i], v) {
				return false
			}
		case !has:
		case name == "dependentSchemas":
			if !c.schema(n.items[i], v) {
				return false
			}
		case !c.schema(n.items[i], e):
			return false
		}
	}
	return true
}

// parts counts the comparisons of all entries of a value, or of the keys of a map, with a schema.
func (c *comparisons) parts(keys bool, n *node, v any) bool {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			if !keys && !c.schema(n, e) {
				return false
			}
		}
	case map[string]any:
		for k, e := range x {
			if keys {
				e = k
			}
			if !c.schema(n, e) {
				return false
			}
		}
	}
	return true
}

// count returns how many values a node has, with itself.
func (n *node) count() int {
	total := 1
	for _, x := range n.items {
		total += x.count()
	}
	return total
}

// partsOf returns how many values a value of JSON has, with itself.
func partsOf(v any) int {
	total := 1
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			total += partsOf(e)
		}
	case map[string]any:
		for _, e := range x {
			total += partsOf(e)
		}
	}
	return total
}

// patternBudget is the work that the patterns of a schema may do in one validation. Validations with the same schema
// run one after the other.
type patternBudget struct {
	mu   sync.Mutex
	left int
}

// metered is a pattern that spends a budget.
type metered struct {
	pattern
	budget *patternBudget
}

// compile compiles a pattern for package jsonschema.
func (b *patternBudget) compile(text string) (jsonschema.Regexp, error) {
	p, err := compilePattern(text)
	if err != nil {
		return nil, err
	}
	return &metered{p, b}, nil
}

// MatchString reports whether a text matches the pattern. It returns false when the budget is spent; then the result of
// the validation is not used.
func (p *metered) MatchString(s string) bool {
	if p.budget.left -= p.size * (len(s) + 1); p.budget.left < 0 {
		return false
	}
	return p.Regexp.MatchString(s)
}
