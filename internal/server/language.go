package server

import (
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/wire"
)

// language checks and draws documents. It implements httpapi.Language.
type language struct{}

// Check returns the problems of a text that is not a valid document of the name.
func (language) Check(name, text string) ([]wire.Detail, error) {
	refusal := &belay.Error{Code: belay.CodeInvalid, Op: "apply document"}
	d, problems := catalog.Parse(name, []byte(text))
	if d == nil {
		details := make([]wire.Detail, len(problems))
		for i, p := range problems {
			details[i] = wire.Detail{Location: fmt.Sprintf("line %d, column %d", p.Line, p.Column), Message: p.Message}
			if p.Suggestion != "" {
				details[i].Message += "; " + p.Suggestion
			}
		}
		refusal.Message = fmt.Sprintf("the document has %d problems", len(problems))
		if len(problems) == 1 {
			refusal.Message = "the document has a problem"
		}
		return details, refusal
	}
	if d.Name != name {
		refusal.Message = fmt.Sprintf("the document says name: %s, and the path says %s; make them equal", d.Name, name)
		return nil, refusal
	}
	return nil, nil
}

// Graph draws the tasks of a document.
func (language) Graph(text, format string) (string, error) {
	d, problems := definition.Parse("document", []byte(text))
	if d == nil {
		return "", problems
	}
	switch format {
	case "mermaid":
		return d.Mermaid(), nil
	case "svg":
		return d.SVG(), nil
	}
	return d.Text(), nil
}

// plan returns the tasks of a document as the pages draw them.
func plan(text string) ([]belay.Task, error) {
	d, problems := definition.Parse("document", []byte(text))
	if d == nil {
		return nil, problems
	}
	all := make([]belay.Task, len(d.Tasks))
	for i, t := range d.Tasks {
		all[i] = belay.Task{ID: t.ID, Uses: t.Brief(), Needs: t.Needs, Compensates: t.Undoes}
	}
	return all, nil
}
