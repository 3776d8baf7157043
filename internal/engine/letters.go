package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

const (
	// lettersScanned is the largest number of dead letters that one call examines.
	lettersScanned = 10_000
	// lettersAtOnce is the largest number of dead letters that the store reads in one step of a search, because
	// PostgreSQL reads all of them, even if the first ones fill the page.
	lettersAtOnce = 1000
	// lettersBytes is the approximate largest size of a page.
	lettersBytes = 1 << 20
	// letterGroups is the largest number of groups that one call returns. letterNames is the largest
	// number of failed children, and of other dead letters of the execution, that one call returns.
	letterGroups = 1000
	letterNames  = 20
	// letterRuns is how many of the newest runs are searched for the stack trace of the failed run.
	letterRuns = 20
)

// ChangeDeadLetter resolves a dead letter, or adds a note to it.
func (e *Engine) ChangeDeadLetter(ctx context.Context, c belay.DeadLetterChange) (belay.DeadLetter, error) {
	r, err := e.do(ctx, &machine.EditLetter{DeadLetterChange: c})
	if err != nil {
		return belay.DeadLetter{}, err
	}
	rec, err := e.store.Read(ctx, store.Read{Execution: c.Execution})
	if err != nil {
		return belay.DeadLetter{}, err
	}
	return machine.LetterView(r.Letter, rec.Execution.Workflow), nil
}

// DeadLetters lists dead letters, the newest first.
func (r *Reader) DeadLetters(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterPage, error) {
	page := belay.DeadLetterPage{DeadLetters: []belay.DeadLetter{}}
	q, err := letterQuery(f)
	if err != nil {
		return page, err
	}
	rows, _ := q.Bounds()
	q.Limit, q.Bytes = int(rows), lettersBytes
	for left := lettersScanned; ; {
		q.Letters.Scan = min(left, lettersAtOnce)
		found, err := r.store.Query(ctx, q)
		if err != nil {
			return page, err
		}
		for _, l := range found.Letters {
			page.DeadLetters = append(page.DeadLetters, machine.LetterView(l.DeadLetter, l.Workflow))
			q.Bytes -= len(l.Message) + len(l.Workflow) + store.RowBytes
		}
		page.Next, q.After = found.Next, found.Next
		q.Limit, left = q.Limit-len(found.Letters), left-found.Examined
		if q.After == "" || found.Examined < q.Letters.Scan || q.Limit <= 0 || q.Bytes <= 0 || left <= 0 {
			return page, nil
		}
	}
}

// DeadLetterGroups counts dead letters by their fingerprints.
func (r *Reader) DeadLetterGroups(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterGroups, error) {
	out := belay.DeadLetterGroups{Groups: []belay.DeadLetterGroup{}}
	f.Limit = 1000
	q, err := letterQuery(f)
	if err != nil {
		return out, err
	}
	groups, prints := make(map[string]*belay.DeadLetterGroup), make(fingerprints)
	for {
		q.Letters.Scan = min(lettersAtOnce, lettersScanned-out.Examined)
		found, err := r.store.Query(ctx, q)
		if err != nil {
			return out, err
		}
		out.Examined += found.Examined
		for _, l := range found.Letters {
			countLetter(groups, prints.of(l), l)
		}
		if q.After = found.Next; q.After == "" || out.Examined >= lettersScanned {
			break
		}
	}
	out.More = q.After != ""
	for _, g := range groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b belay.DeadLetterGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	out.Groups = out.Groups[:min(len(out.Groups), letterGroups)]
	return out, nil
}

// countLetter adds a dead letter to its group. The dead letters come from the newest to the oldest.
func countLetter(groups map[string]*belay.DeadLetterGroup, fingerprint string, l store.Letter) {
	g := groups[fingerprint]
	if g == nil {
		g = &belay.DeadLetterGroup{
			Fingerprint: fingerprint, Workflow: l.Workflow, Reason: l.Reason, Class: l.Class, Last: l.At.Time(),
			Message: l.Message, Newest: l.Execution,
		}
		groups[fingerprint] = g
	}
	g.Count++
	g.First = l.At.Time()
}

// fingerprints remembers the fingerprints of one call, because many dead letters have the same message and a
// fingerprint takes longer than the rest of a dead letter.
type fingerprints map[printed]string

