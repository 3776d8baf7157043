package test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/webui"
)

// webPage is a page of the showcase.
type webPage struct {
	name   string // of its picture
	path   string
	kind   string // the path and the query without names and ids: pages of one kind have the same template
	status int
	html   string
}

// crawl returns the pages to which links lead, beginning with the overview and with the pages of the named
// executions: at most `most` pages of each kind, and all named executions. So it finds pages that are added later.
func (s *showcase) crawl(most int) []webPage {
	t := s.api.t
	t.Helper()
	type link struct{ path, name string }
	next := []link{{"/", ""}}
	for _, name := range sorted(s.runs) {
		next = append(next, link{"/executions/" + s.runs[name].String(), name})
	}
	for _, name := range sorted(s.places) {
		next = append(next, link{s.places[name], name})
	}
	for path, name := range map[string]string{
		"/no-such-page": "error-not-found", "/schedules/none": "error-no-schedule",
		"/executions?state=none": "error-invalid", "/login": "login",
		"/executions?workflow=none-has-this-name": "executions-empty",
	} {
		next = append(next, link{path, name})
	}
	var pages []webPage
	seen, count := make(map[string]bool), make(map[string]int)
	for len(next) > 0 {
		l := next[0]
		next = next[1:]
		kind := kindOf(l.path)
		if seen[l.path] || l.name == "" && count[kind] >= most {
			continue
		}
		seen[l.path] = true
		p := s.page(l.path)
		if p.name = l.name; p.name == "" {
			p.name = pictureOf(kind)
		}
		if l.name == "" {
			if count[kind]++; count[kind] > 1 {
				p.name += fmt.Sprint("-", count[kind])
			}
		}
		p.kind = kind
		pages = append(pages, p)
		for _, address := range addressesIn(p.html) {
			next = append(next, link{address, ""})
		}
	}
	return pages
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// page reads a page as anna.
func (s *showcase) page(path string) webPage {
	t := s.api.t
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	must(t, err)
	q.Header.Set("Authorization", "Bearer "+s.admin)
	q.Header.Set("Accept", "text/html")
	r, err := http.DefaultClient.Do(q)
	must(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	must(t, err)
	return webPage{path: path, status: r.StatusCode, html: string(body)}
}

var addresses = regexp.MustCompile(`<a [^>]*href="(/[^"#]*)`)

// addressesIn returns the addresses of pages to which a page links.
func addressesIn(page string) []string {
	var all []string
	for _, m := range addresses.FindAllStringSubmatch(page, -1) {
		a := html.UnescapeString(m[1])
		file := strings.HasPrefix(a, "/assets/") || strings.HasPrefix(a, "/v1/") || strings.Contains(a, "/files/")
		if !file {
			all = append(all, a)
		}
	}
	return all
}

// kindOf replaces the names and ids in a path by braces, and the values of the query except those that select a form.
func kindOf(path string) string {
	u, err := url.Parse(path)
	if err != nil {
		return path
	}
	parts := strings.Split(u.EscapedPath(), "/")
	for i, part := range parts {
		if _, err := belay.ParseExecutionID(part); (err == nil || i == 2) && !isForm(u.Path) {
			parts[i] = "{}"
		}
	}
	kind := strings.Join(parts, "/")
	q := u.Query()
	for i, key := range sorted(q) {
		kind += map[bool]string{true: "?", false: "&"}[i == 0] + key
		if key == "do" || key == "of" {
			kind += "=" + q.Get(key)
		}
	}
	return kind
}

// isForm reports whether a path is that of a form on no single thing.
func isForm(path string) bool {
	return slices.ContainsFunc(webui.Forms(), func(f webui.Form) bool { return f.Path == path })
}

var letters = regexp.MustCompile(`[a-z_]+`)

// pictureOf returns the name of the picture of a kind of page.
func pictureOf(kind string) string {
	words := letters.FindAllString(strings.NewReplacer("do=", "", "of=", "").Replace(kind), -1)
	if strings.HasPrefix(kind, "/executions/{}/") {
		words[0] = "action"
	} else if strings.Contains(kind, "/{}") {
		words = append(words, "one")
	}
	if len(words) == 0 {
		return "start"
	}
	return strings.Join(words, "-")
}

// sampleOf returns the pages without those that have the template of another, and nearly its content.
func sampleOf(pages []webPage) []webPage {
	var some []webPage
	forms := 0
	for _, p := range pages {
		path, _, _ := strings.Cut(p.kind, "?")
		form := isForm(path) || strings.HasPrefix(p.kind, "/executions/{}/")
		if form {
			forms++
		}
		one, isRun := strings.CutPrefix(p.name, "execution-")
		switch {
		case form && forms > 3, isRun && !slices.Contains([]string{"document", "agent", "failed", "taken-over"}, one),
			strings.HasPrefix(p.name, "executions-") && p.name != "executions-empty", p.name == "start",
			strings.Contains(p.name, "-resolution"), strings.HasPrefix(p.name, "gate-") && p.name != "gate-breaker":
		default:
			some = append(some, p)
		}
	}
	return some
}

// complete checks that the pages are all that there are: each address of the server's pages, and each form.
func complete(t *testing.T, pages []webPage) {
	t.Helper()
	source, err := os.ReadFile("../internal/httpapi/operations.go")
	must(t, err)
	_, list, _ := strings.Cut(string(source), "var pagePaths = []string{")
	list, _, _ = strings.Cut(list, "}\n\n")
	var want []string
	for _, m := range regexp.MustCompile(`"(/[^"]*)"`).FindAllStringSubmatch(list, -1) {
		want = append(want, strings.Replace(strings.TrimSuffix(m[1], "{$}"), "{id}", "{}", 1))
	}
	if len(want) < 10 {
		t.Fatalf("the list of the paths of pages cannot be read: %v", want)
	}
	for _, f := range webui.Forms() {
		want = append(want, strings.Replace(f.Path, "{id}", "{}", 1))
	}
	for _, w := range want {
		if !slices.ContainsFunc(pages, func(p webPage) bool {
			path, _, _ := strings.Cut(p.kind, "?")
			return path == w || strings.HasSuffix(w, "/") && strings.HasPrefix(path, w)
		}) {
			t.Errorf("no page of the showcase leads to %s", w)
		}
	}
}
