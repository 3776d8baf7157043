package webui

import "strings"

// navLink is a link in the navigation that every page has.
type navLink struct {
	Name, Address string
	Current       bool // the page, or the page from which it was reached
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
}

// navigation returns the links of the navigation. The link to the section of a path is the current one.
func navigation(path string) []navLink {
	if path == "/" {
		path = sections[0].Address
	}
	links := make([]navLink, len(sections))
	copy(links, sections)
	for i := range links {
		links[i].Current = path == links[i].Address || strings.HasPrefix(path, links[i].Address+"/")
	}
	return links
}
