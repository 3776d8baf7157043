package webui

import (
	"context"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/belaydev/belay"
)

// templateNames are the names of the pages' templates.
var templateNames = []string{
	"executions", "execution", "error", "action", "login",
	"overview", "dead", "letters", "workers", "queues", "gate", "documents",
	"document", "schedules", "schedule", "webhooks", "webhook", "notifications", "notification",
	"bulks", "bulk",
	"audit", "keys", "job", "checkpoints",
}

// templates returns the templates of all pages by their names. It parses them once.
var templates = sync.OnceValue(func() map[string]*template.Template {
	all := make(map[string]*template.Template, len(templateNames))
	for _, name := range templateNames {
		all[name] = template.Must(template.ParseFS(files, "templates/layout.html", "templates/parts.html",
			"templates/fields.html", "templates/review.html", "templates/remedies.html", "templates/"+name+".html"))
	}
	return all
})

// fleet adds the pages about everything beside single executions.
func (p *pages) fleet(mux *http.ServeMux) {
	for path, build := range map[string]func(context.Context, *http.Request) (view, error){
		"/overview": p.overview, "/workers": p.workers, "/queues": p.queues, "/bulks/{id}": p.bulk, "/audit": p.audit,
	} {
		mux.HandleFunc("GET "+path, p.shared(build))
	}
	for path, build := range map[string]func(context.Context, *http.Request) (view, error){
		"/dead": kept(p.dead, changesPath), "/bulks": kept(p.bulks, changesPath), "/schedules": kept(p.schedules, ""),
		"/schedules/{name}": kept(p.schedule, ""), "/webhooks": kept(p.webhooks, ""),
		"/webhooks/{name}": kept(p.webhook, ""), "/notifications": kept(p.notifications, ""),
		"/notifications/{name}": kept(p.notification, ""),
	} {
		mux.HandleFunc("GET "+path, p.shared(build))
	}
	mux.HandleFunc("GET /workflows", p.page(p.documents))
	mux.HandleFunc("GET /workflows/{name}", p.page(p.document))
	p.keyring(mux)
}

// mostNames is how many names one cell of a table lists.
const mostNames = 8

// names are names in a cell of a table; More is the number of those for which the cell has no room.
type names struct {
	Shown []string
	More  int
}

func namesOf(all []string) names {
	n := names{More: max(0, len(all)-mostNames)}
	for _, name := range all[:min(len(all), mostNames)] {
		n.Shown = append(n.Shown, excerpt(name, 80))
	}
	return n
}

// pairs returns labels as names, in the order of their keys.
func pairs(labels map[string]string) names {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, k+"="+labels[k])
	}
	return namesOf(all)
}

// exLink is a link to an execution.
type exLink struct{ ID, Name, Title string }

func linkTo(id belay.ExecutionID, name string) exLink {
	text := id.String()
	return exLink{ID: text, Name: excerpt(name, 60), Title: text}
}

// shortID returns the end of an id, which people use to name it.
func shortID(id belay.ExecutionID) string {
	text := id.String()
	return "…" + text[max(0, len(text)-8):]
}

// pager has the addresses of the first and the next page of a list; empty where there is none.
type pager struct{ First, Next string }

// pagerOf returns the links of a page of the list at path, whose other parameters are q. next is the cursor
// of the next page, and empty on the last page.
func pagerOf(path string, q url.Values, next string) pager {
	var p pager
	if q.Get("cursor") != "" {
		p.First = addressOf(path, q, "cursor", "")
	}
	if next != "" {
		p.Next = addressOf(path, q, "cursor", next)
	}
	return p
}

// addressOf returns an address with one parameter changed, or left out if value is empty.
func addressOf(path string, q url.Values, name, value string) string {
	q = maps.Clone(q)
	if value == "" {
		q.Del(name)
	} else {
		q[name] = []string{value}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// chosen returns the parameters of an address that a page knows. A link then repeats no others.
func chosen(q url.Values, known ...string) url.Values {
	out := url.Values{}
	for _, name := range known {
		if v := q.Get(name); v != "" {
			out.Set(name, v)
		}
	}
	return out
}

// several returns a number with its noun, as in "1 worker" and "2 workers".
func several(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// isOrAre returns the verb for a number of things.
func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// byOperator describes an operator's change: the change itself, the operator and the reason.
func byOperator(change, by, reason string) string {
	if by != "" {
		change += " by " + excerpt(by, 80)
	}
	if reason != "" {
		change += ": " + reason
	}
	return line(change)
}

// joined returns the parts that are not empty, with separators.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " · ")
}
