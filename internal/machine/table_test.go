package machine

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// tableCommand is a command of testdata/rules.txt, with the name of its block. The function make
// returns the command for a subject.
type tableCommand struct {
	name string
	make func(*subject) Command
}

// tableCommands returns the commands of testdata/rules.txt, one for each block.
func tableCommands() []tableCommand {
	all := []tableCommand{
		{"submit again", func(x *subject) Command { return x.resubmit("") }},
		{"submit another body under the same id", func(x *subject) Command { return x.resubmit(`{"n":2}`) }},
		{"submit a child by its last lease", func(x *subject) Command {
			return x.submission(func(s *belay.Submission) {
				generation := 1
				if e := x.records[x.id].execution; e != nil {
					generation = e.Generation
				}
				s.ID, s.Parent, s.ParentKey = belay.ChildID(x.id, generation, "new"), &x.lease, "new"
			})
		}},
		{"claim", func(x *subject) Command { return x.claims(x.other, 10) }},
		{"claim that assigns", func(x *subject) Command {
			x.do(&Mailbox{x.other, "a queue"})
			c := x.claims(x.other, 10)
			c.Number, c.Assign = 0, true
			return c
		}},
		{"schedule", func(x *subject) Command {
			return &Schedule{Execution: x.id, Worker: x.other, Secret: belay.Secret{8}}
		}},
		{"accept by its last owner", func(x *subject) Command { return &Accept{x.owner, x.id, x.lease.Token, 1} }},
		{"undeliver", func(x *subject) Command { return &Undeliver{x.id, x.owner, x.lease.Token, 0} }},
		{"undeliver an expired message", func(x *subject) Command {
			return &Undeliver{x.id, x.owner, x.lease.Token, 2 * time.Second}
		}},
		{"append", func(x *subject) Command {
			return &Append{Chunk: belay.Chunk{Lease: x.lease, Name: "log", Data: []byte("line")}}
		}},
		{"progress", func(x *subject) Command {
			x.pass(time.Millisecond)
			return &Progress{x.id, x.lease.Token, x.now}
		}},
		{"lock", func(x *subject) Command { return x.lock(belay.WorkerID(x.stage.id()), x.id) }},
		{"lock with reopen", func(x *subject) Command {
			return x.lock(belay.WorkerID(x.stage.id()), x.id, func(r *belay.LockRequest) { r.Reopen = true })
		}},
		{"lock under the id of its last owner", func(x *subject) Command { return x.lock(x.owner, x.id) }},
		{"renew by its last lease", func(x *subject) Command {
			x.pass(time.Millisecond)
			return &Renew{Lease: x.lease}
		}},
		{"renew by the secret alone", func(x *subject) Command {
			x.pass(time.Millisecond)
			l := x.lease
			l.Token = 0
			return &Renew{Lease: l}
		}},
		{"signal", func(x *subject) Command { return x.signal(x.id, "go") }},
		{"lose", func(x *subject) Command { return &Lose{x.id, x.lease.Token, x.owner, false, true, false} }},
		{"release", func(x *subject) Command { return &Release{x.id, x.lease.Token, x.owner, 0} }},
		{"tick", func(x *subject) Command { return &Tick{Execution: x.id, Jitter: 0.5} }},
		{"no worker", func(x *subject) Command {
			seq := int64(1)
			if e := x.records[x.id].execution; e != nil {
				seq = e.Seq
			}
			return &NoWorker{x.id, seq}
		}},
		{"no worker, seen before its last change", func(x *subject) Command { return &NoWorker{x.id, 0} }},
		{"forget", func(x *subject) Command { return x.forget() }},
		{"part", func(x *subject) Command { return &Part{x.id, 5} }},
		{"unspend", func(x *subject) Command { return &Unspend{x.id} }},
		{"budget without a budget", func(x *subject) Command {
			return x.act(x.id, belay.ActionBudget, func(c *belay.Control) { c.Budget = nil })
		}},
		{"budget of 0", func(x *subject) Command {
			return x.act(x.id, belay.ActionBudget, func(c *belay.Control) { c.Budget = &belay.Budget{} })
		}},
		{"budget below the cost", func(x *subject) Command {
			return x.act(x.id, belay.ActionBudget, func(c *belay.Control) { c.Budget = &belay.Budget{Cost: 1} })
		}},
		{"cancel child", func(x *subject) Command { return &CancelChild{x.id} }},
		{"settle as failed for good", func(x *subject) Command {
			return x.settle(x.lease, belay.OutcomeFailed, func(s *belay.Settlement) {
				s.Failure = &belay.Failure{Class: belay.ClassPermanent}
			})
		}},
		{"settle as suspended for an hour", func(x *subject) Command {
			return x.settle(x.lease, belay.OutcomeSuspended, func(s *belay.Settlement) { s.Wait = hour })
		}},
		{"requeue with another input", func(x *subject) Command {
			return x.act(x.id, belay.ActionRequeue, func(c *belay.Control) { c.Input = []byte(`{"n":3}`) })
		}},
		{"requeue with a patch of the input", func(x *subject) Command {
			return x.act(x.id, belay.ActionRequeue, func(c *belay.Control) { c.InputPatch = []byte(`{"n":3}`) })
		}},
		{"retry from a step", func(x *subject) Command {
			return x.act(x.id, belay.ActionRetry, func(c *belay.Control) { c.From = "key" })
		}},
		{"discard its dead letter", func(x *subject) Command { return x.edit(belay.DeadLetterDiscard) }},
		{"note on its dead letter", func(x *subject) Command { return x.edit(belay.DeadLetterNoted) }},
		{"control explode", func(x *subject) Command { return x.act(x.id, "explode") }},
	}
	for k := belay.KindStep; !strings.HasPrefix(k.String(), "unknown"); k++ {
		all = append(all, tableCommand{"save " + k.String(), func(x *subject) Command {
			return x.save(x.lease, k, "key")
		}})
	}
	for o := belay.OutcomeSucceeded; !strings.HasPrefix(o.String(), "unknown"); o++ {
		all = append(all, tableCommand{"settle as " + o.String(), func(x *subject) Command {
			return x.settle(x.lease, o, failing)
		}})
	}
	for _, a := range actions {
		all = append(all, tableCommand{"control " + string(a), func(x *subject) Command { return x.act(x.id, a) }})
	}
	return all
}

