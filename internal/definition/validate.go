package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// document makes a document of its node and reports all problems.
func (r *report) document(n *node) *Document {
	r.check(n, &Format, document)
	d := &Document{Name: n.get("name").text(), Description: n.get("description").text(), byID: map[string]*Task{}}
	d.Input = r.schema(n.get("input"), "input")
	d.OutputSchema = r.schema(n.get("output_schema"), "output_schema")
	d.Notify = r.notify(n.get("notify"))
	d.On = r.triggers(n, d.Name)
	r.inputs(n, d)
	v := &validator{report: r, doc: d, defaults: n.get("defaults"), input: n.get("input")}
	if tasks := n.get("tasks"); tasks != nil && tasks.kind == listNode && len(tasks.items) <= MaxTasks {
		for i, x := range tasks.items {
			if x.kind == mapNode {
				v.task(i, x)
			}
		}
	}
	v.names()
	v.reaches()
	v.reads(n.get("output"))
	v.never()
	return d
}

// validator checks what the table of the format cannot say.
type validator struct {
	*report
	doc      *Document
	defaults *node
	input    *node // nil if the document has no input
	reading  []read
	// circular says that tasks need each other; then nothing else is said about their order.
	circular bool
	// ancestors are the numbers of the tasks that each task needs, directly or through other tasks.
	ancestors map[*Task]bits
}

// read is an expression of a task, or of the output of the document if the task is nil.
type read struct {
	at
	task    *Task
	field   string
	program *Program
	secret  string
}

func (v *validator) task(i int, n *node) {
	t := &Task{ID: n.get("id").text(), Number: i, node: n, Uses: n.get("uses").text(),
		Description: n.get("description").text()}
	if t.ID != "" {
		if first := v.doc.byID[t.ID]; first != nil {
			v.add(n.get("id").at, "give each task an id of its own", "two tasks have the id %s, the first in line %d",
				quoted(t.ID), first.node.get("id").line)
		} else {
			v.doc.byID[t.ID] = t
		}
	}
	v.doc.Tasks = append(v.doc.Tasks, t)
	t.Kind = kindOf(t.Uses)
	v.uses(t)
	v.settings(t)
	visit := func(field string) func(*part) {
		return func(p *part) { v.reading = append(v.reading, read{p.at, t, field, p.program, p.secret}) }
	}
	t.With = v.template(n.get("with"), visit("with"))
	t.Outputs = v.template(n.get("outputs"), visit("outputs"))
	t.If = v.condition(t, n.get("if"))
	t.Foreach = v.foreach(n.get("foreach"), visit("foreach"))
}

// uses checks the kind of a task and its with.
func (v *validator) uses(t *Task) {
	n := t.node.get("uses")
	if n == nil || n.kind != textNode {
		return
	}
	if t.Kind == nil {
		var names []string
		for i := range Kinds {
			names = append(names, Kinds[i].Name)
		}
		if s := didYouMean(t.Uses, names); s != "" {
			v.add(n.at, s+" To start a workflow of this name, write uses: workflow, and the name in with",
				"task %s: %s is no kind of task", quoted(t.ID), quoted(t.Uses))
		}
		return
	}
	with := t.node.get("with")
	if t.Uses == "workflow" {
		v.started(t, n, with)
	}
	if with == nil {
		for i := range t.Kind.With.Fields {
			if f := &t.Kind.With.Fields[i]; f.Required {
				v.add(n.at, fmt.Sprintf("add with: {%s: %s}", f.Name, f.Type.Example),
					"task %s: %s needs the key %q in with",
					quoted(t.ID), t.Uses, f.Name)
			}
		}
		return
	}
	v.check(with, &t.Kind.With, "with of task "+quoted(t.ID))
}

