package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/screen"
)

// documentView shows a document that belay run runs: a line when a task starts and one when it ends, the output of its
// commands, each line with the name of its task, and on a terminal a status line with the running tasks.
type documentView struct {
	*view
	doc *definition.Document

	// prefix is the path of the task that started this document, with a slash; it is empty for the document of the
	// command line, whose view has the views of all documents that tasks have started.
	prefix string

	mu     sync.Mutex
	id     belay.ExecutionID
	since  map[string]time.Time // the start of each task and item that is under way
	items  map[string]*itemCount
	ended  int
	nested map[belay.ExecutionID]*documentView
}

// itemCount counts the items of a foreach.
type itemCount struct{ open, succeeded, failed int }

func newDocumentView(a *app, doc *definition.Document, isolated bool) *documentView {
	return &documentView{
		view: newView(a, &agent.Job{}, isolated), doc: doc, since: map[string]time.Time{},
		items: map[string]*itemCount{}, nested: map[belay.ExecutionID]*documentView{},
	}
}

// below returns the view of a document that the task with the path has started.
func (v *documentView) below(id belay.ExecutionID, path string) *documentView {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.nested[id] == nil {
		v.nested[id] = &documentView{
			view: v.view, prefix: path + "/", since: map[string]time.Time{}, items: map[string]*itemCount{},
		}
	}
	return v.nested[id]
}

// Begun says how far earlier runs have come.
func (v *documentView) Begun(id belay.ExecutionID, d *definition.Document, ended int) {
	v.ranHere()
	v.mu.Lock()
	first := v.ended == 0 && len(v.since) == 0
	v.ended, v.id = ended, id
	v.mu.Unlock()
	if ended > 0 && first && v.prefix == "" {
		v.say("%d of %s are done already", ended, screen.Plural(len(d.Tasks), "task"))
	}
}

// Started says that a task has started.
func (v *documentView) Started(key string, t *definition.Task, child belay.ExecutionID) {
	v.mu.Lock()
	if v.since[key].IsZero() {
		v.since[key] = time.Now()
	}
	if t.Foreach != nil {
		v.count(t.ID).open++
	}
	id := v.id
	v.mu.Unlock()
	key = v.prefix + key
	switch {
	case t.Uses == "approval":
		v.say("%s waits for an answer: belay signal %s %s --payload '{\"approved\": true}'", key, id, signalOf(t))
	case t.Uses == "signal":
		v.say("%s waits for a signal: belay signal %s %s", key, id, signalOf(t))
	case t.Foreach == nil:
		v.say("%s started", key)
	}
	v.showRunning()
}

// signalOf returns the name of the signal for which a task waits.
func signalOf(t *definition.Task) string {
	for _, key := range []string{"signal", "name"} {
		if s := t.With.Text(key); s != "" {
			return s
		}
	}
	return t.ID
}

// count returns the count of a foreach. v.mu must be locked.
func (v *documentView) count(id string) *itemCount {
	if v.items[id] == nil {
		v.items[id] = &itemCount{}
	}
	return v.items[id]
}

// Ended says that a task, or an item that failed, has ended.
func (v *documentView) Ended(key string, t *definition.Task, state, message string) {
	v.mu.Lock()
	since, known := v.since[key]
	delete(v.since, key)
	item := key != t.ID
	count := ""
	if t.Foreach != nil {
		c := v.count(t.ID)
		switch {
		case item && state == "succeeded":
			c.open, c.succeeded = max(0, c.open-1), c.succeeded+1
		case item:
			c.open, c.failed = max(0, c.open-1), c.failed+1
		default:
			count = fmt.Sprintf(" (%s here)", screen.Plural(c.succeeded+c.failed, "item"))
		}
	}
	if !item {
		v.ended++
	}
	v.mu.Unlock()
	if item && state == "succeeded" {
		v.showRunning()
		return
	}
	line := v.prefix + key + " " + state + count
	if known && state != "skipped" && state != "blocked" {
		line += " after " + screen.Short(time.Since(since))
	}
	if message != "" {
		line += ": " + message
	}
	colour := dim
	if state == "failed" {
		colour = red
	}
	v.sayIn(colour, "%s", line)
	v.showRunning()
}

