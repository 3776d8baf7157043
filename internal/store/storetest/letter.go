package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// givenUp submits an execution, makes it fail by an operator's order (quarantine), and returns the
// reference of its dead letter.
func (e *env) givenUp(reason string) machine.LetterRef {
	e.Helper()
	id := e.submit()
	e.clock.Advance(time.Second)
	e.ok(&machine.Act{Control: belay.Control{Execution: id, Action: belay.ActionQuarantine, Reason: reason}})
	return machine.LetterRef{Execution: id, Generation: 1}
}

// letters lists dead letters, part by part, with the given number of rows in each part.
func (e *env) letters(q store.LetterQuery, limit int) (all []machine.LetterRef) {
	e.Helper()
	for part := (store.Query{Of: store.Letters, Letters: q, Limit: limit}); ; {
		found := e.query(part)
		if len(found.Letters) > limit {
			e.Errorf("a part has %d dead letters, more than %d", len(found.Letters), limit)
		}
		for _, l := range found.Letters {
			if l.Workflow == "" {
				e.Errorf("the dead letter %+v has no workflow", *l.DeadLetter)
			}
			all = append(all, machine.LetterRef{Execution: l.Execution, Generation: l.Generation})
		}
		if part.After = found.Next; part.After == "" {
			return all
		}
	}
}

var letterCases = []testCase{
	{"dead letters are listed newest first, in parts, and selected", func(e *env) {
		var all []machine.LetterRef
		for _, reason := range []string{"a", "b", "a", "c", "a"} {
			all = append(all, e.givenUp(reason))
		}
		e.control(all[1].Execution, belay.ActionRetry)
		e.clock.Advance(time.Second)
		e.control(all[1].Execution, belay.ActionQuarantine)
		again := machine.LetterRef{Execution: all[1].Execution, Generation: 2}
		newest := append(slices.Clone(all), again)
		slices.Reverse(newest)
		open := slices.DeleteFunc(slices.Clone(newest), func(r machine.LetterRef) bool { return r == all[1] })
		for _, limit := range []int{1, 2, 3, 6, 100} {
			e.same("all", newest, e.letters(store.LetterQuery{}, limit))
			e.same("open", open, e.letters(store.LetterQuery{Open: true}, limit))
			e.same("scanned one by one", newest, e.letters(store.LetterQuery{
				Newest: store.Newest[store.Letter]{Scan: 1, Matches: func(store.Letter) bool { return true }},
			}, limit))
			e.same("one execution", []machine.LetterRef{again, all[1]},
				e.letters(store.LetterQuery{Execution: again.Execution}, limit))
			e.same("matching", []machine.LetterRef{all[4], all[2], all[0]}, e.letters(store.LetterQuery{
				Newest: store.Newest[store.Letter]{Matches: func(l store.Letter) bool {
					return strings.HasSuffix(l.Message, ": a")
				}},
			}, limit))
		}
		one := store.LetterQuery{Execution: all[2].Execution}
		at := e.query(store.Query{Of: store.Letters, Letters: one}).Letters[0].At
		e.same("older", []machine.LetterRef{all[1], all[0]}, e.letters(store.LetterQuery{
			Newest: store.Newest[store.Letter]{Before: at},
		}, 100))
		e.same("not older", newest[:4], e.letters(store.LetterQuery{
			Newest: store.Newest[store.Letter]{Since: at},
		}, 100))
		for _, cursor := range []string{"x", "1/2", "1/ex_0/1", "1/" + all[0].Execution.String() + "/x", "a/b/c/d"} {
			_, err := e.store.Query(e.Context(), store.Query{Of: store.Letters, After: cursor})
			if belay.CodeOf(err) != belay.CodeInvalid {
				e.Errorf("cursor %q: %v", cursor, err)
			}
		}
	}},
	{"a dead letter is loaded with its notes, by its generation or as the newest", func(e *env) {
		ref := e.givenUp("why")
		e.ok(&machine.EditLetter{DeadLetterChange: belay.DeadLetterChange{
			Execution: ref.Execution, Action: belay.DeadLetterNoted, Actor: "ann", Note: "one\ntwo \"'\u2028",
			Op: e.id(),
		}})
		e.control(ref.Execution, belay.ActionRetry)
		e.clock.Advance(time.Second)
		e.control(ref.Execution, belay.ActionQuarantine)
		need := func(generations ...int) (found []*machine.DeadLetter) {
			n := machine.Need{Executions: []belay.ExecutionID{ref.Execution}}
			for _, g := range generations {
				n.Letters = append(n.Letters, machine.LetterRef{Execution: ref.Execution, Generation: g})
			}
			return e.rows(n).Letters
		}
		first := need(1)
		if len(first) != 1 {
			e.Fatalf("%d dead letters of generation 1", len(first))
		}
		if first[0].Resolution != belay.ResolvedRetried || len(first[0].Notes) == 0 ||
			first[0].Notes[0].Text != "one\ntwo \"'\u2028" || first[0].Notes[0].By != "ann" || first[0].New {
			e.Fatalf("the first dead letter: %+v", *first[0])
		}
		if newest := need(0); len(newest) != 1 || newest[0].Generation != 2 || newest[0].Resolution != "" {
			e.Errorf("the newest: %+v", newest)
		}
		if twice := need(2, 0, 2, 1); len(twice) != 2 {
			e.Errorf("%d dead letters were loaded for two", len(twice))
		}
		if none := need(3); len(none) != 0 {
			e.Errorf("generation 3: %+v", none)
		}
		found := e.query(store.Query{Of: store.Letters, Letters: store.LetterQuery{Execution: ref.Execution}}).Letters
		e.same("in a list", first[0], found[1].DeadLetter)
	}},
	{"an open dead letter outlives the retention of its tree", func(e *env) {
		open, discarded := e.givenUp("open"), e.givenUp("discarded")
		discard := func(ref machine.LetterRef) {
			e.ok(&machine.EditLetter{DeadLetterChange: belay.DeadLetterChange{
				Execution: ref.Execution, Action: belay.DeadLetterDiscard,
			}})
		}
		discard(discarded)
		e.clock.Advance(time.Hour)
		prune := func(letters machine.Time) int {
			p, err := e.store.Prune(e.Context(), store.Retention{Before: e.now(), Letters: letters}, 0)
			if err != nil {
				e.Fatal(err)
			}
			return p.Executions
		}
		if n := prune(0); n != 1 {
			e.Errorf("%d executions deleted, want the one whose dead letter is resolved", n)
		}
		e.same("left", []belay.ExecutionID{open.Execution}, e.list(store.List{}))
		if n := prune(e.now().Add(-2 * time.Hour)); n != 0 {
			e.Errorf("%d executions deleted before the retention of dead letters was over", n)
		}
		kept := e.givenUp("younger than the retention of dead letters")
		e.clock.Advance(time.Second)
		if n := prune(e.now().Add(-time.Minute)); n != 1 {
			e.Errorf("%d executions deleted, want the one whose dead letter is old", n)
		}
		e.same("left", []belay.ExecutionID{kept.Execution}, e.list(store.List{}))
		discard(kept)
		if n := prune(0); n != 1 {
			e.Errorf("%d executions deleted after the dead letter was resolved", n)
		}
	}},
}
