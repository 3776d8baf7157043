package machine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// declaring applies a text that defines triggers to the document d. Each is a key with its terms: sKEY=N is a schedule
// with the priority N, and hKEY=N a webhook with the rate N. The text has the names of the triggers.
func declaring(owned Owned, triggers ...string) *ApplyDocument {
	c := applyText("d", "text "+strings.Join(triggers, " "))
	c.Owned = owned
	for _, text := range triggers {
		var n int
		key, number, _ := strings.Cut(text[1:], "=")
		if _, err := fmt.Sscan(number, &n); err != nil {
			panic(err)
		}
		if text[0] == 's' {
			c.Schedules = append(c.Schedules, putTimes(func(p *belay.SchedulePut) {
				p.Name, p.Actor = belay.TriggerName("d", key), ""
				p.Execution = belay.Submission{Document: "d", Priority: n}
			}))
			continue
		}
		c.Webhooks = append(c.Webhooks, putHook(func(p *belay.WebhookPut) {
			p.Name, p.Actor, p.Rate = belay.TriggerName("d", key), "", n
			p.Execution = belay.Submission{Document: "d"}
		}))
	}
	return c
}

// declared reads the triggers of the document d, as the engine does before it changes the document.
func (s *stage) declared() Owned {
	s.t.Helper()
	o := s.objects[DocumentRef("d")]
	if o == nil {
		return Owned{}
	}
	v, err := DocumentView(o)
	if err != nil {
		s.t.Fatal(err)
	}
	return Owned{v.Schedules, v.Webhooks}
}

