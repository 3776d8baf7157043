package repo

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	inlineLink    = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)`)
	referenceLink = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s+"[^"]*")?\s*$`)
	inlineCode    = regexp.MustCompile("`[^`\n]*`")
	headingLine   = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*\s*$`)
	headingLink   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	htmlAnchor    = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// page has the links in a Markdown file and the anchors to which other pages may link.
type page struct {
	links   []string
	anchors map[string]bool
}

func markdown(t *testing.T) map[string]page {
	t.Helper()
	pages := map[string]page{}
	for _, name := range repoFiles(t) {
		if strings.HasSuffix(name, ".md") {
			pages[name] = parsePage(read(t, name))
		}
	}
	return pages
}

func parsePage(text string) page {
	p := page{anchors: map[string]bool{}}
	var prose []string
	seen := map[string]int{}
	fence := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if fence != "" {
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			continue
		}
		if strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~") {
			fence = trimmed[:3]
			continue
		}
		prose = append(prose, line)
		if m := headingLine.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			p.anchors[unique(slug(m[1]), seen)] = true
		}
	}
	body := inlineCode.ReplaceAllString(strings.Join(prose, ""), "")
	for _, m := range htmlAnchor.FindAllStringSubmatch(body, -1) {
		p.anchors[m[1]] = true
	}
	for _, re := range []*regexp.Regexp{inlineLink, referenceLink} {
		for _, m := range re.FindAllStringSubmatch(body, -1) {
			p.links = append(p.links, m[1])
		}
	}
	return p
}

// slug returns the anchor of a heading as GitHub makes it: letters become lower case, digits,
// hyphens and underscores stay, spaces become hyphens, and other characters are removed.
func slug(heading string) string {
	heading = headingLink.ReplaceAllString(heading, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unique returns the anchor of a heading, with a number if an earlier heading of the page has the
// same anchor.
func unique(anchor string, seen map[string]int) string {
	n := seen[anchor]
	seen[anchor]++
	if n == 0 {
		return anchor
	}
	return anchor + "-" + string(rune('0'+n))
}

// Rule: a link from a page to another page leads to a file that exists and to a heading that exists
// in this file.
func TestLinksResolve(t *testing.T) {
	pages := markdown(t)
	for name, p := range pages {
		for _, link := range p.links {
			if problem := checkLink(t, pages, name, link); problem != "" {
				t.Errorf("%s: link %s: %s", name, link, problem)
			}
		}
	}
}

func checkLink(t *testing.T, pages map[string]page, from, link string) string {
	t.Helper()
	switch {
	case strings.HasPrefix(link, "https://"), strings.HasPrefix(link, "mailto:"):
		return ""
	case strings.Contains(link, "://"):
		return "outside links are https"
	case strings.HasPrefix(link, "/"):
		return "write it relative to the page, so that it works on every host and on disk"
	}
	target, anchor, _ := strings.Cut(link, "#")
	if target == "" {
		target = from
	} else {
		target = path.Join(path.Dir(from), target)
	}
	files := repoFiles(t)
	isFile := slices.Contains(files, target)
	isFolder := slices.ContainsFunc(files, func(f string) bool {
		return target == "." || strings.HasPrefix(f, target+"/")
	})
	switch {
	case !isFile && !isFolder:
		return "there is no " + target
	case anchor != "" && !pages[target].anchors[anchor]:
		return target + " has no heading with this anchor"
	}
	return ""
}

// Rule: every page under docs/ is listed in docs/README.md, or in a README.md that is listed there.
func TestDocsAreIndexed(t *testing.T) {
	pages := markdown(t)
	const index = "docs/README.md"
	listed := map[string]bool{}
	var list func(index string)
	list = func(index string) {
		if listed[index] {
			return
		}
		listed[index] = true
		for _, link := range pages[index].links {
			target, _, _ := strings.Cut(link, "#")
			target = path.Join(path.Dir(index), target)
			if path.Base(target) == "README.md" {
				list(target)
			}
			listed[target] = true
		}
	}
	list(index)
	for name := range pages {
		if strings.HasPrefix(name, "docs/") && !listed[name] {
			t.Errorf("%s is not listed in %s", name, index)
		}
	}
}

// Rule: parsePage finds all kinds of links and anchors, and none in blocks of code.
func TestParsePageFindsLinksAndAnchors(t *testing.T) {
	p := parsePage("# One `two` (three)\n## Again\n## Again\n[a](b.md#c) `[no](no.md)` " +
		"![i](<d.png>)\n```\n[no](no.md)\n# no\n```\n[ref]: e.md \"title\"\n")
	if want := []string{"b.md#c", "d.png", "e.md"}; !slices.Equal(p.links, want) {
		t.Errorf("links %q, want %q", p.links, want)
	}
	for _, anchor := range []string{"one-two-three", "again", "again-1"} {
		if !p.anchors[anchor] {
			t.Errorf("no anchor %s in %v", anchor, p.anchors)
		}
	}
	if p.anchors["no"] {
		t.Error("took a comment in a code block for a heading")
	}
}
