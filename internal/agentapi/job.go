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
	Queued    = "queued"    // it waits for a slot, or for its next attempt
	Running   = "running"   // a worker has it: its workspace is made, or the agent runs
	Completed = "completed" // the agent ended well
	Failed    = "failed"    // the agent ended badly: its exit code, its own word, or for want of a permission
	Timeout   = "timeout"   // the agent ran out of time
	Errored   = "error"     // it was cancelled, lost, or could not be run
)

// The phases of a job that is running.
const (
	Preparing = "preparing" // its workspace is made
	Working   = "working"   // the agent runs
)

// Status is the status of a job whose execution is x:
//
//	pending, scheduled, waiting, paused                   queued
//	running                                               running
//	succeeded                                             completed
//	failed, the agent or its run ran out of time          timeout
//	failed, the agent ended by itself and badly           failed
//	failed otherwise: no workspace, its worker was lost   error
//	cancelled                                             error
//
// a is the execution's output, nil if it has none.
func Status(x *belay.Execution, a *agent.Answer) string {
	switch x.State {
	case belay.Pending, belay.Scheduled, belay.Waiting, belay.Paused:
		return Queued
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
		case a != nil && (a.ExitCode != 0 || a.SaidFailed || len(a.Denied) > 0):
			return Failed
		}
	case belay.Cancelled:
	}
	return Errored
}

// Job is a job as its callers see it.
type Job struct {
	JobID  belay.ExecutionID `json:"job_id" doc:"Also the id of its execution."`
	Status string            `json:"status" enum:"queued,running,completed,failed,timeout,error"`
	Phase  string            `json:"phase,omitempty" enum:"preparing,working" doc:"Of a job that is running: its workspace is made, or the agent runs."`
	Output string            `json:"output" doc:"What the agent has written so far, standard error too; the last MiB of it."`
	// ExitCode, Result and Error are null until there is one.
	ExitCode   *int            `json:"exit_code" nullable:"true" doc:"128+n after signal n, 124 after a timeout."`
	Result     *string         `json:"result" nullable:"true" doc:"The agent's final text, or its standard output."`
	Error      *string         `json:"error" nullable:"true"`
	CreatedAt  time.Time       `json:"created_at"`
	StartedAt  *time.Time      `json:"started_at" nullable:"true" doc:"When the agent was first started; null before."`
	FinishedAt *time.Time      `json:"finished_at" nullable:"true"`
	Commit     string          `json:"commit,omitempty" doc:"What was checked out."`
	Changes    *agent.Changes  `json:"changes,omitempty" doc:"The artifacts that hold what was changed."`
	Usage      *agent.Usage    `json:"usage,omitempty"`
	Denied     []string        `json:"denied,omitempty" doc:"The tools that the agent wanted to use and was not permitted to."`
	Session    string          `json:"session,omitempty" doc:"The id of the conversation with the agent."`
	Resumed    bool            `json:"resumed,omitempty" doc:"The job was interrupted and went on with what it had done."`
	Notes      []string        `json:"notes,omitempty" doc:"What the agent could not find in its workspace, what of the network it was refused, and why."`
	Walls      string          `json:"walls,omitempty" doc:"What held the agent."`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
}

// answerOf is the output of a job, nil if there is none.
func answerOf(x *belay.Execution) *agent.Answer {
	var a agent.Answer
	if len(x.Output) == 0 || json.Unmarshal(x.Output, &a) != nil {
		return nil
	}
	return &a
}