// triggers describes all schedules and webhooks: their names, versions and terms, with a ! for those that no document
// defines, and p for those that are paused. It checks that the document and its triggers agree, and the numbers of all.
func (s *stage) triggers() string {
	s.t.Helper()
	var all []string
	owned := s.declared()
	count := total{}
	for ref, o := range s.objects {
		var name, by string
		var version, terms int
		var paused bool
		switch ref.Kind {
		case ScheduleObject:
			v, err := ScheduleView(o)
			if err != nil {
				s.t.Fatal(err)
			}
			name, version, terms = "s:"+v.Name, v.Version, v.Execution.Priority
			paused, by = v.Paused != nil, v.DefinedBy
			if by != "" != slices.Contains(owned.Schedules, v.Name) {
				s.t.Errorf("the schedule %s is defined by %q, and the document has %v", v.Name, by, owned.Schedules)
			}
			count["schedules"]++
		case WebhookObject:
			v, err := WebhookView(o)
			if err != nil {
				s.t.Fatal(err)
			}
			name, version, terms = "h:"+v.Name, v.Version, v.Rate
			paused, by = v.Paused != nil, v.DefinedBy
			if by != "" != slices.Contains(owned.Webhooks, v.Name) {
				s.t.Errorf("the webhook %s is defined by %q, and the document has %v", v.Name, by, owned.Webhooks)
			}
			count["webhooks"]++
		default:
			continue
		}
		text := fmt.Sprintf("%s v%d=%d", name, version, terms)
		if by == "" {
			text += "!"
		}
		if paused {
			text += "p"
		}
		all = append(all, text)
	}
	for _, name := range owned.Schedules {
		if s.objects[ScheduleRef(name)] == nil {
			s.t.Errorf("the schedule %s of the document does not exist", name)
		}
	}
	for _, name := range owned.Webhooks {
		if s.objects[WebhookRef(name)] == nil {
			s.t.Errorf("the webhook %s of the document does not exist", name)
		}
	}
	for name, of := range map[string]codec[total]{"schedules": scheduleCountCodec, "webhooks": webhookCountCodec} {
		n := total{}
		if o := s.objects[of.ref("all")]; o != nil {
			b, err := of.decode(o)
			if err != nil {
				s.t.Fatal(err)
			}
			n = *b
		}
		if n[name] != count[name] {
			s.t.Errorf("%d %s are counted, and there are %d", n[name], name, count[name])
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// declaredStep is a change, and the triggers afterwards. changes are those of the reply.
type declaredStep struct {
	c             func(s *stage) Command
	code          belay.Code // empty if the command is accepted
	want, changes string
}

func declaredSteps() []declaredStep {
	apply := func(triggers ...string) func(*stage) Command {
		return func(s *stage) Command { return declaring(s.declared(), triggers...) }
	}
	stale := func(triggers ...string) func(*stage) Command {
		return func(*stage) Command { return declaring(Owned{}, triggers...) }
	}
	schedule := func(a belay.ScheduleAction) func(*stage) Command {
		return func(*stage) Command {
			return changeTimes(a, func(c *belay.ScheduleChange) { c.Name = "d.a" })
		}
	}
	hook := func(a belay.WebhookAction) func(*stage) Command {
		return func(*stage) Command { return changeHook(a, func(c *belay.WebhookChange) { c.Name = "d.x" }) }
	}
	byHand := func(name string) func(*stage) Command {
		return func(*stage) Command { return putTimes(func(p *belay.SchedulePut) { p.Name = name }) }
	}
	hookByHand := func(name string) func(*stage) Command {
		return func(*stage) Command { return putHook(func(p *belay.WebhookPut) { p.Name, p.Rate = name, 5 }) }
	}
	remove := func(version int) func(*stage) Command {
		return func(s *stage) Command {
			c := changeText(belay.DocumentRemove, "d", version)
			c.Owned = s.declared()
			return c
		}
	}
	unread := func(*stage) Command { return changeText(belay.DocumentRemove, "d", 0) }
	return []declaredStep{
		{byHand("d.b"), "", "s:d.b v1=0!", ""},
		{apply("sa=1", "sb=1"), belay.CodeConflict, "s:d.b v1=0!", ""}, // not taken over
		{apply("sa=1", "hx=7"), "", "h:d.x v1=7 s:d.a v1=1 s:d.b v1=0!", "schedule d.a created, webhook d.x created"},
		{apply("sa=1", "hx=7"), "", "h:d.x v1=7 s:d.a v1=1 s:d.b v1=0!", ""},
		{byHand("d.a"), belay.CodeConflict, "h:d.x v1=7 s:d.a v1=1 s:d.b v1=0!", ""},
		{schedule(belay.ScheduleRemove), belay.CodeConflict, "h:d.x v1=7 s:d.a v1=1 s:d.b v1=0!", ""},
		{hookByHand("d.x"), belay.CodeConflict, "h:d.x v1=7 s:d.a v1=1 s:d.b v1=0!", ""},
		{hook(belay.WebhookRemove), belay.CodeConflict, "h:d.x v1=7 s:d.a v1=1 s:d.b v1=0!", ""},
		{schedule(belay.SchedulePauseAction), "", "h:d.x v1=7 s:d.a v2=1p s:d.b v1=0!", ""},
		{hook(belay.WebhookPauseAction), "", "h:d.x v2=7p s:d.a v2=1p s:d.b v1=0!", ""},
		{apply("sa=1", "hx=7"), "", "h:d.x v2=7p s:d.a v2=1p s:d.b v1=0!", ""},
		{stale("sc=1"), belay.CodeConflict, "h:d.x v2=7p s:d.a v2=1p s:d.b v1=0!", ""},
		{
			apply("sa=2", "hx=8", "sc=1"), "", "h:d.x v3=8p s:d.a v3=2p s:d.b v1=0! s:d.c v1=1",
			"schedule d.a changed, schedule d.c created, webhook d.x changed",
		},
		{schedule(belay.ScheduleResume), "", "h:d.x v3=8p s:d.a v4=2 s:d.b v1=0! s:d.c v1=1", ""},
		{
			apply("sc=1", "hy=9"), "", "h:d.y v1=9 s:d.b v1=0! s:d.c v1=1",
			"webhook d.y created, schedule d.a removed, webhook d.x removed",
		},
		{schedule(belay.SchedulePauseAction), belay.CodeNotFound, "h:d.y v1=9 s:d.b v1=0! s:d.c v1=1", ""},
		{hookByHand("d.x"), "", "h:d.x v1=5! h:d.y v1=9 s:d.b v1=0! s:d.c v1=1", ""},
		{apply("sc=1", "hx=9"), belay.CodeConflict, "h:d.x v1=5! h:d.y v1=9 s:d.b v1=0! s:d.c v1=1", ""},
		// The removal of one version keeps the triggers of the text that was applied last; the text before it, applied
		// again, is no new version, and defines the triggers again.
		{remove(3), "", "h:d.x v1=5! h:d.y v1=9 s:d.b v1=0! s:d.c v1=1", ""},
		{
			apply("sa=2", "hz=8", "sc=1"), "", "h:d.x v1=5! h:d.z v1=8 s:d.a v1=2 s:d.b v1=0! s:d.c v1=1",
			"schedule d.a created, webhook d.z created, webhook d.y removed",
		},
		{unread, belay.CodeConflict, "h:d.x v1=5! h:d.z v1=8 s:d.a v1=2 s:d.b v1=0! s:d.c v1=1", ""},
		{remove(0), "", "h:d.x v1=5! s:d.b v1=0!", ""},
		{apply("sa=1"), "", "h:d.x v1=5! s:d.a v1=1 s:d.b v1=0!", "schedule d.a created"},
		{apply(), "", "h:d.x v1=5! s:d.b v1=0!", "schedule d.a removed"},
	}
}

// Rule: the schedules and webhooks of a document are those of the text that was applied last, created, changed and
// removed in the commit of that text. Nothing is taken over, and only the document changes or removes its own.
func TestADocumentDefinesItsTriggers(t *testing.T) {
	s := newStage(t)
	for i, x := range declaredSteps() {
		s.pass(time.Second)
		c := x.c(s)
		var changes []string
		if x.code == "" {
			for _, t := range s.do(c).Triggers {
				changes = append(changes, fmt.Sprintf("%s %s %s", t.Kind, t.Name, t.Change))
			}
		} else if e := s.refused(c, x.code); strings.Contains(e.Message, "%!") {
			t.Errorf("step %d: %s", i, e.Message)
		}
		if got := s.triggers(); got != x.want {
			t.Fatalf("step %d, %T: %s, want %s", i, c, got, x.want)
		}
		if got := strings.Join(changes, ", "); got != x.changes {
			t.Errorf("step %d: the changes are %q, want %q", i, got, x.changes)
		}
	}
}

// Rule: a text that is applied again is a new version only if it differs from the newest one, even if it changes
// triggers.
func TestTriggersOfAnEqualTextMakeNoVersion(t *testing.T) {
	s := newStage(t)
	s.do(declaring(s.declared(), "sa=1"))
	s.do(declaring(s.declared(), "sa=2"))
	c := changeText(belay.DocumentRemove, "d", 2)
	c.Owned = s.declared()
	s.do(c)
	r := s.do(declaring(s.declared(), "sa=1"))
	if r.Fresh || r.Replayed || r.Document.Version != 1 || len(r.Triggers) != 1 || s.versions("d") != "1 default 1" {
		t.Errorf("%+v, %s", r, s.versions("d"))
	}
	if r := s.do(declaring(s.declared(), "sa=1")); r.Fresh || !r.Replayed || len(r.Triggers) != 0 {
		t.Errorf("%+v", r)
	}
	if r := s.do(declaring(s.declared(), "sa=1", "sb=1")); !r.Fresh || r.Document.Version != 3 {
		t.Errorf("%+v", r)
	}
}

// Rule: an unchanged schedule keeps its slots: its next slot is due as before.
func TestAnUnchangedTriggerKeepsItsSlots(t *testing.T) {
	s := newStage(t)
	s.do(declaring(s.declared(), "sa=1"))
	before := *s.objects[ScheduleRef("d.a")]
	s.pass(2 * time.Minute)
	s.do(declaring(s.declared(), "sa=1", "sb=1"))
	if after := s.objects[ScheduleRef("d.a")]; after.NextAt != before.NextAt || after.Version != before.Version {
		t.Errorf("%+v, before %+v", after, before)
	}
}

// Rule: a repeated apply changes nothing, also after another one.
func TestARepeatedApplyLeavesTheTriggers(t *testing.T) {
	s := newStage(t)
	first := declaring(s.declared(), "sa=1")
	first.Op = belay.OpID{1}
	s.do(first)
	s.do(declaring(s.declared(), "sb=1"))
	again := declaring(s.declared(), "sa=1")
	again.Op = belay.OpID{1}
	if r := s.do(again); !r.Replayed || s.triggers() != "s:d.b v1=1" {
		t.Errorf("%+v, %s", r, s.triggers())
	}
}

// Rule: wrong triggers, and those of another document, are refused before anything is written.
func TestWrongTriggersAreRefused(t *testing.T) {
	s := newStage(t)
	for what, wrong := range map[string]func(*ApplyDocument){
		"the name of another document": func(c *ApplyDocument) { c.Schedules[0].Name = "e.a" },
		"the name of the document":     func(c *ApplyDocument) { c.Schedules[0].Name = "d" },
		"no key":                       func(c *ApplyDocument) { c.Webhooks[0].Name = "d." },
		"another document":             func(c *ApplyDocument) { c.Schedules[0].Execution.Document = "e" },
		"a version of the document":    func(c *ApplyDocument) { c.Schedules[0].Execution.Document = "d@1" },
		"a workflow": func(c *ApplyDocument) {
			c.Webhooks[0].Execution = belay.Submission{Workflow: "w"}
		},
		"wrong times":      func(c *ApplyDocument) { c.Schedules[0].Every = 1 },
		"a wrong scheme":   func(c *ApplyDocument) { c.Webhooks[0].Scheme = "odd" },
		"a schedule twice": func(c *ApplyDocument) { c.Schedules = append(c.Schedules, c.Schedules[0]) },
		"a wrong reason":   func(c *ApplyDocument) { c.Reason = "a\nb" },
		"a signal and an execution": func(c *ApplyDocument) {
			c.Webhooks[0].Signal = &belay.WebhookSignal{Name: "x"}
		},
		"too many schedules":              func(c *ApplyDocument) { c.Schedules = slices.Repeat(c.Schedules, 21) },
		"an id that Belay makes for each": func(c *ApplyDocument) { c.Schedules[0].Execution.IdempotencyKey = "k" },
	} {
		c := declaring(Owned{}, "sa=1", "hx=1")
		wrong(c)
		t.Log(what, s.refused(c, belay.CodeInvalid))
	}
	long := declaring(Owned{}, "s"+strings.Repeat("k", belay.MaxDocumentName)+"=1")
	s.refused(long, belay.CodeInvalid)
	body, err := webhookCountCodec.encode(&total{"webhooks": belay.MaxWebhooks - 1})
	if err != nil {
		t.Fatal(err)
	}
	s.objects[webhookCountRef] = &Object{ObjectRef: webhookCountRef, Version: 1, Body: body}
	s.refused(declaring(Owned{}, "sa=1", "hx=1", "hy=1"), belay.CodeConflict)
}

// Rule: whatever is done in whatever order, in batches of any size and with reads that are out of date, a document and
// its triggers agree, a refused command changes nothing, and what an operator made stays as it was made.
func TestRandomTriggersAgreeWithTheirDocument(t *testing.T) {
	seen := make(map[string]int)
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := newStage(t)
		stale := Owned{}
		for range 80 {
			s.pass(time.Second)
			if r.IntN(3) > 0 {
				stale = s.declared()
			}
			var commands []Command
			for range 1 + r.IntN(3) {
				commands = append(commands, randomTrigger(r, stale))
			}
			made := s.byHand()
			_, replies := s.batch(commands...)
			for i, reply := range replies {
				what := fmt.Sprintf("%T", commands[i])
				if reply.Err != nil {
					what += fmt.Sprintf(" %s", belay.CodeOf(reply.Err))
				}
				if seen[what]++; len(reply.Triggers) > 0 {
					seen["changes"]++
				}
			}
			s.triggers()
			applied := slices.ContainsFunc(commands, func(c Command) bool { _, ok := c.(*ApplyDocument); return ok })
			if after := s.byHand(); applied && len(commands) == 1 && !maps.Equal(made, after) {
				t.Fatalf("seed %d: those of operators were %v and are %v", seed, made, after)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
	t.Log(seen)
	for _, what := range []string{
		"*machine.ApplyDocument", "*machine.ApplyDocument conflict", "*machine.ChangeDocument", "changes",
		"*machine.PutSchedule", "*machine.PutSchedule conflict", "*machine.ChangeSchedule conflict",
		"*machine.PutWebhook conflict", "*machine.ChangeWebhook conflict", "*machine.ChangeDocument conflict",
	} {
		if seen[what] < 10 {
			t.Errorf("%q happened %d times", what, seen[what])
		}
	}
}

// byHand are the schedules and webhooks that no document defines, with their bodies.
func (s *stage) byHand() map[ObjectRef]string {
	all := make(map[ObjectRef]string)
	for ref, o := range s.objects {
		if ref.Kind == ScheduleObject || ref.Kind == WebhookObject {
			if !strings.Contains(string(o.Body), `"document":"d","terms"`) {
				all[ref] = string(o.Body)
			}
		}
	}
	return all
}

// randomTrigger is a random change of the document d or of a schedule or webhook with a name of one of its triggers.
func randomTrigger(r *rand.Rand, owned Owned) Command {
	key := string(rune('a' + r.IntN(4)))
	named := func(p *belay.SchedulePut) { p.Name, p.Execution.Priority = "d."+key, r.IntN(3) }
	switch r.IntN(12) {
	case 0:
		return putTimes(named)
	case 1:
		return putHook(func(p *belay.WebhookPut) { p.Name, p.Rate = "d."+key, 1+r.IntN(3) })
	case 2, 3:
		actions := []belay.ScheduleAction{belay.SchedulePauseAction, belay.ScheduleResume, belay.ScheduleRemove}
		return changeTimes(actions[r.IntN(3)], func(c *belay.ScheduleChange) { c.Name = "d." + key })
	case 4, 5:
		actions := []belay.WebhookAction{belay.WebhookPauseAction, belay.WebhookResume, belay.WebhookRemove}
		return changeHook(actions[r.IntN(3)], func(c *belay.WebhookChange) { c.Name = "d." + key })
	case 6:
		c := changeText(belay.DocumentRemove, "d", r.IntN(3))
		c.Owned = owned
		return c
	}
	var triggers []string
	for _, kind := range []string{"s", "h"} {
		for _, key := range []string{"a", "b", "c", "d"} {
			if r.IntN(3) == 0 {
				triggers = append(triggers, fmt.Sprintf("%s%s=%d", kind, key, 1+r.IntN(2)))
			}
		}
	}
	return declaring(owned, triggers...)
}
