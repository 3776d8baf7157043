package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// Workflow is the name of the workflow that runs a Job.
const Workflow = "command"

// OutputLog is the name of the log with the output of a job's commands.
const OutputLog = "output"

// RunQueue is the prefix of private queues: the process that submits a job to such a queue runs the
// job itself, and no other worker claims it.
const RunQueue = "run:"

// LabelCommand is the label of an execution that shows the job's commands.
const LabelCommand = "command"

// Job is a supervised command, or several commands in sequence, in an isolated workspace: the input
// of the workflow.
type Job struct {
	// Repo is the repository to work on, a path or URL; empty for an empty workspace.
	Repo string `json:"repo,omitempty"`
	// Ref is the branch, tag or commit; empty for the source's HEAD.
	Ref string `json:"ref,omitempty"`
	// Steps are run in order in one workspace, until a step fails. The changes of each finished
	// step are saved, so a job that continues on another host starts with the first unfinished
	// step.
	Steps []Step `json:"steps"`
	// Timeout is the time limit of each step, from the start of its command; 0 means no limit. Time
	// in the queue and time to prepare the workspace do not count.
	Timeout belay.Duration `json:"timeout,omitempty"`
	// Grace is the time between SIGTERM and SIGKILL; 0 means ten seconds.
	Grace belay.Duration `json:"grace,omitempty"`
	// Env names variables that the command gets from the worker's environment. Belay never stores
	// their values.
	Env []string `json:"env,omitempty"`
	// Capture puts the standard output of the last step into the result: as a text without the last
	// line break ("text"), as a list of lines ("lines"), or as the value that its JSON describes
	// ("json"). An output of more than MaxCapture bytes fails the job. Empty means no capture.
	Capture string `json:"capture,omitempty"`
	// Retry makes an exit code other than 0 a failure that may pass, so that the policy of the
	// execution decides about further attempts. Without it the job fails at once.
	Retry bool `json:"retry,omitempty"`
}

// MaxCapture is the largest standard output that a job can put into its result, in bytes.
const MaxCapture = 256 << 10

// Step is one command of a job.
type Step struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
}

// Result is the result of a job: the output of the workflow, even after a failure.
type Result struct {
	// ExitCode is the exit code of the last step that ran; 128+n if signal n ended the step, 124 if
	// the step exceeded its time limit.
	ExitCode int `json:"exit_code"`
	// Commit is the commit that was checked out.
	Commit string       `json:"commit,omitempty"`
	Steps  []StepResult `json:"steps"`
	// Stdout is the standard output of the last step, in the form of Job.Capture.
	Stdout json.RawMessage `json:"stdout,omitempty"`
	// Changes are the changes of the job; nil if there are none.
	Changes *Changes `json:"changes,omitempty"`
	// Notes list parts that the workspace lacked, such as submodules, and network requests that
	// were refused.
	Notes []string `json:"notes,omitempty"`
}

// StepResult is the result of one step.
type StepResult struct {
	Name       string `json:"name"`
	ExitCode   int    `json:"exit_code"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	Cancelled  bool   `json:"cancelled,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	// Bytes is the size of the step's output, including output that was not kept.
	Bytes int64 `json:"bytes"`
	// Isolation is the kind of isolation that kept the step's processes together.
	Isolation string `json:"isolation,omitempty"`
	// Exceeded describes the limits that the step reached.
	Exceeded string `json:"exceeded,omitempty"`
	// Changes are the changes in the workspace after the step.
	Changes *Changes `json:"changes,omitempty"`
	// Stdout is the standard output, in the form of Job.Capture.
	Stdout json.RawMessage `json:"stdout,omitempty"`
}

// Duration is the time that the step ran.
func (r StepResult) Duration() time.Duration { return time.Duration(r.DurationMS) * time.Millisecond }

// Changes names the artifacts with the changes since the commit that was checked out.
type Changes struct {
	// Bundle is the name of an artifact: a git bundle of new commits, refs, stashes and staged
	// changes; empty if there are no such changes.
	Bundle string `json:"bundle,omitempty"`
	// Patch is the name of an artifact: a binary patch of all other changes; empty if there are no
	// other changes.
	Patch string `json:"patch,omitempty"`
	// Home is the name of an artifact: a tar.gz of HOME. It exists only for interrupted jobs, and
	// between two steps of a job.
	Home string `json:"home,omitempty"`
	// Diff is the name of an artifact: the difference between the commit that was checked out and
	// all files, for people to read; empty if the patch has the same difference. DiffCut says that
	// the artifact is only the beginning.
	Diff       string `json:"diff,omitempty"`
	DiffCut    bool   `json:"diff_cut,omitempty"`
	Commits    int    `json:"commits,omitempty"`
	Files      int    `json:"files,omitempty"`
	Insertions int    `json:"insertions,omitempty"`
	Deletions  int    `json:"deletions,omitempty"`
	// Lost describes the changes that Belay could not keep, and the reason for each.
	Lost string `json:"lost,omitempty"`
}

// maxSteps is the maximum number of steps of a job.
const maxSteps = 100

// Check returns an error for a job that could not run. It is called before the job is stored.
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
	if !slices.Contains([]string{"", "text", "lines", "json"}, j.Capture) {
		return invalid("capture is %q; it can be text, lines or json", j.Capture)
	}
	for _, name := range j.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return invalid("%q is not the name of an environment variable", name)
		}
		if strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "BELAY_") {
			return invalid("%s is not passed on, because it would lead git or another belay to a wrong place", name)
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
			return invalid("an argument of step %q contains a NUL character, which no argument can have", s.Name)
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
