package webui

import (
	"context"
	"net/url"
	"slices"

	"github.com/belaydev/belay"
)

// remedy is an action, or a page to look at, that may end the wait or the failure of an execution. Address is empty if
// the visitor's key does not allow the action.
type remedy struct {
	Address, Label, Text string
	Lacks                belay.Scope
	Danger               bool
}

// remediesFor returns what the explanation of an execution recommends, with the addresses of the forms. An action on
// another thing leads back to the page of the execution. The signal that answers an agent has a form of its own.
func remediesFor(ctx context.Context, e *belay.Execution, why *belay.Explanation) []remedy {
	var all []remedy
	for i := range why.Remedies {
		if r, ok := remedyOf(&why.Remedies[i], why.Execution); ok {
			if from := &why.Remedies[i]; from.Do == belay.RemedySignal && isAnswer(e, from.Signal) {
				r.Label, r.Text = "Answer the agent", "sends the answer, and the job continues"
				r.Address = answerPath(e.ID, from.Signal)
			}
			if r.Lacks != "" && visitorOf(ctx).allows(r.Lacks) {
				r.Lacks = ""
			}
			if r.Lacks != "" {
				r.Address = ""
			}
			all = append(all, r)
		}
	}
	return all
}

// remedyOf returns the form or the page of a remedy; false if there is none.
func remedyOf(from *belay.Remedy, execution belay.ExecutionID) (remedy, bool) {
	r := remedy{Label: excerpt(from.Title, 80), Text: line(from.Text)}
	switch {
	case from.Do == belay.RemedyLook:
		r.Address = looks(from)
	case from.Of == belay.RemedyExecution:
		a := actionNamed(string(from.Do))
		if a == nil {
			return r, false
		}
		r.Danger, r.Lacks = a.danger, a.scope
		r.Address = "/executions/" + url.PathEscape(from.ID) + "/" + a.name
	default:
		d := deedNamed(string(from.Of), string(from.Do))
		if d == nil {
			return r, false
		}
		r.Danger, r.Lacks = d.danger, belay.ScopeOperate
		r.Address = d.address(from.ID) + "&" + url.Values{"back": {execution.String()}}.Encode()
	}
	return r, r.Address != ""
}

// unlike returns the offers whose forms the remedies do not lead to, so that a page has one link to each form.
func unlike(offers []offer, remedies []remedy) []offer {
	return slices.DeleteFunc(offers, func(o offer) bool {
		return slices.ContainsFunc(remedies, func(r remedy) bool { return r.Address == o.Address })
	})
}

// looks returns the address of the page of a thing.
func looks(r *belay.Remedy) string {
	switch r.Of {
	case belay.RemedyExecution:
		if _, err := belay.ParseExecutionID(r.ID); err != nil {
			return ""
		}
		return "/executions/" + r.ID
	case belay.RemedyGate:
		return pageOf(ofGate, r.ID)
	case belay.RemedyWorkers, belay.RemedyWorker:
		return "/workers"
	}
	return ""
}
