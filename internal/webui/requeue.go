package webui

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/belaydev/belay"
)

// reviewInput shows how the input that a person has written differs from that of the execution, and changes nothing.
// The button of the review runs the execution again.
func (p *pages) reviewInput(w http.ResponseWriter, r *http.Request, a *action, e *belay.Execution, form url.Values) {
	var op belay.OpID
	n, err := strconv.Atoi(form.Get("generation"))
	if err != nil || n < 1 || op.UnmarshalText([]byte(form.Get("op"))) != nil || op.IsZero() {
		p.refuse(w, r, incomplete())
		return
	}
	input, err := jsonOf(form.Get("input"))
	if err != nil {
		p.form(w, r, a, e, form, err)
		return
	}
	change := &inputDiff{Note: "The input stays as it is."}
	if input != nil {
		change.Diff, change.Note = inputDiffOf(e.Input, input, nil)
	}
	f := actionFormOf(a, e)
	f.Change, f.Danger, f.Switch = change, true, &option{Value: "terms", Label: "Change the input"}
	f.Hidden = []field{
		// The generation is that which the person saw: another person may have reopened the execution since.
		{Name: "generation", Value: form.Get("generation")}, {Name: "step", Value: "start"},
		{Name: "input", Value: escapeSteering(form.Get("input"))},
	}
	f.About = "The execution runs again from its beginning with this input. All steps run again."
	if form.Get("keep") != "" {
		f.About = "The execution runs again from its beginning with this input. Finished steps keep their results."
		f.Hidden = append(f.Hidden, field{Name: "keep", Value: "yes"})
	}
	reason := reasonField
	reason.restore(form)
	f.Fields = []field{reason}
	p.showForm(w, r, f, nil)
}