// started checks that a task of the kind workflow names either a workflow or a stored document.
func (v *validator) started(t *Task, uses, with *node) {
	if with != nil && with.kind != mapNode {
		return // reported elsewhere
	}
	name, document, version := with.get("name"), with.get("document"), with.get("version")
	switch {
	case name == nil && document == nil:
		at := uses
		if with != nil {
			at = with
		}
		v.add(at.at, "add name: invoice for a workflow of a worker, or document: nightly for a stored document",
			"task %s: workflow needs the key \"name\" or \"document\" in with", quoted(t.ID))
	case name != nil && document != nil:
		v.add(document.at, "keep one of them", "task %s: name and document exclude each other", quoted(t.ID))
	case document != nil && version != nil:
		v.add(version.at, "write it after the name, as in document: nightly@3",
			"task %s: version is for a workflow, not for a document", quoted(t.ID))
	case document != nil && !strings.Contains(document.text(), "${{"):
		if _, err := belay.ParseDocumentRef(document.text()); err != nil {
			v.add(document.at, "write a name such as nightly or nightly@3",
				"task %s: %s is no name of a stored document", quoted(t.ID), quoted(document.text()))
		}
	}
}

// setting returns a field of a task, or of defaults if the task lacks it.
func (v *validator) setting(t *Task, name string) *node {
	if n := t.node.get(name); n != nil {
		return n
	}
	return v.defaults.get(name)
}

func (v *validator) settings(t *Task) {
	integer := func(n *node, other int) int {
		if n == nil {
			return other
		}
		if i, ok := n.value.(int); ok {
			return i
		}
		return other
	}
	if retry := v.setting(t, "retry"); retry != nil {
		t.Retry = Retry{integer(retry.get("attempts"), 0), durationOf(retry.get("backoff")),
			durationOf(retry.get("max_backoff"))}
	}
	t.Timeout = durationOf(v.setting(t, "timeout"))
	t.Queue = v.setting(t, "queue").text()
	t.Parallel = integer(v.setting(t, "parallel"), 10)
	t.Target = t.node.get("target").text()
	if labels := v.setting(t, "worker_labels"); labels != nil && labels.kind == mapNode {
		t.WorkerLabels = map[string]string{}
		for i, k := range labels.keys {
			t.WorkerLabels[k.name] = labels.items[i].text()
		}
		if len(labels.keys) > belay.MaxLabels {
			v.add(labels.at, "", "worker_labels has %d entries; the limit is %d", len(labels.keys), belay.MaxLabels)
		}
	}
	if c := t.node.get("concurrency"); c != nil {
		t.Concurrency = &belay.Concurrency{Name: c.get("name").text(), Max: integer(c.get("max"), 1)}
	}
	if q := t.node.get("requires"); q != nil {
		t.Requires = &belay.Requires{Resource: q.get("resource").text(), Mode: q.get("mode").text()}
		if p := q.get("preemptible"); p != nil {
			t.Requires.Preemptible = p.value == true
		}
	}
	t.OnFailure = OnFailure{Reaction: Fail}
	if f := v.setting(t, "on_failure"); f != nil {
		if f.kind == mapNode {
			t.OnFailure = OnFailure{Compensate, texts(f.get("compensate"))}
		} else if s := f.text(); s != "" {
			t.OnFailure.Reaction = Reaction(s)
		}
	}
	t.Needs = texts(t.node.get("needs"))
	if t.Kind == nil || !t.Kind.Inline {
		return
	}
	for _, name := range []string{"retry", "queue", "worker_labels", "target", "concurrency", "requires", "foreach"} {
		if n := t.node.get(name); n != nil {
			v.add(n.at, "remove it", "task %s: %s cannot have %s, because the execution itself waits", quoted(t.ID),
				t.Uses,
				name)
		}
	}
}

func durationOf(n *node) belay.Duration {
	d, err := time.ParseDuration(n.text())
	if err != nil {
		return 0
	}
	return belay.Duration(d)
}

