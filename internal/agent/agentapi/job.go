package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

// The statuses of a job.
const (
	Queued    = "queued"    // the job waits for a slot, or for its next attempt
	Waiting   = "waiting"   // the agent has asked a question, and waits for the answer of a person
	Running   = "running"   // a worker has the job: it prepares the workspace or runs the agent
	Completed = "completed" // the agent succeeded
	Failed    = "failed"    // the agent failed: its exit code, its own report, or a missing permission
	Timeout   = "timeout"   // the agent did not end within its timeout
	Errored   = "error"     // the job was cancelled, or its worker was lost, or the agent could not run
)

// The phases of a job that is running.
const (
	Preparing = "preparing" // the workspace is being prepared
	Working   = "working"   // the agent runs
)

// Status returns the status of a job whose execution is x:
//
//	pending, scheduled, paused                            queued
//	waiting                                               waiting
//	running                                               running
//	succeeded                                             completed
//	failed: the agent or its run ran out of time          timeout
//	failed: the agent ended by itself, with a failure     failed
//	failed otherwise: no workspace, its worker was lost   error
//	cancelled                                             error
//
// a is the execution's output; nil if the execution has no output.
func Status(x *belay.Execution, a *agent.Answer) string {
	switch x.State {
	case belay.Pending, belay.Scheduled, belay.Paused:
		return Queued
	case belay.Waiting:
		return Waiting
	case belay.Running:
		return Running
	case belay.Succeeded:
		return Completed
	case belay.Failed:
		switch {
		case a != nil && a.TimedOut, x.Error != nil && x.Error.Class == belay.ClassTimeout:
			return Timeout
		case x.Error != nil && x.Error.Class == belay.ClassLost:
			return Errored
		case a != nil && (a.ExitCode != 0 || a.SaidFailed || len(a.Denied) > 0 || a.OverCost):
			return Failed
		}
	case belay.Cancelled:
	}
	return Errored
}

// Job is the JSON form of a job in responses.
type Job struct {
	JobID  belay.ExecutionID `json:"job_id" doc:"The id of the job and of its execution."`
	Status string            `json:"status" enum:"queued,waiting,running,completed,failed,timeout,error"`
	Phase  string            `json:"phase,omitempty" enum:"preparing,working" doc:"Only while the job runs: its workspace is being prepared, or the agent works."`
	Output string            `json:"output" doc:"The output of the agent so far, with standard error; the last MiB of it."`
	// ExitCode, Result and Error are null while they are unknown.
	ExitCode   *int               `json:"exit_code" nullable:"true" doc:"128+n after signal n, 124 after a timeout."`
	Result     *string            `json:"result" nullable:"true" doc:"The agent's final text, or its standard output."`
	Error      *string            `json:"error" nullable:"true"`
	CreatedAt  time.Time          `json:"created_at"`
	StartedAt  *time.Time         `json:"started_at" nullable:"true" doc:"The time at which the agent was first started; null before."`
	FinishedAt *time.Time         `json:"finished_at" nullable:"true"`
	Commit     string             `json:"commit,omitempty" doc:"The commit that was checked out."`
	Changes    *agent.Changes     `json:"changes,omitempty" doc:"The artifacts with the changes."`
	Usage      *agent.Usage       `json:"usage,omitempty"`
	Continues  *belay.ExecutionID `json:"continues,omitempty" doc:"The job whose conversation and work this job continues."`
	Question   *agent.Question    `json:"question,omitempty" doc:"The question for which the job waits."`
	Denied     []string           `json:"denied,omitempty" doc:"The tools that the agent was not permitted to use."`
	Session    string             `json:"session,omitempty" doc:"The id of the conversation with the agent."`
	Resumed    bool               `json:"resumed,omitempty" doc:"The job was interrupted and continued with the work that it had done."`
	Notes      []string           `json:"notes,omitempty" doc:"Parts of the repository that the workspace lacked and network requests that were refused, with the reasons."`
	Walls      string             `json:"walls,omitempty" doc:"The sandbox in which the agent ran."`
	Pushed     *agent.Pushed      `json:"pushed,omitempty" doc:"The branch to which the work was pushed."`
	Metadata   json.RawMessage    `json:"metadata,omitempty"`
}

