package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
)

// CheckInput checks the input of a built-in workflow: it returns an error if the workflow cannot
// run with the input, or if the input contains credentials. CheckInput does not check whether the
// repository is allowed; [Setup.Admit] does. If name names another workflow, CheckInput accepts
// every input.
func CheckInput(name string, input json.RawMessage) error {
	switch name {
	case Workflow:
		_, err := jobOf(input)
		return err
	case Prompted:
		_, err := promptOf(input)
		return err
	}
	return nil
}

// Admit returns an error if the workflow Prompted cannot run with the input, or if s does not allow
// the input.
func (s *Setup) Admit(input json.RawMessage) error {
	p, err := promptOf(input)
	if err != nil {
		return err
	}
	return s.Check(&p)
}

// AdmitJob returns an error if the workflow Workflow cannot run with the input, or if the
// repository in the input is not allowed. If repos is nil, every repository is allowed.
func AdmitJob(input json.RawMessage, repos *Repositories) error {
	j, err := jobOf(input)
	if err != nil || j.Repo == "" || repos == nil {
		return err
	}
	return repos.Check(j.Repo)
}

func promptOf(input json.RawMessage) (p Prompt, err error) {
	if err := decodeStrict(input, &p); err != nil {
		return p, err
	}
	return p, checkStored(p.Repo, p.Ref)
}

func jobOf(input json.RawMessage) (j Job, err error) {
	if err := decodeStrict(input, &j); err != nil {
		return j, err
	}
	return j, errors.Join(j.Check(), checkStored(j.Repo, j.Ref))
}

// checkStored returns an error for a repository or ref that must not be stored, such as a URL with
// credentials.
func checkStored(repo, ref string) error {
	if repo == "" {
		return nil
	}
	_, err := workspace.Locate(repo)
	return errors.Join(err, workspace.CheckRef(ref))
}

// decodeStrict decodes an input. It refuses unknown fields, and fields whose name differs in case,
// because otherwise an input could have both the field repo and the field Repo: a check could read
// one of them, and a display the other.
func decodeStrict(input json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	var fields map[string]json.RawMessage
	if err := errors.Join(d.Decode(v), json.Unmarshal(input, &fields)); err != nil {
		var e *belay.Error
		if errors.As(err, &e) {
			return e
		}
		return invalid("the input does not have the form that this workflow expects")
	}
	var known []string
	for f := range reflect.TypeOf(v).Elem().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known = append(known, name)
	}
	for name := range fields {
		if !slices.Contains(known, name) {
			return invalid("the input has a field that this workflow does not have")
		}
	}
	return nil
}
