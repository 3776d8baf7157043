package webui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/diff"
)

const (
	documentsSize = 50 // documents on one page
	mostVersions  = 50 // the newest versions on the page of a document
)

// documentList is the page of the stored documents.
type documentList struct {
	Rows  []documentRow
	Pager pager
}

// documentRow is a stored document, or one version of it.
type documentRow struct {
	Name, Address  string
	Version, Count int
	State          state
	About          []string
	At             *moment
	By             string
	Size           string
	Current        bool // the version that the page shows
}

// documentPage is the page of one version of a document.
type documentPage struct {
	Name                string
	Version             documentRow
	Default             int
	Versions            []documentRow
	More                string
	Schedules, Webhooks []string
	Graph               *graph
	Text                *payload
	Before              int       // the version before, with which Changes compares; 0 if there is none
	Changes             *diffView // nil if the texts are equal
	Runs                string    // the address of the executions of this document
	Offers              []offer
}

func (p *pages) documents(ctx context.Context, r *http.Request) (view, error) {
	q := chosen(r.URL.Query(), "cursor")
	found, err := p.backend.Documents(ctx, belay.DocumentFilter{Cursor: q.Get("cursor"), Limit: documentsSize})
	if err != nil {
		return view{}, err
	}
	d, now := documentList{Pager: pagerOf("/workflows", q, found.Next)}, p.options.Now()
	for i := range found.Documents[:min(len(found.Documents), documentsSize)] {
		info := &found.Documents[i]
		row := versionRowOf(&info.Newest, info.Default, now)
		row.Address, row.Count = "/workflows/"+info.Name, info.Count
		if info.Default != info.Newest.Version && info.Default > 0 {
			row.About = append(row.About, fmt.Sprintf("submissions get version %d", info.Default))
		}
		d.Rows = append(d.Rows, row)
	}
	return view{template: "documents", Title: "Workflows", Page: d}, nil
}

func versionRowOf(v *belay.DocumentVersion, standard int, now time.Time) documentRow {
	row := documentRow{
		Name: excerpt(v.Name, maxLine), Version: v.Version, At: when(v.CreatedAt, now), By: line(v.CreatedBy),
		Size:    bytesOf(v.Size),
		Address: addressOf("/workflows/"+v.Name, url.Values{}, "version", strconv.Itoa(v.Version)),
	}
	switch d := v.Deprecated; {
	case d != nil:
		row.State = state{"deprecated", "hold"}
		row.About = append(row.About, byOperator("for "+short(now.Sub(d.At)), d.By, d.Reason))
	case v.Version == standard:
		row.State = state{"current", "good"}
	default:
		row.State = state{"older", ""}
	}
	return row
}

func (p *pages) document(ctx context.Context, r *http.Request) (view, error) {
	name := r.PathValue("name")
	if err := belay.CheckDocumentName("document", name); err != nil {
		return view{}, &belay.Error{Code: belay.CodeNotFound, Message: "No document can have this name."}
	}
	all, err := p.backend.DocumentVersions(ctx, name)
	if err != nil {
		return view{}, err
	}
	version := cmp.Or(all.Default, newestOf(all.Versions))
	if text := r.URL.Query().Get("version"); text != "" {
		if version, err = strconv.Atoi(text); err != nil || version < 1 {
			return view{}, &belay.Error{Code: belay.CodeMalformed, Message: "A version is a number from 1."}
		}
	}
	doc, err := p.backend.Document(ctx, name, version)
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	d := documentPage{
		Name: excerpt(name, maxLine), Version: versionRowOf(&doc.DocumentVersion, all.Default, now),
		Default:   all.Default,
		Schedules: all.Schedules[:min(len(all.Schedules), belay.MaxDocumentTriggers)],
		Webhooks:  all.Webhooks[:min(len(all.Webhooks), belay.MaxDocumentTriggers)], Text: block(doc.Text),
		Runs: addressOf("/executions", url.Values{"workflow": {"document"}}, "label", "document="+name),
	}
	if visitorOf(ctx).allows(belay.ScopeSubmit) {
		d.Offers = []offer{{startPath + "?" + url.Values{"document": {doc.String()}}.Encode(), "Run", false}}
	}
	for i := range all.Versions[:min(len(all.Versions), mostVersions)] {
		row := versionRowOf(&all.Versions[i], all.Default, now)
		row.Current = row.Version == version
		d.Versions = append(d.Versions, row)
	}
	if n := len(all.Versions) - mostVersions; n > 0 {
		d.More = several(n, "older version") + " not listed here"
	}
	if p.options.Graph != nil {
		if tasks, err := p.options.Graph(doc.Text); err == nil { // a text that cannot be drawn is still readable
			d.Graph = planOf(tasks)
		}
	}
	if err := p.compare(ctx, &d, &doc, all.Versions); err != nil {
		return view{}, err
	}
	return view{template: "document", Title: excerpt(doc.String(), 60), Page: d}, nil
}

// mostChanged is how many lines of a difference between two versions a page shows.
const mostChanged = 500

// compare adds the difference between a version and the stored version before it.
func (p *pages) compare(ctx context.Context, d *documentPage, doc *belay.Document, all []belay.DocumentVersion) error {
	i := slices.IndexFunc(all, func(v belay.DocumentVersion) bool { return v.Version < doc.Version })
	if i < 0 {
		return nil
	}
	before, err := p.backend.Document(ctx, doc.Name, all[i].Version)
	switch {
	case belay.CodeOf(err) == belay.CodeNotFound: // it was removed meanwhile
		return nil
	case err != nil:
		return err
	}
	d.Before = before.Version
	name := func(version int) string { return "version " + strconv.Itoa(version) }
	if text := diff.Unified(name(before.Version), name(doc.Version), before.Text, doc.Text); text != "" {
		d.Changes = diffOf(text, mostChanged)
	}
	return nil
}

// newestOf returns the highest version; 0 if there is none.
func newestOf(all []belay.DocumentVersion) int {
	if len(all) == 0 {
		return 0
	}
	return all[0].Version
}

// planOf draws the tasks of a document that do not run; nil if there are too many.
func planOf(tasks []belay.Task) *graph {
	g := graphOf(tasks)
	if g == nil {
		return nil
	}
	g.Label = several(len(tasks), "task") + " from left to right; the text below has the same tasks"
	for i := range tasks {
		n := &g.Nodes[i]
		n.What, n.Title = excerpt(tasks[i].Uses, 24), excerpt(tasks[i].ID+": "+tasks[i].Uses, maxLine)
	}
	return g
}
