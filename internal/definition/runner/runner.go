package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/run"
)

// Workflow is the name of the workflow that runs documents.
const Workflow = catalog.Workflow

// Input is the input of an execution of a document. It contains the whole document, so that an execution never changes
// its document.
type Input struct {
	// Document is the text of the document, and Hash its SHA-256 in hexadecimal; an empty Hash is not compared.
	Document string `json:"document"`
	Hash     string `json:"hash,omitempty"`
	// File names the document in messages.
	File string `json:"file,omitempty"`
	// Input is the input of the document.
	Input json.RawMessage `json:"input,omitempty"`
	// Repair are the decisions of people about tasks, in the order in which they were made; see package tasks. A
	// submission has none.
	Repair []Repair `json:"repair,omitempty"`
}

// Parse returns the document of the input, or an error marked belay.Permanent.
func (in *Input) Parse() (*definition.Document, error) {
	if in.Hash != "" && in.Hash != definition.Hash([]byte(in.Document)) {
		return nil, invalid("the hash of the document is not %s", in.Hash)
	}
	d, problems := definition.Parse(in.name(), []byte(in.Document))
	if d == nil {
		return nil, belay.Permanent(problems)
	}
	return d, nil
}

// CheckInput returns an error for an input with which the workflow cannot run, or with a repair. It is called before
// the input of a submission is stored.
func CheckInput(input json.RawMessage) error { return CheckReopened(input, nil) }

// CheckReopened is like CheckInput for an execution that is reopened, or forked: the input may have the same repairs as
// the input before it. Only a repair, which belay checks, adds repairs, because they name the person who has decided.
func CheckReopened(input, before json.RawMessage) error {
	var in Input
	if err := decodeStrict(input, &in); err != nil {
		return invalid(`the input of a document must have the form {"document": TEXT, "hash": HASH, "input": INPUT}: %s`, err)
	}
	if in.Repair != nil {
		var old Input
		if before == nil || json.Unmarshal(before, &old) != nil || !sameRepairs(in.Repair, old.Repair) {
			return invalid("the field repair of the input of a document is not for callers; repair the execution " +
				"with belay retry ID --from TASK or --skip TASK, or POST /v1/executions/{id}/repair")
		}
	}
	return in.check()
}

func decodeStrict(input json.RawMessage, in *Input) error {
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	return d.Decode(in)
}

// check returns an error if the document is invalid or the input does not match its schema.
func (in *Input) check() error {
	doc, err := in.Parse()
	if err != nil {
		return err
	}
	_, err = in.Values(doc)
	return err
}

func (in *Input) name() string {
	if in.File == "" {
		return "document"
	}
	return in.File
}

// Values returns the input of the document with the defaults of its schema, or an error if it does not match the
// schema.
func (in *Input) Values(d *definition.Document) (any, error) {
	var v any
	if len(in.Input) > 0 {
		var err error
		if v, err = definition.Decode(in.Input); err != nil {
			return nil, invalid("input: %s", err)
		}
	}
	if d.Input == nil {
		if v != nil {
			return nil, invalid("the document %s has no input", d.Name)
		}
		return nil, nil
	}
	v = d.Input.Fill(v)
	if v == nil {
		v = map[string]any{}
	}
	if err := d.Input.Validate(v, "input"); err != nil {
		return nil, invalid("%s", err)
	}
	return v, nil
}

func invalid(format string, args ...any) error {
	return belay.Permanent(&belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf(format, args...)})
}

// Observer gets reports on the tasks of the executions that this process runs. Its methods must not block.
type Observer interface {
	// Begun is called when a run begins, with how many tasks had ended before.
	Begun(id belay.ExecutionID, d *definition.Document, ended int)
	// Started is called when a task or an item has started. child is zero for a task that only waits.
	Started(key string, t *definition.Task, child belay.ExecutionID)
	// Ended is called when a task or an item has ended; message is the error of a failed one.
	Ended(key string, t *definition.Task, state, message string)
}

// Runner runs documents.
type Runner struct {
	// Observer may be nil.
	Observer Observer
	// Private is the prefix of queues that belong to one process: a document in such a queue gives its commands and
	// agents to the same queue.
	Private string

	documents Documents
}