// answerOf returns the output of a job; nil if the job has no output.
func answerOf(x *belay.Execution) *agent.Answer {
	var a agent.Answer
	if len(x.Output) == 0 || json.Unmarshal(x.Output, &a) != nil {
		return nil
	}
	return &a
}

// jobOf returns the job of an execution, with its output and its started runs.
func jobOf(x *belay.Execution, output string, runs []startedRun) *Job {
	a := answerOf(x)
	j := &Job{
		JobID: x.ID, Status: Status(x, a), Output: output, CreatedAt: x.CreatedAt, FinishedAt: moment(x.FinishedAt),
	}
	j.begin(x, runs)
	var p agent.Prompt
	if json.Unmarshal(x.Input, &p) == nil {
		j.Metadata = p.Metadata
		if p.Continues != nil {
			j.Continues = &p.Continues.Job
		}
	}
	if a != nil && x.State.Terminal() {
		j.Commit, j.Changes, j.Usage, j.Resumed = a.Commit, a.Changes, a.Usage, a.Resumed
		j.Pushed = a.Pushed
		j.Denied, j.Session, j.Notes, j.Walls = a.Denied, a.Session, a.Notes, a.Walls
		if a.Isolation != "" || a.ExitCode != 0 { // the command has run, or could not be started
			j.ExitCode = &a.ExitCode
			j.Result = &a.Text
		}
	}
	if why := reason(x); why != "" {
		j.Error = &why
	}
	return j
}

// begin sets the job's phase, the start time of its agent, and the id of the conversation.
func (j *Job) begin(x *belay.Execution, runs []startedRun) {
	// Runs that started before the execution was last reopened do not count.
	runs = slices.DeleteFunc(slices.Clone(runs), func(b startedRun) bool { return b.At.Before(x.StartedAt) })
	if len(runs) > 0 {
		j.StartedAt, j.Session = &runs[0].At, runs[len(runs)-1].Session
	}
	if j.Status == Running {
		j.Phase = Preparing
		if len(runs) > 0 && runs[len(runs)-1].Token == x.Token {
			j.Phase = Working
		}
	}
}