// texts returns the entries of a list of texts, or a single text.
func texts(n *node) []string {
	switch {
	case n == nil:
		return nil
	case n.kind == textNode:
		return []string{n.text()}
	}
	var all []string
	for _, x := range n.items {
		if x.kind == textNode {
			all = append(all, x.text())
		}
	}
	return all
}

// entry returns the node of the i-th text of a list of texts.
func entry(n *node, i int) *node {
	if n.kind != listNode {
		return n
	}
	k := 0
	for _, x := range n.items {
		if x.kind == textNode {
			if k == i {
				return x
			}
			k++
		}
	}
	return n
}

// condition compiles the expression of if, which may stand in ${{ }}.
func (v *validator) condition(t *Task, n *node) *Program {
	switch {
	case n == nil:
		return nil
	case n.kind == boolNode:
		return v.compile(n.at, fmt.Sprint(n.value))
	case n.kind != textNode:
		return nil
	}
	p := v.compile(n.at, bare(n.text()))
	if p == nil {
		return nil
	}
	v.reading = append(v.reading, read{n.at, t, "if", p, ""})
	return p
}

// bare returns the expression in a text that may be a whole ${{ }}.
func bare(s string) string {
	s = strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(s, "${{"); ok && closing(rest) == len(rest)-2 {
		return strings.TrimSpace(rest[:len(rest)-2])
	}
	return s
}

// foreach compiles the list of a foreach.
func (v *validator) foreach(n *node, visit func(*part)) *Template {
	switch {
	case n == nil:
		return nil
	case n.kind == listNode:
		return v.template(n, visit)
	case n.kind != textNode:
		return nil
	}
	p := v.compile(n.at, bare(n.text()))
	if p == nil {
		return nil
	}
	t := &Template{node: n, parts: []part{{at: n.at, program: p}}}
	visit(&t.parts[0])
	if len(p.inputs) == 1 && "input."+strings.Join(p.inputs[0], ".") == p.Source && v.doc.Input != nil {
		if x, _, _ := v.doc.Input.property(p.inputs[0]); x != nil {
			if typ := x.get("type").text(); typ != "" && typ != "array" {
				v.add(n.at, "name a list", "foreach needs a list, and %s is of type %s", p.Source, typ)
			}
		}
	}
	return t
}

// names checks the names of tasks in needs and on_failure, and links the tasks.
func (v *validator) names() {
	ids := slices.Sorted(maps.Keys(v.doc.byID))
	undo := map[string]bool{}
	for _, t := range v.doc.Tasks {
		v.needs(t, ids)
		if t.OnFailure.Reaction != Compensate {
			continue
		}
		list := v.setting(t, "on_failure").get("compensate")
		for i, id := range t.OnFailure.Compensate {
			if v.doc.byID[id] == nil {
				v.add(entry(list, i).at, orList(id, ids), "compensate names the task %s, which does not exist",
					quoted(id))
				continue
			}
			undo[id] = true
		}
	}
	for _, id := range ids {
		t := v.doc.byID[id]
		if t.Undoes = undo[id]; !t.Undoes {
			continue
		}
		if n := t.node.get("foreach"); n != nil {
			v.add(n.at, "remove it", "task %s compensates, so it cannot have foreach", quoted(id))
		}
		if t.Kind != nil && t.Kind.Inline {
			v.add(t.node.get("uses").at, "use a command, an http task or another workflow",
				"task %s compensates, so it cannot be %s, which only waits", quoted(id), t.Uses)
		}
		if len(t.Needs) != 1 {
			v.add(t.node.get("id").at, "name the task whose work it undoes in needs",
				"task %s compensates, so it must need exactly one task", quoted(id))
		}
		if len(t.NeededBy) > 0 {
			v.add(t.node.get("id").at, "", "task %s compensates, so task %s cannot need it", quoted(id),
				quoted(t.NeededBy[0]))
		}
	}
}