// Documents parses the documents of inputs. It keeps the documents that were parsed last, because one execution needs
// its document several times. The zero value is ready for use.
type Documents struct {
	mu     sync.Mutex
	parsed []*definition.Document // the newest first
}

// Parse returns the document of an input, as Input.Parse does.
func (r *Documents) Parse(in *Input) (*definition.Document, error) {
	const most = 32
	hash := definition.Hash([]byte(in.Document))
	r.mu.Lock()
	i := slices.IndexFunc(r.parsed, func(d *definition.Document) bool { return d.Hash == hash })
	if i >= 0 && (in.Hash == "" || in.Hash == hash) {
		defer r.mu.Unlock()
		return r.parsed[i], nil
	}
	r.mu.Unlock()
	d, err := in.Parse() // may take long, so other runs do not wait for it
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parsed = slices.Insert(r.parsed, 0, d)
	r.parsed = r.parsed[:min(len(r.parsed), most)]
	return d, nil
}

// Run is the workflow function.
func (r *Runner) Run(ctx context.Context, in Input) (json.RawMessage, error) {
	d, err := r.documents.Parse(&in)
	if err != nil {
		return nil, err
	}
	values, err := in.Values(d)
	if err != nil {
		return nil, err
	}
	if err := nesting(ctx, run.From(ctx)); err != nil {
		return nil, err
	}
	x := newExecution(run.From(ctx), r, d, in.Repair)
	x.input = values
	if err := x.restore(x.run.State()); err != nil {
		return nil, err
	}
	x.begin()
	return x.loop(ctx)
}

// MaxNesting is how many documents may have started each other, so that a document that starts itself comes to an end.
const MaxNesting = 10

// nesting returns an error if too many documents have started each other.
func nesting(ctx context.Context, r *run.Run) error {
	parent := r.Assignment().Parent
	for depth := 1; !parent.IsZero(); depth++ {
		p, err := r.Execution(ctx, parent)
		switch {
		case belay.CodeOf(err) == belay.CodeNotFound || belay.CodeOf(err) == belay.CodeForbidden:
			return nil
		case err != nil:
			return err
		case p.Workflow != Workflow:
			return nil
		case depth >= MaxNesting:
			return invalid("%d documents have started each other, the limit", MaxNesting)
		}
		parent = p.Parent
	}
	return nil
}

// execution is one run of a document.
type execution struct {
	*progress
	run     *run.Run
	runner  *Runner
	observe Observer
	input   any
	bell    *run.Bell
	outputs outputs

	// ready are tasks whose needs have ended. windows are running tasks with a foreach whose window may have room.
	ready   []*task
	windows []*task
	left    int     // how many tasks have not ended, without those that compensate
	open    int     // how many children are under way
	taken   []int64 // the ends that the next checkpoint consumes
	dirty   bool
	// failures are the children that have failed, and whose errors were not read yet.
	failures []failure
	// early are ends of children that this run has not started again yet.
	early []belay.Signal

	mu     sync.Mutex
	landed []landing // the waits that have ended
}

func newExecution(r *run.Run, runner *Runner, d *definition.Document, repairs []Repair) *execution {
	x := &execution{
		progress: newProgress(d, r.Assignment().Generation, repairs), run: r, runner: runner, observe: runner.Observer,
		bell: r.Bell(),
	}
	if x.observe == nil {
		x.observe = silent{}
	}
	return x
}

// begin computes, from the restored state, what is ready and what is under way.
func (x *execution) begin() {
	ended := 0
	for _, t := range x.tasks {
		if t.status.ended() {
			ended++
		}
		if t.Undoes {
			if t.status == running {
				x.open++
			}
			continue
		}
		if !t.status.ended() {
			x.left++
		}
		if t.each != nil {
			x.open += t.each.open
		}
		for _, id := range t.Needs {
			if !x.byID[id].status.ended() {
				t.needs++
			}
		}
		switch {
		case t.status == pending && t.needs == 0:
			x.ready = append(x.ready, t)
		case t.status == running && t.each != nil:
			x.windows = append(x.windows, t)
		case t.status == running && !inline(t):
			x.open++
		case t.status == running:
			x.ready = append(x.ready, t) // the wait goes on in this run
		}
	}
	x.observe.Begun(x.run.ID().Execution, x.doc, ended)
}

