package belay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// The content of the store of the measure pages. The engine runs endedTemplates executions and accepts pendingTemplates
// more; copies of their rows, with other ids, times, keys and labels, make up the rest.
const (
	endedTemplates   = 100
	pendingTemplates = 10
	endedSpan        = 20 * 24 * time.Hour // the ended executions were submitted within this time
	pendingSpan      = 6 * time.Hour
	specialQueue     = "special"
)

// kinds are the workflows of the executions, with their queues.
var kinds = []struct{ workflow, queue string }{
	{"invoice.send", "mail"}, {"report.build", "default"}, {"image.resize", "media"}, {"etl.nightly", "etl"},
	{"agent.review", "agents"},
}

var regions = []string{"eu-west", "us-east", "ap-south"}

// failures are the messages of the executions that fail for good. Copies have other shards.
var failures = []string{
	"charge the card of order 4711: the gateway answered 503 for shard a",
	"connect to the database of shard a: connection reset by peer",
}

// chore is the input of an execution.
type chore struct {
	trial.Payload
	Steps    int    `json:"steps,omitempty"`
	Fail     string `json:"fail,omitempty"`     // the message of the error with which it fails for good
	Once     bool   `json:"once,omitempty"`     // its first run fails
	Children int    `json:"children,omitempty"` // how many children it starts
	Log      int    `json:"log,omitempty"`      // lines of its log
}

func encodedChore(j chore) json.RawMessage {
	b, _ := json.Marshal(j) //nolint:errchkjson // numbers and texts
	return b
}

func (j chore) run(ctx context.Context) (string, error) {
	if j.Once && workflow.Attempt(ctx) == 1 {
		return "", errors.New("the mail server is busy")
	}
	if err := j.print(ctx); err != nil {
		return "", err
	}
	for i := range j.Steps {
		_, err := workflow.Step(ctx, "load", func(context.Context) (trial.Payload, error) {
			return trial.Payload{I: i, Text: "rows of the step"}, nil
		}, workflow.Key(i))
		if err != nil {
			return "", err
		}
	}
	for i := range j.Children {
		if _, err := workflow.Child[string](ctx, "part", "part", chore{}, workflow.Key(i)); err != nil {
			return "", err
		}
	}
	if j.Fail != "" {
		return "", belay.Permanent(errors.New(j.Fail))
	}
	return "done", nil
}

func (j chore) print(ctx context.Context) error {
	if j.Log == 0 {
		return nil
	}
	l := workflow.Output(ctx, "output")
	for i := range j.Log {
		if _, err := fmt.Fprintf(l, "%06d %s\n", i, strings.Repeat("reading a page of rows ", 4)); err != nil {
			return err
		}
	}
	return l.Close()
}

// filled says what is in the store.
type filled struct {
	long       belay.ExecutionID // the execution with the long history and log
	executions int64
	letters    int64
}

// fillStore makes the templates with an engine in this process, and copies their rows.
func fillStore(ctx context.Context, r trial.Request) (made filled, err error) {
	b, err := openLocal(ctx, r.URL)
	if err != nil {
		return made, err
	}
	all, err := makeTemplates(ctx, b, r, &made)
	if err := errors.Join(err, b.Close()); err != nil {
		return made, err
	}
	err = copyTemplates(ctx, r, all, &made)
	return made, err
}

// makeTemplates runs the templates, and the execution with the long history.
func makeTemplates(ctx context.Context, b belay.Backend, r trial.Request, made *filled) ([]template, error) {
	queues := []string{"default", specialQueue}
	for _, k := range kinds {
		queues = append(queues, k.queue)
	}
	w := worker.New(b, worker.Options{Concurrency: 2 * endedTemplates, Queues: queues, Name: "first", Log: quiet()})
	for _, name := range workflowNames() {
		worker.Register(w, name, func(ctx context.Context, j chore) (string, error) { return j.run(ctx) })
	}
	c := run(ctx, w)
	long, err := workflow.Start[string](ctx, b, "etl.history", chore{Steps: r.N / 100, Log: 2 * r.N / 10},
		belay.Queue(specialQueue))
	if err == nil {
		err = runTemplates(ctx, b)
	}
	if err == nil {
		_, err = long.Result(ctx)
		made.long = long.ID()
	}
	if err := errors.Join(err, c.stopWorking()); err != nil {
		return nil, err
	}
	for i := range pendingTemplates {
		if _, err := b.Submit(ctx, submissionOf(endedTemplates+i, chore{Payload: trial.Input(i)})); err != nil {
			return nil, err
		}
	}
	return templatesOf(ctx, b, long.ID())
}

func workflowNames() []string {
	names := []string{"part", "etl.history"}
	for _, k := range kinds {
		names = append(names, k.workflow)
	}
	return names
}

// submissionOf returns the i-th submission.
func submissionOf(i int, j chore) belay.Submission {
	k := kinds[i%len(kinds)]
	s := belay.Submission{
		Workflow: k.workflow, Queue: k.queue, Input: encodedChore(j),
		Labels: map[string]string{"customer": "c-0", "region": regions[i%len(regions)], "env": "production"},
		Policy: belay.Policy{BackoffBase: belay.Duration(time.Millisecond)},
	}
	if i%2 == 0 {
		s.IdempotencyKey = fmt.Sprintf("order-%d", i)
	}
	return s
}

// runTemplates submits the templates and waits for their ends.
func runTemplates(ctx context.Context, b belay.Backend) error {
	var ids []belay.ExecutionID
	for i := range endedTemplates {
		j := chore{Payload: trial.Input(i), Steps: i % 3}
		switch {
		case i%50 == 17:
			j.Fail = failures[i/50]
		case i == 33:
			j.Once = true
		case i%25 == 0:
			j.Children = 2
		case i%10 == 3:
			j.Log = 40
		}
		s := submissionOf(i, j)
		if i == 71 {
			s.DueAt = time.Now().Add(time.Hour) // it will be cancelled
		}
		out, err := b.Submit(ctx, s)
		if err == nil {
			err = out[0].Err
		}
		if err != nil {
			return err
		}
		if i == 71 {
			_, err = b.Control(ctx, belay.Control{
				Execution: out[0].ID, Action: belay.ActionCancel, Reason: "a person has cancelled the order",
			})
			if err != nil {
				return err
			}
		}
		ids = append(ids, out[0].ID)
	}
	for _, id := range ids {
		e, err := b.Await(ctx, id, patience)
		if err != nil {
			return err
		}
		if !e.State.Terminal() {
			return fmt.Errorf("the execution %s of %s does not end: %s", id, e.Workflow, e.State)
		}
	}
	return nil
}

// templatesOf lists the templates, the oldest first, without the execution with the long history.
func templatesOf(ctx context.Context, b belay.Backend, long belay.ExecutionID) ([]template, error) {
	page, err := b.Executions(ctx, belay.Filter{Children: true, Limit: 1000})
	if err != nil {
		return nil, err
	}
	var all []template
	for i := range page.Executions {
		e := &page.Executions[len(page.Executions)-1-i]
		if e.ID != long {
			all = append(all, template{id: e.ID, parent: e.Parent, created: e.CreatedAt, pending: !e.State.Terminal()})
		}
	}
	if len(all) < endedTemplates+pendingTemplates {
		return nil, fmt.Errorf("the store has %d templates", len(all))
	}
	return all, nil
}