// showRunning shows the running tasks in the status line.
func (v *documentView) showRunning() {
	if v.prefix != "" {
		return
	}
	v.mu.Lock()
	var names []string
	for key := range v.since {
		if id, _, item := strings.Cut(key, "["); !item {
			names = append(names, id)
		}
	}
	for id, c := range v.items {
		if c.open > 0 {
			names = append(names, fmt.Sprintf("%s (%d done)", id, c.succeeded+c.failed))
		}
	}
	slices.Sort(names)
	status := fmt.Sprintf("%d/%d %s", v.ended, len(v.doc.Tasks), strings.Join(names, ", "))
	if len(names) == 0 {
		status = ""
	}
	v.mu.Unlock()
	v.show(status)
}

// summary prints the result of a document that has ended.
func (v *documentView) summary(e *belay.Execution) error {
	v.show("")
	code := 0
	switch e.State {
	case belay.Succeeded:
	case belay.Cancelled:
		code = 130
	default:
		code = 1
	}
	if v.app.output == "json" {
		if err := screen.PrintJSON(v.app.out, e); err != nil {
			return err
		}
	} else {
		v.sayIn(endColour(e.State), "%s %s in %s", v.doc.Name, e.State, took(e))
		if e.Error != nil {
			v.say("%s", e.Error.Message)
		}
		if v.doc.Output != nil && e.State == belay.Succeeded {
			if err := v.printOutput(e.Output); err != nil {
				return err
			}
		}
		if e.State == belay.Failed {
			v.say("to go on after a repair: belay retry %s, then the same belay run line with --resume", e.ID)
		}
		v.say("history: belay get %s", e.ID)
	}
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

// printOutput prints the output of the document: a text as it is, everything else as JSON.
func (v *documentView) printOutput(output json.RawMessage) error {
	var text string
	if json.Unmarshal(output, &text) == nil {
		fmt.Fprintln(v.app.out, text)
		return nil
	}
	return screen.PrintJSON(v.app.out, output)
}

// task returns the observer of a command that belongs to a task.
func (v *documentView) task(name string) agent.Observer { return &taskObserver{v: v, name: name} }

// taskObserver prints the output of the command of a task, line by line, each with the name of the task.
type taskObserver struct {
	v    *documentView
	name string
	rest [2][]byte // the incomplete last line of standard output and standard error
}

// Wrote prints the complete lines of the output.
func (o *taskObserver) Wrote(stderr bool, b []byte) {
	n := 0
	if stderr {
		n = 1
	}
	o.rest[n] = append(o.rest[n], b...)
	for {
		line, rest, found := bytes.Cut(o.rest[n], []byte("\n"))
		const longest = 4096
		switch {
		case found:
			o.rest[n] = rest
		case len(o.rest[n]) > longest:
			line, o.rest[n] = o.rest[n], nil
		default:
			return
		}
		o.print(stderr, line)
	}
}

func (o *taskObserver) print(stderr bool, line []byte) {
	o.v.Wrote(stderr, fmt.Appendf(nil, "%s | %s\n", o.name, bytes.TrimSuffix(line, []byte("\r"))))
}

// Ended prints the incomplete last lines.
func (o *taskObserver) Ended(agent.StepResult) {
	for n, line := range o.rest {
		if len(line) > 0 {
			o.print(n == 1, line)
			o.rest[n] = nil
		}
	}
}

// Preparing does nothing, as do the other methods: the runner reports the task.
func (o *taskObserver) Preparing(*agent.Job) {}

// Prepared does nothing.
func (o *taskObserver) Prepared(string, bool) {}

// Skipped does nothing.
func (o *taskObserver) Skipped(agent.StepResult) {}

// Started does nothing.
func (o *taskObserver) Started(agent.Step) {}
