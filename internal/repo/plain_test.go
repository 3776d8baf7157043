package repo

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is how wide a line may be; a tab counts as four.
const maxColumns = 120

// Rule: lines fit on a screen. The test ignores lines that cannot be broken: raw strings and tags
// of structures, rows of tables, addresses, and blocks of code and generated parts in documents.
func TestLinesFit(t *testing.T) {
	for _, name := range repoFiles(t) {
		isGo := strings.HasSuffix(name, ".go")
		if !isGo && !strings.HasSuffix(name, ".md") {
			continue
		}
		raw, generated := false, false
		for i, line := range strings.Split(read(t, name), "\n") {
			was := raw
			if !isGo && strings.HasPrefix(line, "<!-- ") {
				generated = strings.HasSuffix(line, ": begin -->")
			}
			switch {
			case isGo && strings.Count(line, "`")%2 == 1, !isGo && strings.HasPrefix(strings.TrimSpace(line), "```"):
				raw = !raw
			}
			columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
			if columns <= maxColumns || was || raw || generated || strings.Contains(line, "://") || strings.HasPrefix(line, "|") ||
				isGo && strings.ContainsAny(line, "`") {
				continue
			}
			if isGo && longToken.MatchString(line) {
				continue
			}
			t.Errorf("%s:%d has %d columns, more than %d: break it", name, i+1, columns, maxColumns)
		}
	}
}

// longToken matches a line that is one string of data, in which a line break would change the data.
var longToken = regexp.MustCompile(`^\s*(?:\S+ *[:=]+ *)?"(?:[^"\\]|\\.)*"\)?[,)]*(?: \+)?$`)

// plainWords are patterns for words that make a sentence hard to understand at first reading, each
// with advice for a better sentence.
var plainWords = []struct {
	pattern *regexp.Regexp
	mend    string
}{
	{regexp.MustCompile(`(?:^|[.!?]["')]?\s+)((?:What|Whoever|Who|Nobody|Somebody|One)\s)`),
		"begin the sentence with the actor or the thing"},
	{regexp.MustCompile(`(?i)\b((?:came|comes?) of|(?:became|becomes?) of)\b`), "name the result"},
	{regexp.MustCompile(`(?i)\b((?:is|are|was|were|be|been|being) (?:held|told))\b`),
		"say who keeps, owns or reports what"},
	{regexp.MustCompile(`(?i)\b(whoever|whomever)\b`), "name the actor"},
}

// plainAllowed lists sentences that use one of plainWords on purpose. The key is the file, a colon,
// and the words found; the value is the reason.
var plainAllowed = map[string]string{}

// plainLater lists the folders whose texts have not been revised for plain words yet.
var plainLater []string

// Rule: comments, texts for users and documents are plain, as far as a pattern can check that.
// CONTRIBUTING.md has the other rules of plain English.
func TestWordsArePlain(t *testing.T) {
	used := map[string]bool{}
	check := func(name string, line int, text string) {
		text = strings.Join(strings.Fields(text), " ")
		for _, w := range plainWords {
			for _, m := range w.pattern.FindAllStringSubmatchIndex(text, -1) {
				words := strings.TrimSpace(text[m[2]:m[3]])
				if plainAllowed[name+": "+words] != "" {
					used[name+": "+words] = true
					continue
				}
				from, to := max(0, m[2]-30), min(len(text), m[3]+50)
				t.Errorf("%s:%d: %q in %q: %s", name, line, words, strings.ToValidUTF8(text[from:to], ""), w.mend)
			}
		}
	}
	later := func(name string) bool {
		return slices.ContainsFunc(plainLater, func(dir string) bool {
			return strings.HasPrefix(name, dir) || dir == "." && !strings.Contains(name, "/")
		})
	}
	fset, sources := goFiles(t)
	for _, f := range sources {
		if later(f.path) || f.path == "internal/repo/plain_test.go" {
			continue
		}
		for _, c := range f.ast.Comments {
			for _, part := range paragraphs(c.Text()) {
				check(f.path, fset.Position(c.Pos()).Line, part)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(text, " ") {
					for _, part := range paragraphs(text) {
						check(f.path, fset.Position(lit.Pos()).Line, part)
					}
				}
			}
			return true
		})
	}
	for _, name := range repoFiles(t) {
		if strings.HasSuffix(name, ".ts") && !later(name) && !strings.Contains("/"+name, "/testdata/") {
			text := read(t, name)
			for _, at := range tsComment.FindAllStringIndex(text, -1) {
				for _, part := range paragraphs(tsMarks.ReplaceAllString(text[at[0]:at[1]], "")) {
					check(name, 1+strings.Count(text[:at[0]], "\n"), part)
				}
			}
		}
		if !strings.HasSuffix(name, ".md") || later(name) || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		at := 1
		for _, part := range paragraphs(read(t, name)) {
			check(name, at, strings.TrimLeft(part, "*-> "))
			at += 2
		}
	}
	for allowed := range plainAllowed {
		if !used[allowed] {
			t.Errorf("%s is allowed and not there", allowed)
		}
	}
}

// tsComment matches a comment of TypeScript, and tsMarks matches the comment signs in it, such as
// // and *.
var (
	tsComment = regexp.MustCompile(`(?s)/\*.*?\*/|(?m:^\s*//[^\n]*(?:\n\s*//[^\n]*)*)`)
	tsMarks   = regexp.MustCompile(`(?m)^\s*(?:/\*\*?|//|\*/|\*)[ \t]?|\s*\*/$`)
)

var blank = regexp.MustCompile(`\n\s*(?:\n|[*+-] )`)

// paragraphs returns the parts of a text between empty lines; each item of a list is a part of its
// own.
func paragraphs(text string) []string { return blank.Split(text, -1) }
