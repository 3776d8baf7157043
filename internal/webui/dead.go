package webui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const (
	mostGroups  = 100 // groups of dead letters on one page
	lettersSize = 50  // dead letters on one page
)

// deadPage is the page of the groups of dead letters.
type deadPage struct {
	Chosen   string // the resolution whose dead letters the page counts
	Choices  []navLink
	Workflow string // counts only dead letters of this workflow; empty for all
	Clear    string // the address without the workflow
	Groups   []deadGroup
	Sum      string
	Offers   []offer
	More     string // which groups or dead letters the page lacks; empty if it lacks none
}

// deadGroup is a row: dead letters with the same fingerprint.
type deadGroup struct {
	Workflow, Reason, Message string
	Count                     int
	First, Last               *moment
	Newest                    exLink
	Address                   string // the list of its dead letters
}

// letterPage is the page of the dead letters of one group.
type letterPage struct {
	Chosen, Fingerprint string
	Head                *deadGroup // from its newest dead letter on this page; nil if the page is empty
	Sum                 string     // how many dead letters the group has; empty if the page is empty
	Choices             []navLink
	Rows                []letterRow
	Up                  string
	Offers              []offer
	Pager               pager
}

// letterRow is one dead letter.
type letterRow struct {
	Execution  exLink
	Generation int
	At         *moment
	Message    string
	Facts      []string
	Offers     []offer
}

func (p *pages) dead(ctx context.Context, r *http.Request) (view, error) {
	q := chosen(r.URL.Query(), "resolution", "workflow", "fingerprint", "cursor")
	f := belay.DeadLetterFilter{
		Resolution: q.Get("resolution"), Workflow: q.Get("workflow"), Fingerprint: q.Get("fingerprint"),
		Cursor: q.Get("cursor"), Limit: lettersSize,
	}
	if f.Resolution == "" {
		f.Resolution = "open"
	}
	if !slices.Contains(belay.DeadLetterWords, f.Resolution) {
		return view{}, &belay.Error{Code: belay.CodeMalformed, Message: "no dead letters are called " +
			strconv.Quote(excerpt(f.Resolution, 60))}
	}
	if f.Fingerprint != "" {
		return p.letters(ctx, q, f)
	}
	found, err := p.backend.DeadLetterGroups(ctx, f)
	if err != nil {
		return view{}, err
	}
	d := deadPage{Chosen: f.Resolution, Workflow: excerpt(f.Workflow, maxLine), Choices: resolutions(q, f.Resolution),
		Clear: addressOf("/dead", q, "workflow", "")}
	now, letters := p.options.Now(), 0
	for i := range found.Groups {
		g := &found.Groups[i]
		letters += g.Count
		if i < mostGroups {
			d.Groups = append(d.Groups, groupOf(g, q, now))
		}
	}
	if f.Resolution == "open" && len(d.Groups) > 0 {
		d.Offers = letterBulks(ctx, q)
	}
	d.Sum = several(letters, "dead letter") + " in " + several(len(found.Groups), "group")
	if n := len(found.Groups) - mostGroups; n > 0 {
		d.More = several(n, "smaller group") + " " + isOrAre(n) + " not shown."
	}
	if found.More {
		d.More += fmt.Sprintf(" Only the newest %d dead letters were counted.", found.Examined)
	}
	return view{template: "dead", Title: "Dead letters", Page: d}, nil
}

// resolutions returns the links that choose which dead letters a page shows.
func resolutions(q url.Values, current string) []navLink {
	var all []navLink
	for _, word := range []string{"open", "resolved", "all"} {
		value := word
		if word == "open" {
			value = ""
		}
		rest := chosen(q, "workflow", "fingerprint")
		all = append(all, navLink{
			Name: word, Address: addressOf("/dead", rest, "resolution", value), Current: word == current,
		})
	}
	return all
}

func groupOf(g *belay.DeadLetterGroup, q url.Values, now time.Time) deadGroup {
	return deadGroup{
		Workflow: excerpt(g.Workflow, maxLine), Reason: reasonWords(g.Reason),
		Message: line(g.Message), Count: g.Count, First: when(g.First, now), Last: when(g.Last, now),
		Newest:  linkTo(g.Newest, shortID(g.Newest)),
		Address: addressOf("/dead", chosen(q, "resolution"), "fingerprint", g.Fingerprint),
	}
}

// reasonWords returns the reason of a dead letter in words.
func reasonWords(reason string) string { return strings.ReplaceAll(excerpt(reason, 60), "_", " ") }

