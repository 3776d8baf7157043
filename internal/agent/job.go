package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// Workflow is the name under which a Runner's job is registered.
const Workflow = "command"

// OutputLog is the name of the log that holds what a job's commands wrote.
const OutputLog = "output"

// RunQueue begins the name of the queue of a job that one process alone takes.
const RunQueue = "run:"

// LabelCommand is the label that shows a job's commands to people.
const LabelCommand = "command"

// Job is a supervised command, or several one after the other, in an isolated
// workspace: the input of the workflow.
type Job struct {
	// Repo is the repository to work on, a path or URL; empty for an empty
	// workspace.
	Repo string `json:"repo,omitempty"`
	// Ref is the branch, tag or commit; empty for the source's HEAD.
	Ref string `json:"ref,omitempty"`
	// Steps are run in order in one workspace, until one fails. What a step
	// that has ended left behind is kept, so that a job which goes on
	// elsewhere starts at the first step that has not.
	Steps []Step `json:"steps"`
	// Timeout bounds each step from the moment it executes, so that neither
	// the queue nor setting up counts; 0 means none.
	Timeout belay.Duration `json:"timeout,omitempty"`
	// Grace is how long a step may take to end when it is told to; 0 means
	// the default of ten seconds.
	Grace belay.Duration `json:"grace,omitempty"`
	// Env names the variables that are passed on from the worker's own
	// environment. Their values are never stored.
	Env []string `json:"env,omitempty"`
}

// Step is one command of a job.
type Step struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
}

// Result is what a job came to: the output of the workflow, also when it
// failed.
type Result struct {
	// ExitCode is that of the last step that ran, 128+n after signal n, 124
	// after a timeout.
	ExitCode int `json:"exit_code"`
	// Commit is what was checked out.
	Commit string       `json:"commit,omitempty"`
	Steps  []StepResult `json:"steps"`
	// Changes is what the job changed, nil if nothing.
	Changes *Changes `json:"changes,omitempty"`
	// Notes say what the job did not have: submodules, a way to its origin.
	Notes []string `json:"notes,omitempty"`
}

// StepResult is what one step came to.
type StepResult struct {
	Name       string `json:"name"`
	ExitCode   int    `json:"exit_code"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	Cancelled  bool   `json:"cancelled,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	// Bytes is how much it wrote, kept or not.
	Bytes int64 `json:"bytes"`
	// Isolation says how its processes were kept together.
	Isolation string `json:"isolation,omitempty"`
	// Exceeded says which limits it came up against.
	Exceeded string `json:"exceeded,omitempty"`
	// Changes is what the workspace held after it.
	Changes *Changes `json:"changes,omitempty"`
}

// Duration is how long the step ran.
func (r StepResult) Duration() time.Duration { return time.Duration(r.DurationMS) * time.Millisecond }

// Changes names the artifacts that hold what was changed since Result.Commit.
type Changes struct {
	// Bundle is a git bundle of the commits that were made, and of refs, stashes and
	// what is staged; empty if all of that is as it was.
	Bundle string `json:"bundle,omitempty"`
	// Patch is a binary patch of the rest; empty if nothing.
	Patch string `json:"patch,omitempty"`
	// Home is a tar.gz of HOME. Only an interrupted job has it, and one between two
	// steps.
	Home       string `json:"home,omitempty"`
	Commits    int    `json:"commits,omitempty"`
	Files      int    `json:"files,omitempty"`
	Insertions int    `json:"insertions,omitempty"`
	Deletions  int    `json:"deletions,omitempty"`
	// Lost says what could not be kept, and why.
	Lost string `json:"lost,omitempty"`
}

// maxSteps bounds the steps of one job.
const maxSteps = 100

// Check refuses a job that could not run, before anything is stored.
func (j *Job) Check() error {
	if len(j.Steps) == 0 {
		return invalid("no command given; write it after --, as in: belay run -- make test")
	}
	if len(j.Steps) > maxSteps {
		return invalid("%d steps; the limit is %d", len(j.Steps), maxSteps)
	}
	seen := make(map[string]bool)
	for _, s := range j.Steps {
		if err := s.check(); err != nil {
			return err
		}
		if seen[s.Name] {
			return invalid("two steps have the name %q", s.Name)
		}
		seen[s.Name] = true
	}
	if j.Timeout < 0 || j.Grace < 0 {
		return invalid("a timeout or grace must not be negative")
	}
	for _, name := range j.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return invalid("%q is no name of an environment variable", name)
		}
		if strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "BELAY_") {
			return invalid("%s is not passed on: it would point git, or another belay, at the wrong place", name)
		}
	}
	b, err := json.Marshal(j)
	if err == nil && len(b) > belay.MaxPayload {
		return &belay.Error{
			Code: belay.CodePayloadTooLarge, Message: fmt.Sprintf("the command has %d bytes; the limit is %d", len(b),
				belay.MaxPayload),
		}
	}
	return err
}

func (s *Step) check() error {
	if len(s.Argv) == 0 || strings.TrimSpace(s.Argv[0]) == "" {
		return invalid("an empty command for %q; give one to run", s.Name)
	}
	if s.Name == "" || len(s.Name) > 100 || !utf8.ValidString(s.Name) ||
		strings.ContainsFunc(s.Name, unicode.IsControl) {
		return invalid("a step's name must have 1 to 100 bytes of text, not %q", s.Name)
	}
	for _, a := range s.Argv {
		if strings.ContainsRune(a, 0) {
			return invalid("an argument of step %q holds a NUL character; no program can be given one", s.Name)
		}
		if !utf8.ValidString(a) {
			return invalid("an argument of step %q is not valid UTF-8; it could not be stored and given back as it is",
				s.Name)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}