func (v *validator) needs(t *Task, ids []string) {
	list := t.node.get("needs")
	seen := map[string]bool{}
	for i, id := range t.Needs {
		pos := entry(list, i).at
		switch need := v.doc.byID[id]; {
		case need == nil:
			v.add(pos, orList(id, slices.DeleteFunc(slices.Clone(ids), func(s string) bool { return s == t.ID })),
				"task %s needs the task %s, which does not exist", quoted(t.ID), quoted(id))
		case seen[id]:
			v.add(pos, "remove one of the two", "task %s needs the task %s twice", quoted(t.ID), quoted(id))
		default:
			need.NeededBy = append(need.NeededBy, t.ID)
		}
		seen[id] = true
	}
}

// reads checks what the expressions read: tasks that have ended by then, properties of the input that exist, and items
// of a foreach.
func (v *validator) reads(output *node) {
	v.doc.Output = v.template(output, func(p *part) {
		v.reading = append(v.reading, read{p.at, nil, "output", p.program, p.secret})
	})
	for i := range v.reading {
		x := &v.reading[i]
		if x.secret != "" {
			v.secret(x)
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(x.program.Tasks)) {
			v.readsTask(x, id)
		}
		v.readsInput(x)
		if x.program.Item && (x.task == nil || x.task.node.get("foreach") == nil || x.field == "foreach" ||
			x.field == "if") {
			v.add(x.at, "", "expression %s reads the item of a foreach, and there is none here",
				quoted(x.program.Source))
		}
	}
}

func (v *validator) secret(x *read) {
	if x.task == nil || x.field != "with" || x.task.Uses != "http" {
		v.add(x.at, "give a command its secrets with env",
			"the secret %s cannot be used here: only with of an http task may refer to secrets", x.secret)
	}
}

func (v *validator) readsTask(x *read, id string) {
	t := v.doc.byID[id]
	switch {
	case t == nil:
		v.add(x.at, orList(id, slices.Sorted(maps.Keys(v.doc.byID))), "expression %s reads the task %s, which does "+
			"not exist", quoted(x.program.Source),
			quoted(id))
	case t.Undoes:
		v.add(x.at, "", "expression %s reads the task %s, which runs only to compensate", quoted(x.program.Source),
			quoted(id))
	case x.task == nil:
	case t == x.task:
		v.add(x.at, "in outputs, output is what the task has returned", "expression %s reads its own task",
			quoted(x.program.Source))
	case !v.circular && !v.before(t, x.task):
		v.add(x.at, fmt.Sprintf("add %s to the needs of %s", id, x.task.ID),
			"expression %s reads the task %s, which may not have ended when task %s starts", quoted(x.program.Source),
			quoted(id), quoted(x.task.ID))
	}
}

func (v *validator) readsInput(x *read) {
	if len(x.program.inputs) > 0 && v.input == nil {
		v.add(x.at, "describe the input with the key input, as a JSON Schema",
			"expression %s reads the input, and the document has none", quoted(x.program.Source))
		return
	}
	if v.doc.Input == nil {
		return
	}
	for _, chain := range x.program.inputs {
		if _, unknown, known := v.doc.Input.property(chain); unknown != "" {
			v.add(x.at, orList(unknown, known), "expression %s reads input.%s, and the input has no property %s",
				quoted(x.program.Source), strings.Join(chain, "."), quoted(unknown))
		}
	}
}

// never reports tasks that can never run.
func (v *validator) never() {
	for _, t := range v.doc.Tasks {
		if n := t.node.get("if"); n != nil && t.If != nil && t.If.Source == "false" {
			v.add(n.at, "remove the task, or write a condition", "task %s can never run, because its if is false",
				quoted(t.ID))
		}
		if n := t.node.get("foreach"); n != nil && n.kind == listNode && len(n.items) == 0 {
			v.add(n.at, "remove the task, or give it items", "task %s can never run, because its foreach is empty",
				quoted(t.ID))
		}
	}
}