// letters makes the page of one group.
func (p *pages) letters(ctx context.Context, q url.Values, f belay.DeadLetterFilter) (view, error) {
	found, err := p.backend.DeadLetters(ctx, f)
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	d := letterPage{
		Chosen: f.Resolution, Fingerprint: excerpt(f.Fingerprint, 80), Choices: resolutions(q, f.Resolution),
		Up: addressOf("/dead", chosen(q, "resolution"), "resolution", q.Get("resolution")),
	}
	d.Pager = pagerOf("/dead", q, found.Next)
	for i := range found.DeadLetters[:min(len(found.DeadLetters), lettersSize)] {
		l := &found.DeadLetters[i]
		if d.Head == nil {
			d.Head = &deadGroup{
				Workflow: excerpt(l.Workflow, maxLine), Reason: reasonWords(l.Reason), Message: excerpt(l.Message, 600),
			}
			if d.Sum, err = p.groupSum(ctx, f, l.Workflow, &found); err != nil {
				return view{}, err
			}
		}
		row := letterRowOf(l, now)
		if l.Resolution == "" {
			row.Offers = letterOffers(ctx, l)
		}
		d.Rows = append(d.Rows, row)
	}
	if f.Resolution == "open" && len(d.Rows) > 0 {
		d.Offers = append(letterBulks(ctx, q), deedsOn(ctx, ofGroup, f.Fingerprint, "note")...)
	}
	return view{template: "letters", Title: "Dead letters", Page: d}, nil
}

// groupSum says how many dead letters of a group there are. Those of a group with several pages are counted, as on the
// page of all groups.
func (p *pages) groupSum(
	ctx context.Context, f belay.DeadLetterFilter, workflow string, page *belay.DeadLetterPage,
) (string, error) {
	n, atLeast := len(page.DeadLetters), ""
	if f.Cursor != "" || page.Next != "" {
		f.Cursor, f.Workflow = "", workflow
		found, err := p.backend.DeadLetterGroups(ctx, f)
		if err != nil || len(found.Groups) == 0 {
			return "", err
		}
		if n = found.Groups[0].Count; found.More {
			atLeast = "at least "
		}
	}
	noun := "dead letter"
	if f.Resolution != "all" {
		noun = f.Resolution + " dead letter"
	}
	return atLeast + several(n, noun), nil
}

// mostLetterNotes is how many notes about a dead letter the page of an execution shows, the newest.
const mostLetterNotes = 20

// ownLetter is the dead letter that the last failure of an execution has left.
type ownLetter struct {
	State  string // open, or how it was resolved, by whom and when
	Group  string // the address of the dead letters with the same error
	Notes  []string
	Older  string // how many older notes there are
	Offers []offer
}

// letter reads the dead letter of an execution that has failed; nil if it has left none.
func (p *pages) letter(ctx context.Context, e *belay.Execution, now time.Time) (*ownLetter, error) {
	if e.State != belay.Failed {
		return nil, nil
	}
	found, err := p.backend.DeadLetter(ctx, e.ID, e.Generation)
	switch {
	case belay.CodeOf(err) == belay.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	l := &found.DeadLetter
	own := &ownLetter{State: "open", Group: addressOf("/dead", url.Values{}, "fingerprint", l.Fingerprint)}
	if l.Resolution != "" {
		own.State = byOperator(l.Resolution+" "+when(l.ResolvedAt, now).ago(), l.ResolvedBy, "")
		own.Group = addressOf("/dead", url.Values{"resolution": {"resolved"}}, "fingerprint", l.Fingerprint)
	}
	older := max(0, len(l.Notes)-mostLetterNotes)
	for _, n := range l.Notes[older:] {
		own.Notes = append(own.Notes, byOperator("noted "+when(n.At, now).ago(), n.By, n.Text))
	}
	if older > 0 {
		own.Older = several(older, "earlier note")
	}
	if l.Resolution == "" {
		id := l.Execution.String() + "." + strconv.Itoa(l.Generation)
		own.Offers = deedsOn(ctx, ofLetter, id, "fix", "discard", "note")
		for i := range own.Offers {
			own.Offers[i].Address += "&" + url.Values{"back": {e.ID.String()}}.Encode()
		}
	}
	return own, nil
}

// letterOffers returns the actions on an open dead letter: to run the execution again, or to resolve the letter.
func letterOffers(ctx context.Context, l *belay.DeadLetter) []offer {
	var all []offer
	if visitorOf(ctx).allows(belay.ScopeOperate) {
		at := "/executions/" + l.Execution.String() + "/"
		all = []offer{{at + "retry", "Retry", false}, {at + "requeue", "Run with another input", false}}
	}
	id := l.Execution.String() + "." + strconv.Itoa(l.Generation)
	return append(all, deedsOn(ctx, ofLetter, id, "fix", "discard", "note")...)
}

func letterRowOf(l *belay.DeadLetter, now time.Time) letterRow {
	row := letterRow{
		Execution: linkTo(l.Execution, shortID(l.Execution)), Generation: l.Generation, At: when(l.At, now),
		Message: excerpt(l.Message, 600),
	}
	if l.FailedBy != 0 {
		row.Facts = append(row.Facts, "ended by the "+l.FailedBy.String())
	}
	if n := len(l.Notes); n > 0 {
		note := &l.Notes[n-1]
		row.Facts = append(row.Facts, byOperator("noted", note.By, note.Text))
		if n > 1 {
			row.Facts = append(row.Facts, several(n-1, "earlier note"))
		}
	}
	if l.Resolution != "" {
		row.Facts = append(row.Facts, byOperator(l.Resolution+" "+when(l.ResolvedAt, now).ago(), l.ResolvedBy, ""))
	}
	return row
}

// ago returns the time for people; empty for no time.
func (m *moment) ago() string {
	if m == nil {
		return ""
	}
	return m.Ago
}