// jobOf is the job whose execution is x, with what it has written and its runs.
func jobOf(x *belay.Execution, output string, runs []begun) *Job {
	a := answerOf(x)
	j := &Job{
		JobID: x.ID, Status: Status(x, a), Output: output, CreatedAt: x.CreatedAt, FinishedAt: moment(x.FinishedAt),
	}
	j.begin(x, runs)
	var p agent.Prompt
	if json.Unmarshal(x.Input, &p) == nil {
		j.Metadata = p.Metadata
	}
	if a != nil && x.State.Terminal() {
		j.Commit, j.Changes, j.Usage, j.Resumed = a.Commit, a.Changes, a.Usage, a.Resumed
		j.Denied, j.Session, j.Notes, j.Walls = a.Denied, a.Session, a.Notes, a.Walls
		if a.Isolation != "" || a.ExitCode != 0 { // the command ran, or there was none to run
			j.ExitCode = &a.ExitCode
			j.Result = &a.Text
		}
	}
	if why := reason(x); why != "" {
		j.Error = &why
	}
	return j
}

// begin says since when the agent works, and in which conversation.
func (j *Job) begin(x *belay.Execution, runs []begun) {
	// an earlier generation's
	runs = slices.DeleteFunc(slices.Clone(runs), func(b begun) bool { return b.At.Before(x.StartedAt) })
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

// reason says why a job did not end well.
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

// find reads the execution of a job that is still answered for.
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

// evicted reports whether a job ended too long ago to be answered for.
func (s *Service) evicted(x *belay.Execution) bool {
	return s.o.JobTTL > 0 && x.State.Terminal() && s.o.Now().Sub(x.FinishedAt) >= s.o.JobTTL
}

func (d *door) job(w http.ResponseWriter, r *http.Request) {
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
	var runs []begun
	if err == nil {
		runs, err = d.begun(r.Context(), x.ID)
	}
	if err == nil {
		err = d.show(w, r, &x, runs)
	}
	if err != nil {
		d.refuse(w, r, err)
	}
}

// show answers with a job. Its output is written a piece at a time: as JSON it may be
// six times as long.
func (d *door) show(w http.ResponseWriter, r *http.Request, x *belay.Execution, runs []begun) error {
	output, give, err := d.output(r.Context(), x.ID)
	if err != nil {
		return err
	}
	defer give()
	const field = `"output":"`
	// the texts before it hold no quotes
	before, after, _ := bytes.Cut(jsonOf(jobOf(x, "", runs)).Bytes(), []byte(field))
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
		panic(http.ErrAbortHandler) // half an answer must not look whole
	}
	return nil
}

// pieceOf is how many bytes of an output are written at a time: whole characters.
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

// await waits for the end of a job, for a while at most.
func (d *door) await(ctx context.Context, id belay.ExecutionID, wait time.Duration) (belay.Execution, error) {
	waiting, done := d.waiting(ctx)
	_, err := d.b.Await(waiting, id, wait)
	done()
	if err != nil && !(d.stops() && ctx.Err() == nil) {
		return belay.Execution{}, err
	}
	return d.b.Execution(ctx, id)
}

// waitOf is how long a request may wait: "30s", or seconds.
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
		return 0, &belay.Error{Code: belay.CodeMalformed, Message: `wait is written like "30s" or 30`}
	}
	return min(d, wire.MaxWait), nil
}

func accepts(r *http.Request, kind string) bool {
	return strings.Contains(r.Header.Get("Accept"), kind)
}

func (d *door) cancel(w http.ResponseWriter, r *http.Request) {
	x, err := d.find(r)
	if err == nil {
		x, err = d.b.Control(r.Context(), belay.Control{
			Execution: x.ID, Action: belay.ActionCancel, Actor: httpapi.Actor(r.Context()),
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

// drop cancels a job that nobody waits for any more, also when its request is
// over.
func (s *Service) drop(ctx context.Context, id belay.ExecutionID, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err := s.b.Control(ctx, belay.Control{Execution: id, Action: belay.ActionCancel, Reason: why})
	var e *belay.Error
	if err != nil && !(errors.As(err, &e) && e.Code == belay.CodeConflict) { // it has ended meanwhile
		s.o.Log.ErrorContext(ctx, "belay: cancel a chat that nobody waits for", "execution", id.String(), "error", err)
	}
}