// printed has everything on which a fingerprint depends.
type printed struct {
	workflow, reason, message string
	class                     belay.Class
}

func (p fingerprints) of(l store.Letter) string {
	key := printed{l.Workflow, l.Reason, l.Message, l.Class}
	text, ok := p[key]
	if !ok {
		text = machine.Fingerprint(l.DeadLetter, l.Workflow)
		p[key] = text
	}
	return text
}

// DeadLetter reads the dead letter of a generation of an execution, with everything that a person
// needs to repair the execution. Generation 0 means the newest dead letter.
func (r *Reader) DeadLetter(ctx context.Context, id belay.ExecutionID, generation int) (belay.DeadLetterDetail, error) {
	var out belay.DeadLetterDetail
	found, err := r.store.Query(ctx, store.Query{
		Of: store.Letters, Letters: store.LetterQuery{Execution: id}, Limit: 1000,
	})
	if err != nil {
		return out, err
	}
	var named *store.Letter
	for i := range found.Letters {
		l := &found.Letters[i]
		switch {
		case named == nil && (generation == 0 || l.Generation == generation):
			named = l
		case len(out.Others) < letterNames:
			out.Others = append(out.Others, machine.LetterView(l.DeadLetter, l.Workflow))
		}
	}
	if named == nil {
		return out, machine.NoLetter("read dead letter", id, generation)
	}
	out.DeadLetter = machine.LetterView(named.DeadLetter, named.Workflow)
	rec, err := r.store.Read(ctx, store.Read{
		Execution: id, Spec: true, Generation: named.Generation, Data: true, Runs: letterRuns,
	})
	if err != nil {
		return out, err
	}
	v := machine.View(rec)
	out.State, out.Current, out.Input, out.Labels, out.Queue = v.State, v.Generation, v.Input, v.Labels, v.Queue
	out.Policy, out.Attempts = v.Policy, rec.Execution.Attempts
	for _, run := range rec.Runs {
		if run.Token == named.Token {
			out.Stack = run.Stack
		}
	}
	out.Tasks, err = r.failedTasks(ctx, id)
	return out, err
}

// failedTasks lists failed children of an execution, the newest first.
func (r *Reader) failedTasks(ctx context.Context, id belay.ExecutionID) ([]belay.FailedTask, error) {
	list, err := r.store.List(ctx, store.List{
		Parent: id, Children: true, States: []belay.State{belay.Failed}, Limit: letterNames, Scan: scan,
	})
	if err != nil {
		return nil, err
	}
	var all []belay.FailedTask
	for _, c := range list.Records {
		e := c.Execution
		all = append(all, belay.FailedTask{
			Execution: e.ID, Key: e.Child, Workflow: e.Workflow, Class: e.Class, Message: e.Message,
		})
	}
	return all, nil
}

// letterQuery converts a filter for the store, and refuses words that it does not know.
func letterQuery(f belay.DeadLetterFilter) (store.Query, error) {
	if err := machine.CheckLetterFilter("list dead letters", f); err != nil {
		return store.Query{}, err
	}
	text := strings.ToLower(f.Text)
	q := store.Query{
		Of: store.Letters, After: f.Cursor, Limit: f.Limit, Letters: store.LetterQuery{
			Open: f.Resolution == "" || f.Resolution == "open",
			Newest: store.Newest[store.Letter]{
				Before: machine.At(f.Until), Since: machine.At(f.Since), Scan: lettersScanned,
			},
		},
	}
	if f.Reason == "" && f.Workflow == "" && f.Class == 0 && f.Fingerprint == "" && f.Text == "" &&
		(q.Letters.Open || f.Resolution == "all") {
		return q, nil
	}
	prints := make(fingerprints)
	q.Letters.Matches = func(l store.Letter) bool {
		return (f.Reason == "" || l.Reason == f.Reason) && (f.Workflow == "" || l.Workflow == f.Workflow) &&
			(f.Class == 0 || l.Class == f.Class) && resolutionFits(f.Resolution, l.Resolution) &&
			(text == "" || strings.Contains(strings.ToLower(l.Message), text)) &&
			(f.Fingerprint == "" || prints.of(l) == f.Fingerprint)
	}
	return q, nil
}

func resolutionFits(want, is string) bool {
	switch want {
	case "", "open":
		return is == ""
	case "resolved":
		return is != ""
	case "all":
		return true
	}
	return is == want
}
