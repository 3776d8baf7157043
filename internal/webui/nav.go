package webui

import (
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// navLink is a link in the navigation that every page has.
type navLink struct {
	Name, Address string
	Current       bool // the page, or the page from which it was reached
	admin         bool // only visitors with the scope admin see it
}

// sections are the pages that the navigation names, in its order.
var sections = []navLink{
	{Name: "Overview", Address: "/overview"},
	{Name: "Executions", Address: "/executions"},
	{Name: "Dead letters", Address: "/dead"},
	{Name: "Bulk actions", Address: "/bulks"},
	{Name: "Workers", Address: "/workers"},
	{Name: "Queues and gates", Address: "/queues"},
	{Name: "Workflows", Address: "/workflows"},
	{Name: "Schedules", Address: "/schedules"},
	{Name: "Webhooks", Address: "/webhooks"},
	{Name: "Notifications", Address: "/notifications"},
	{Name: "Audit", Address: "/audit", admin: true},
	{Name: "Keys", Address: "/keys", admin: true},
}

// navigation returns the links of the navigation for a visitor. The link to the section of a path is the current one.
func navigation(path string, v Visitor) []navLink {
	if path == "/" {
		path = sections[0].Address
	}
	links := slices.DeleteFunc(slices.Clone(sections), func(l navLink) bool {
		return l.admin && !v.allows(belay.ScopeAdmin)
	})
	for i := range links {
		links[i].Current = path == links[i].Address || strings.HasPrefix(path, links[i].Address+"/")
	}
	return links
}