var actions = []belay.Action{
	belay.ActionCancel, belay.ActionPause, belay.ActionResume, belay.ActionRetry, belay.ActionRequeue, belay.ActionFork,
	belay.ActionSteal, belay.ActionPreempt, belay.ActionQuarantine,
	belay.ActionBudget, belay.ActionDelete,
}

// edit is an action on the newest dead letter of the subject.
func (x *subject) edit(a belay.DeadLetterAction) Command {
	return &EditLetter{belay.DeadLetterChange{Execution: x.id, Action: a, Actor: "ann", Note: "why"}}
}

// resubmit is the submission that made the subject, with another input if one is given.
func (x *subject) resubmit(input string) Command {
	s := belay.Submission{ID: x.id, Workflow: "job", Input: []byte(`{"n":1}`)}
	if input != "" {
		s.Input = []byte(input)
	}
	e := x.records[x.id].execution
	if e == nil {
		return &Submit{Submission: s}
	}
	if e.Policy != nil {
		s.Policy = *e.Policy
	}
	if e.Gates != nil {
		s.Gates = *e.Gates
	}
	if e.Budget != 0 {
		s.Budget = &belay.Budget{Cost: e.Budget}
	}
	if e.Reason == "delayed" {
		s.DueAt = e.DueAt.Time()
	}
	if s.External = e.External; !e.Parent.IsZero() {
		s.Parent, s.ParentKey = &belay.Lease{Execution: e.Parent}, e.Child
	}
	return &Submit{Submission: s}
}

