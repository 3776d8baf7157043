package definition

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

// pattern is a compiled regular expression, with the number of its instructions.
type pattern struct {
	*regexp.Regexp
	size int
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
