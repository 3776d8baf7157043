package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/belaydev/belay"
)

// Workflow is the name of the built-in workflow that runs documents.
const Workflow = "document"

// Input is the input of an execution of the workflow document. It contains the whole document.
type Input struct {
	// Document is the text of the document, and Hash its SHA-256 in hexadecimal; an empty Hash is not compared.
	Document string `json:"document"`
	Hash     string `json:"hash,omitempty"`
	// File names the document in messages.
	File string `json:"file,omitempty"`
	// Input is the input of the document.
	Input json.RawMessage `json:"input,omitempty"`
}

// with returns the submission with the text of a version and its notifications, in the form in which the workflow
// document runs it.
func with(s belay.Submission, d *belay.Document) (belay.Submission, error) {
	refuse := func(format string, args ...any) (belay.Submission, error) {
		return s, &belay.Error{Code: belay.CodeInvalid, Op: "submit", Message: fmt.Sprintf(format, args...)}
	}
	if s.Workflow != "" && s.Workflow != Workflow {
		return refuse("document and workflow exclude each other; give one")
	}
	if s.Version != "" {
		return refuse("version is that of a workflow; the version of a document follows its name, as in %s@3", d.Name)
	}
	if len(s.Input) > 0 && !json.Valid(s.Input) {
		return refuse("the input is not JSON")
	}
	own := map[string]string{
		belay.LabelDocument: d.Name, belay.LabelDocumentVersion: strconv.Itoa(d.Version),
	}
	for name, value := range own {
		if given, ok := s.Labels[name]; ok && given != value {
			return refuse("the label %s is %q; Belay sets it to %q", name, given, value)
		}
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(&Input{Document: d.Text, Hash: d.Hash, File: d.String(), Input: s.Input})
	if err != nil {
		return refuse("the input cannot be encoded: %s", err)
	}
	s.Workflow, s.Document, s.Input = Workflow, "", bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	if len(s.Input) > belay.MaxPayload {
		return s, &belay.Error{
			Code: belay.CodePayloadTooLarge, Op: "submit", Message: fmt.Sprintf(
				"the text of the document and the input have %d bytes together; the limit is %d", len(s.Input),
				belay.MaxPayload),
		}
	}
	labels := maps.Clone(s.Labels)
	if labels == nil {
		labels = own
	}
	maps.Copy(labels, own)
	s.Labels = labels
	return notified(s, d.String(), d.Text)
}

// documentOf returns the version that an execution contains, as its labels and its input say. It reports false if the
// execution does not run a stored document.
func documentOf(x *belay.Execution) (d belay.Document, ok bool) {
	var in Input
	if x.Workflow != Workflow || json.Unmarshal(x.Input, &in) != nil {
		return d, false
	}
	version, err := strconv.Atoi(x.Labels[belay.LabelDocumentVersion])
	d.Name, d.Version, d.Hash, d.Text = x.Labels[belay.LabelDocument], version, in.Hash, in.Document
	return d, err == nil
}
