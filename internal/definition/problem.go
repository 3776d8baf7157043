package definition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// Problem is a mistake in a document, with its position. Lines and columns count from 1; a column counts characters.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	// Suggestion says how to repair the document; it may be empty.
	Suggestion string `json:"suggestion,omitempty"`
}

// String returns the problem in one line, in the form in which compilers name positions.
func (p Problem) String() string {
	s := fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
	if p.Suggestion != "" {
		s += "; " + p.Suggestion
	}
	return s
}

// Problems are all problems of a document, in the order of their positions. As an error they have CodeInvalid.
type Problems []Problem

// Error lists the problems, one on each line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes belay.CodeOf return CodeInvalid.
func (p Problems) Unwrap() error {
	return &belay.Error{Code: belay.CodeInvalid, Message: "the document is invalid"}
}

// maxProblems is the largest number of problems that are reported for one document.
const maxProblems = 100

// at is a position in a document.
type at struct{ line, column int }

// report collects the problems of a document.
type report struct {
	file  string
	words *vocabulary // the names in expressions
	list  Problems
	// expressions counts the expressions of the document, and programs has those that were compiled.
	expressions int
	programs    map[string]compilation
}

// compilation is a compiled expression, or the error of an expression.
type compilation struct {
	program *Program
	err     error
}

func (r *report) add(pos at, suggestion, format string, args ...any) {
	r.list = append(r.list, Problem{
		File: r.file, Line: max(pos.line, 1), Column: max(pos.column, 1), Message: fmt.Sprintf(format, args...),
		Suggestion: suggestion,
	})
}

// sorted returns the problems in the order of their positions, without repetitions.
func (r *report) sorted() Problems {
	slices.SortStableFunc(r.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	list := slices.Compact(r.list)
	return list[:min(len(list), maxProblems)]
}
