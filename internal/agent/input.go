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

// CheckInput refuses the input of a built-in workflow that could not be run, or that
// holds credentials, whatever may be worked on: see [Setup.Admit] for that. Inputs of
// other workflows are good.
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

// Admit refuses the input of Prompted that could not be run, or may not.
func (s *Setup) Admit(input json.RawMessage) error {
	p, err := promptOf(input)
	if err != nil {
		return err
	}
	return s.Check(&p)
}

// AdmitJob refuses the input of Workflow that could not be run or, unless any repository
// may be worked on, may not.
func AdmitJob(input json.RawMessage, repos *Repositories) error {
	j, err := jobOf(input)
	if err != nil || j.Repo == "" || repos == nil {
		return err
	}
	return repos.Check(j.Repo)
}

func promptOf(input json.RawMessage) (p Prompt, err error) {
	if err := exact(input, &p); err != nil {
		return p, err
	}
	return p, checkStored(p.Repo, p.Ref)
}

func jobOf(input json.RawMessage) (j Job, err error) {
	if err := exact(input, &j); err != nil {
		return j, err
	}
	return j, errors.Join(j.Check(), checkStored(j.Repo, j.Ref))
}

// checkStored refuses what must not be stored as a repository.
func checkStored(repo, ref string) error {
	if repo == "" {
		return nil
	}
	_, err := workspace.Locate(repo)
	return errors.Join(err, workspace.CheckRef(ref))
}

// exact reads an input that has no fields but those of its kind, as they are written: of
// two that differ by case alone one would be judged and the other shown.
func exact(input json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	var fields map[string]json.RawMessage
	if err := errors.Join(d.Decode(v), json.Unmarshal(input, &fields)); err != nil {
		var e *belay.Error
		if errors.As(err, &e) {
			return e
		}
		return invalid("the input is not of the form that this workflow takes")
	}
	var known []string
	for f := range reflect.TypeOf(v).Elem().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known = append(known, name)
	}
	for name := range fields {
		if !slices.Contains(known, name) {
			return invalid("the input has a field that this workflow does not take")
		}
	}
	return nil
}
