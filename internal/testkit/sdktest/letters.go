package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// hurt is a workflow that fails without a retry unless N in its input is above 1.
func hurt(_ context.Context, in struct{ N int }) (int, error) {
	if in.N <= 1 {
		return 0, belay.Permanent(fmt.Errorf("order %d has no address", 4711))
	}
	return in.N, nil
}

// letter reads the newest dead letter of an execution.
func (e *env) letter(id belay.ExecutionID) belay.DeadLetterDetail {
	e.Helper()
	d, err := e.b.DeadLetter(e.ctx, id, 0)
	if err != nil {
		e.Fatal(err)
	}
	return d
}

var letters = []testCase{
	{"a dead letter is read, repaired with a patch and resolved once", func(e *env) {
		e.hire(register("w", hurt))
		id := e.start(map[string]any{"N": 1, "URL": "x"})
		e.wantState(id, belay.Failed)
		d := e.letter(id)
		var input map[string]any
		if err := json.Unmarshal(d.Input, &input); err != nil || input["N"] != 1.0 || input["URL"] != "x" {
			e.Errorf("input %s (%v)", d.Input, err)
		}
		if d.Generation != 1 || d.Reason != "permanent_error" || d.Class != belay.ClassPermanent ||
			!strings.Contains(d.Message, "no address") || d.Run.IsZero() || d.Resolution != "" || d.Workflow != "w" {
			e.Errorf("%+v", d)
		}
		page, err := e.b.DeadLetters(e.ctx, belay.DeadLetterFilter{Workflow: "w", Text: "NO ADDRESS"})
		if err != nil || len(page.DeadLetters) != 1 || page.DeadLetters[0].Execution != id {
			e.Errorf("%+v, %v", page, err)
		}
		note := belay.DeadLetterChange{
			Execution: id, Action: belay.DeadLetterNoted, Actor: "ann", Note: "asked\nthem", Op: belay.OpID{1},
		}
		for range 2 {
			if l, err := e.b.ChangeDeadLetter(e.ctx, note); err != nil || len(l.Notes) != 1 {
				e.Errorf("%+v, %v", l, err)
			}
		}
		requeue := belay.Control{
			Execution: id, Action: belay.ActionRequeue, Actor: "ann", Reason: "fixed", Generation: 1,
			InputPatch: json.RawMessage(`{"N": 2, "URL": null}`), Op: belay.OpID{2},
		}
		x, err := e.b.Control(e.ctx, requeue)
		if err != nil || x.Generation != 2 {
			e.Fatalf("%+v, %v", x, err)
		}
		want(e, id, 2)
		if d = e.letter(id); d.Resolution != belay.ResolvedRequeued || d.ResolvedBy != "ann" || len(d.Notes) != 2 ||
			d.State != belay.Succeeded || d.Current != 2 {
			e.Errorf("%+v", d)
		}
		if _, err := e.b.Control(e.ctx, requeue); err != nil {
			e.Errorf("repeated: %v", err)
		}
		_, err = e.b.ChangeDeadLetter(e.ctx, belay.DeadLetterChange{Execution: id, Action: belay.DeadLetterDiscard})
		if belay.CodeOf(err) != belay.CodeConflict || !strings.Contains(err.Error(), "requeued by ann") {
			e.Errorf("a second resolution: %v", err)
		}
	}},

	{"dead letters are counted by their errors, and selected", func(e *env) {
		e.hire(register("w", func(_ context.Context, n int) (int, error) {
			return 0, belay.Permanent(errors.New([]string{
				`order 17 of "ann" is closed`, `order 4711 of "bob" is closed`, "the disk is full",
			}[n]))
		}))
		var ids []belay.ExecutionID
		for n := range 3 {
			ids = append(ids, e.start(n))
			e.wantState(ids[n], belay.Failed)
			e.sleep(time.Second)
		}
		g, err := e.b.DeadLetterGroups(e.ctx, belay.DeadLetterFilter{})
		if err != nil || len(g.Groups) != 2 || g.Examined != 3 || g.More {
			e.Fatalf("%+v, %v", g, err)
		}
		if closed := g.Groups[0]; closed.Count != 2 || closed.Newest != ids[1] || !closed.First.Before(closed.Last) {
			e.Errorf("%+v", closed)
		}
		fix := belay.DeadLetterChange{Execution: ids[0], Action: belay.DeadLetterFix, Note: "x"}
		_, err = e.b.ChangeDeadLetter(e.ctx, fix)
		if err != nil {
			e.Fatal(err)
		}
		last := e.letter(ids[2])
		for name, c := range map[string]struct {
			f    belay.DeadLetterFilter
			want []belay.ExecutionID
		}{
			"open":        {belay.DeadLetterFilter{}, []belay.ExecutionID{ids[2], ids[1]}},
			"fixed":       {belay.DeadLetterFilter{Resolution: belay.ResolvedFixed}, ids[:1]},
			"resolved":    {belay.DeadLetterFilter{Resolution: "resolved"}, ids[:1]},
			"all":         {belay.DeadLetterFilter{Resolution: "all"}, []belay.ExecutionID{ids[2], ids[1], ids[0]}},
			"fingerprint": {belay.DeadLetterFilter{Fingerprint: g.Groups[0].Fingerprint}, ids[1:2]},
			"class":       {belay.DeadLetterFilter{Class: belay.ClassTimeout}, nil},
			"reason":      {belay.DeadLetterFilter{Reason: "lost"}, nil},
			"workflow":    {belay.DeadLetterFilter{Workflow: "v"}, nil},
			"since":       {belay.DeadLetterFilter{Since: last.At}, ids[2:]},
			"until":       {belay.DeadLetterFilter{Until: last.At}, ids[1:2]},
			"paged":       {belay.DeadLetterFilter{Limit: 1}, ids[2:]},
		} {
			page, err := e.b.DeadLetters(e.ctx, c.f)
			var got []belay.ExecutionID
			for _, l := range page.DeadLetters {
				got = append(got, l.Execution)
			}
			if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
				e.Errorf("%s: %v, want %v (%v)", name, got, c.want, err)
			}
		}
		for _, f := range []belay.DeadLetterFilter{{Resolution: "x"}, {Reason: "x"}, {Cursor: "x"}, {Text: "\x00"}} {
			if _, err := e.b.DeadLetters(e.ctx, f); belay.CodeOf(err) != belay.CodeInvalid {
				e.Errorf("%+v: %v", f, err)
			}
		}
	}},

	{"an operator gives an execution up", func(e *env) {
		id := e.start(1)
		x, err := e.b.Control(e.ctx, belay.Control{
			Execution: id, Action: belay.ActionQuarantine, Actor: "ann", Reason: "poison",
		})
		if err != nil || x.State != belay.Failed {
			e.Fatalf("%+v, %v", x, err)
		}
		if d := e.letter(id); d.Reason != "manual" || !strings.Contains(d.Message, "ann: poison") || !d.Run.IsZero() {
			e.Errorf("%+v", d)
		}
		if _, err := e.b.DeadLetter(e.ctx, id, 2); belay.CodeOf(err) != belay.CodeNotFound {
			e.Errorf("generation 2: %v", err)
		}
		e.hire(register("w", func(_ context.Context, n int) (int, error) { return n, nil }))
		if _, err = e.b.Control(e.ctx, belay.Control{Execution: id, Action: belay.ActionRetry}); err != nil {
			e.Fatal(err)
		}
		want(e, id, 1)
	}},
}