// reason returns the text that says why a job did not succeed.
func reason(x *belay.Execution) string {
	switch {
	case x.State == belay.Cancelled && x.Error != nil:
		return "cancelled: " + x.Error.Message
	case x.State == belay.Cancelled:
		return "cancelled"
	case x.State == belay.Failed && x.Error != nil:
		return x.Error.Message
	case x.State == belay.Failed:
		return "failed"
	}
	return ""
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// find reads the execution of the job that a request names. The error is errNoJob if the job ended
// longer than JobTTL ago.
func (s *Service) find(r *http.Request) (belay.Execution, error) {
	id, err := belay.ParseExecutionID(r.PathValue("id"))
	if err != nil {
		return belay.Execution{}, errNoJob
	}
	return s.read(r.Context(), id)
}

func (s *Service) read(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	x, err := s.b.Execution(ctx, id)
	switch {
	case belay.CodeOf(err) == belay.CodeNotFound, err == nil && (x.Workflow != agent.Prompted || s.evicted(&x)):
		return x, errNoJob
	}
	return x, err
}

var errNoJob = &belay.Error{Code: belay.CodeNotFound, Message: "there is no such job, or it ended too long ago"}

// evicted reports whether a job ended longer than JobTTL ago, by the server's clock.
func (s *Service) evicted(x *belay.Execution) bool {
	return s.o.JobTTL > 0 && x.State.Terminal() && s.o.Now().Sub(x.FinishedAt) >= s.o.JobTTL
}

func (d *endpoint) job(w http.ResponseWriter, r *http.Request) {
	if accepts(r, "text/event-stream") {
		d.follow(w, r)
		return
	}
	wait, err := waitOf(r)
	var x belay.Execution
	if err == nil {
		x, err = d.find(r)
	}
	if err == nil && wait > 0 && !x.State.Terminal() {
		x, err = d.await(r.Context(), x.ID, wait)
	}
	var runs []startedRun
	if err == nil {
		runs, err = d.startedRuns(r.Context(), x.ID)
	}
	if err == nil {
		err = d.show(w, r, &x, runs)
	}
	if err != nil {
		d.refuse(w, r, err)
	}
}

// show sends a job as JSON. It encodes and writes the output in parts, because the JSON encoding
// may be six times as long as the output itself.
func (d *endpoint) show(w http.ResponseWriter, r *http.Request, x *belay.Execution, runs []startedRun) error {
	output, give, err := d.output(r.Context(), x.ID)
	if err != nil {
		return err
	}
	defer give()
	const field = `"output":"`
	// The strings before the field output contain no quotes, so the first match is the name of that
	// field.
	j := jobOf(x, "", runs)
	if j.Status == Waiting {
		if j.Question, err = d.question(r.Context(), x.ID); err != nil {
			return err
		}
	}
	before, after, _ := bytes.Cut(jsonOf(j).Bytes(), []byte(field))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, err = w.Write(append(bytes.Clone(before), field...))
	for len(output) > 0 && err == nil {
		n := pieceOf(output)
		piece := bytes.TrimSpace(jsonOf(agent.Shown(string(output[:n]))).Bytes())
		_, err = w.Write(piece[1 : len(piece)-1])
		output = output[n:]
	}
	if err == nil {
		_, err = w.Write(after)
	}
	if err != nil {
		panic(http.ErrAbortHandler) // closes the connection, because half a response must not look complete
	}
	return nil
}

// pieceOf returns how many bytes of the output to write next: at most 32 KiB, without splitting a
// character.
func pieceOf(output []byte) int {
	const most = 32 << 10
	if len(output) <= most {
		return len(output)
	}
	for n := most; n > most-utf8.UTFMax; n-- {
		if utf8.RuneStart(output[n]) {
			return n
		}
	}
	return most
}

// await waits until a job ends, for at most the duration wait.
func (d *endpoint) await(ctx context.Context, id belay.ExecutionID, wait time.Duration) (belay.Execution, error) {
	waiting, done := d.waiting(ctx)
	_, err := d.b.Await(waiting, id, wait)
	done()
	if err != nil && !(d.stops() && ctx.Err() == nil) {
		return belay.Execution{}, err
	}
	return d.b.Execution(ctx, id)
}

// waitOf returns how long the request lets the server wait: the parameter wait is a duration such
// as "30s", or a number of seconds.
func waitOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	if strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, &belay.Error{Code: belay.CodeMalformed, Message: `wait must have the form "30s" or 30`}
	}
	return min(d, wire.MaxWait), nil
}

func accepts(r *http.Request, kind string) bool {
	return strings.Contains(r.Header.Get("Accept"), kind)
}

func (d *endpoint) cancel(w http.ResponseWriter, r *http.Request) {
	x, err := d.find(r)
	if err == nil {
		x, err = d.b.Control(r.Context(), belay.Control{
			Execution: x.ID, Action: belay.ActionCancel, Actor: httpapi.Actor(r.Context(), ""),
			Reason: "asked for at /jobs",
			Op:     wire.OpOf(r.Header.Get("Idempotency-Key")),
		})
	}
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	reply(w, http.StatusAccepted, Accepted{x.ID, Status(&x, answerOf(&x))})
}

// drop cancels a job whose caller has disconnected. The cancellation continues even if ctx, the
// context of the request, has ended.
func (s *Service) drop(ctx context.Context, id belay.ExecutionID, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err := s.b.Control(ctx, belay.Control{Execution: id, Action: belay.ActionCancel, Reason: why})
	var e *belay.Error
	// a conflict means that the job ended before the cancellation
	if err != nil && !(errors.As(err, &e) && e.Code == belay.CodeConflict) {
		s.o.Log.ErrorContext(ctx, "belay: cancel the job of a disconnected chat", "execution", id.String(), "error",
			err)
	}
}