// loop runs the document to its end. Each turn takes the ends that have arrived, starts what is ready, and saves the
// state.
func (x *execution) loop(ctx context.Context) (json.RawMessage, error) {
	x.take(x.run.Arrived()) // before anything starts: a child of an earlier generation may have succeeded
	for {
		if err := x.learn(ctx); err != nil {
			return nil, err
		}
		if err := x.advance(ctx); err != nil {
			return nil, err
		}
		if x.retake() {
			continue
		}
		if err := x.save(); err != nil {
			return nil, err
		}
		if done, err := x.over(); done {
			if err != nil {
				return nil, err
			}
			return x.output(ctx)
		}
		ends, err := x.run.Ends(ctx, x.bell, x.waitText())
		if err != nil {
			return nil, err
		}
		x.take(ends)
		if err := x.land(); err != nil {
			return nil, err
		}
	}
}

// waitText names the children for which the execution waits; "" if it waits for people or a time only, whose waits
// have texts of their own.
func (x *execution) waitText() string {
	var names []string
	alone := true // no task waits without a child
	for _, t := range x.tasks {
		switch {
		case t.status != running:
		case inline(t):
			alone = false
		case len(names) < 5:
			names = append(names, t.ID)
		}
	}
	switch {
	case len(names) > 0:
		return "child " + strings.Join(names, ", ")
	case alone:
		return "child executions"
	}
	return ""
}

// save saves the state if it has changed, and consumes the ends that it contains.
func (x *execution) save() error {
	if !x.dirty && len(x.taken) == 0 {
		return nil
	}
	data, err := x.encode()
	if err != nil {
		return err
	}
	if err := x.run.SaveState(data, x.taken); err != nil {
		return err
	}
	x.taken, x.dirty = nil, false
	return nil
}

// over reports whether the execution has ended, and its error if it has failed.
func (x *execution) over() (bool, error) {
	if x.saved.Cause != "" {
		t := x.byID[x.saved.Cause]
		if t.OnFailure.Reaction != definition.Compensate {
			return true, x.failure(t)
		}
		if x.saved.Undo != nil && x.saved.Undone == len(x.saved.Undo) && x.open == 0 {
			return true, x.failure(t)
		}
		return false, nil
	}
	if x.left > 0 {
		return false, nil
	}
	for _, t := range x.tasks {
		if t.status == failed && t.OnFailure.Reaction == definition.Quarantine {
			return true, x.failure(t)
		}
	}
	return true, nil
}

// failure returns the error of an execution that a task has failed.
func (x *execution) failure(t *task) error {
	err := fmt.Errorf("task %s failed: %s", t.ID, t.message)
	var others []string
	for _, y := range x.tasks {
		if y != t && y.status == failed && y.OnFailure.Reaction != definition.Continue {
			others = append(others, y.ID)
		}
	}
	if len(others) > 0 {
		err = fmt.Errorf("%w; these tasks failed too: %s", err, strings.Join(others[:min(len(others), 10)], ", "))
	}
	return belay.WithOutput(belay.Permanent(err), x.states())
}

// output computes the output of an execution that has succeeded.
func (x *execution) output(ctx context.Context) (json.RawMessage, error) {
	var v any = x.states()
	if x.doc.Output != nil {
		e, err := x.env(ctx, x.doc.Output.Tasks)
		if err == nil {
			v, err = x.doc.Output.Eval(e)
		}
		if err != nil {
			return nil, x.judge(fmt.Errorf("output: %w", err))
		}
	}
	if err := x.doc.OutputSchema.Validate(v, "output"); err != nil {
		return nil, invalid("%s", err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, belay.Permanent(err)
	}
	return data, nil
}

// judge marks the error of an expression as permanent, unless another try may succeed.
func (x *execution) judge(err error) error {
	var e *definition.ExpressionError
	if errors.Is(err, definition.ErrSlow) || !errors.As(err, &e) && !errors.Is(err, errOutput) {
		return err
	}
	return belay.Permanent(err)
}

// silent is an Observer that ignores all calls.
type silent struct{}

func (silent) Begun(belay.ExecutionID, *definition.Document, int)  {}
func (silent) Started(string, *definition.Task, belay.ExecutionID) {}
func (silent) Ended(string, *definition.Task, string, string)      {}