// TestEveryCommandInEverySituation compares the rules with their specification in
// testdata/rules.txt: the effect of each command on an execution in each situation, the rows it
// writes, or why it is refused. A refusal changes nothing. A pair of command and situation that
// is missing in the file fails the test.
func TestEveryCommandInEverySituation(t *testing.T) {
	rules := readRules(t, "testdata/rules.txt")
	for _, d := range tableCommands() {
		t.Run(d.name, func(t *testing.T) {
			block := rules.block(t, d.name)
			for _, at := range situations {
				want, ok := block.find(at.name)
				if !ok {
					t.Errorf("the table has no line for %q and situation %s", d.name, at.name)
					continue
				}
				x := &subject{stage: newStage(t)}
				x.owner, x.other = x.worker("owner"), x.worker("other")
				at.set(x)
				c := d.make(x)
				changes, replies := x.batch(c)
				if got := outcome(x.stage, x.id, changes, replies[0]); got != want {
					t.Errorf("%s\n got %s\nwant %s", at.name, got, want)
				}
			}
			block.unused(t)
		})
	}
	rules.done(t)
}

// TestTheTableIsComplete checks that every command type of the package and every action has a block
// in the table, so that no new command is forgotten.
func TestTheTableIsComplete(t *testing.T) {
	have := make(map[string]bool)
	x := &subject{stage: newStage(t)}
	x.owner, x.other = x.worker("owner"), x.worker("other")
	x.running(belay.Policy{})
	for _, d := range tableCommands() {
		have[strings.TrimPrefix(fmt.Sprintf("%T", d.make(x)), "*machine.")] = true
	}
	for _, d := range sessionCommands {
		have[strings.TrimPrefix(fmt.Sprintf("%T", d.make(x.stage, x.owner)), "*machine.")] = true
	}
	for _, d := range keyCommands {
		have[strings.TrimPrefix(fmt.Sprintf("%T", d.make(belay.KeyID{1})), "*machine.")] = true
	}
	for _, d := range slices.Concat(gateDeals, resourceDeals) {
		have[strings.TrimPrefix(fmt.Sprintf("%T", d.make(x.stage, "limit:x")), "*machine.")] = true
	}
	for _, d := range documentSteps() {
		have[strings.TrimPrefix(fmt.Sprintf("%T", d.c), "*machine.")] = true
	}
	for _, d := range scheduleSteps() {
		have[strings.TrimPrefix(fmt.Sprintf("%T", d.c(x.stage, x.now)), "*machine.")] = true
	}
	for _, d := range hookSteps() {
		have[strings.TrimPrefix(fmt.Sprintf("%T", d.c(x.stage)), "*machine.")] = true
	}
	for _, d := range targetSteps() {
		have[strings.TrimPrefix(fmt.Sprintf("%T", d.c(x.stage)), "*machine.")] = true
	}
	for _, name := range commandTypes(t) {
		if !have[name] {
			t.Errorf("no table has a block for command %s", name)
		}
	}
	if got := len(constants(t, "../../execution.go", "Action")); got != len(actions) {
		t.Errorf("%d actions, of which the table knows %d", got, len(actions))
	}
	for s := belay.Pending; s <= belay.Cancelled; s++ {
		if !slices.ContainsFunc(situations, func(at situation) bool { return at.name == s.String() }) {
			t.Errorf("no situation for state %s", s)
		}
	}
}

// commandTypes lists the types of this package with a method apply.
func commandTypes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, name := range files {
		f, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || fn.Name.Name != "apply" {
				continue
			}
			if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
				found[star.X.(*ast.Ident).Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// constants lists the constants of a type in a file.
func constants(t *testing.T, file, typ string) []string {
	t.Helper()
	f, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == typ {
				names = append(names, v.Names[0].Name)
			}
		}
		return true
	})
	return names
}
