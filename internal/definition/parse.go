package definition

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Limits of a document.
const (
	// MaxSize is the largest size of a document in bytes.
	MaxSize = 256 << 10
	// MaxDepth is the largest number of lists and maps within each other.
	MaxDepth = 40
	// MaxNodes is the largest number of values of a document, where the values of an alias count again.
	MaxNodes = 20_000
	// MaxTasks is the largest number of tasks of a document.
	MaxTasks = 1000
	// maxInt is the largest integer that every reader of JSON keeps exactly.
	maxInt = 1<<53 - 1
)

// parse reads a document as YAML, or as JSON if its text begins with a brace and is JSON. It reports all values that a
// document may not have. It returns nil if the document cannot be read at all.
func parse(text []byte, r *report) *node {
	switch {
	case len(text) > MaxSize:
		r.add(at{}, "move data into files that the tasks read", "the document has %d bytes; the limit is %d", len(text),
			MaxSize)
		return nil
	case !utf8.Valid(text):
		r.add(invalidUTF8(text), "save the file as UTF-8", "the document is not UTF-8")
		return nil
	case bytes.ContainsRune(text, 0):
		r.add(position(text, bytes.IndexByte(text, 0)), "remove it", "the document contains a NUL character")
		return nil
	case !shallow(text):
		r.add(at{}, "", "the document has more than %d levels", MaxDepth)
		return nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if t := bytes.TrimSpace(text); len(t) > 0 && t[0] == '{' {
		if n, ok := parseJSON(text, r); ok {
			return n
		}
	}
	return parseYAML(text, r)
}

// shallow reports whether the text has few enough opening brackets in a row. It refuses in advance the texts for which
// a parser would recurse deeply.
func shallow(text []byte) bool {
	depth := 0
	for _, c := range text {
		switch c {
		case '[', '{':
			if depth++; depth > 1000 {
				return false
			}
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	return true
}

func parseYAML(text []byte, r *report) *node {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	err := d.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		r.add(at{}, `begin with "name:" and "tasks:"`, "the document is empty")
		return nil
	case err != nil:
		r.syntax(text, err)
		return nil
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		pos := at{second.Line, second.Column}
		if err != nil {
			r.syntax(text, err)
			return nil
		}
		r.add(pos, "write each document into a file of its own", "the file contains a second document")
		return nil
	}
	c := converter{report: r}
	return c.convert(doc.Content[0], 0)
}

// yamlError is the form of the errors of package yaml that name a line.
var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(?s:(.*))$`)

// syntax reports an error of the YAML parser. The parser names the line; the column is the first character of this line
// that is no space.
func (r *report) syntax(text []byte, err error) {
	line, message := 1, err.Error()
	if m := yamlError.FindStringSubmatch(message); m != nil {
		message = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	lines := strings.Split(string(text), "\n")
	line = min(line, len(lines))
	column := 1
	if s := lines[line-1]; strings.TrimSpace(s) != "" {
		column += len([]rune(s)) - len([]rune(strings.TrimLeft(s, " \t")))
	}
	suggestion := ""
	switch {
	case strings.Contains(message, "cannot start any token"):
		suggestion = "indent with spaces, not with tabs, and quote a text that begins with @ or `"
	case strings.Contains(message, "mapping values are not allowed"):
		suggestion = `quote a text that contains ": ", and check the indentation`
	case strings.Contains(message, "did not find expected"):
		suggestion = "check the indentation and the quotes of this line and of the line before"
	}
	r.add(at{line, column}, suggestion, "this is no YAML: %s", message)
}

// converter makes nodes of the nodes of package yaml, within the limits.
type converter struct {
	*report
	nodes int
	full  bool // a limit was reported
}

func (c *converter) convert(y *yaml.Node, depth int) *node {
	n := &node{at: at{y.Line, y.Column}}
	if c.nodes++; c.nodes > MaxNodes || depth > MaxDepth {
		c.limit(n.at, depth)
	}
	if c.full {
		return n
	}
	if y.Style&yaml.TaggedStyle != 0 {
		c.add(n.at, "remove the tag", "a document may not have the tag %s", y.Tag)
	}
	switch y.Kind {
	case yaml.AliasNode:
		x := c.convert(y.Alias, depth+1)
		x.at = n.at
		return x
	case yaml.SequenceNode:
		n.kind = listNode
		for _, item := range y.Content {
			n.items = append(n.items, c.convert(item, depth+1))
		}
	case yaml.MappingNode:
		n.kind = mapNode
		c.entries(n, y.Content, depth)
	default:
		c.scalar(n, y)
	}
	return n
}

func (c *converter) limit(pos at, depth int) {
	if c.full {
		return
	}
	c.full = true
	if depth > MaxDepth {
		c.add(pos, "", "the document has more than %d levels", MaxDepth)
		return
	}
	c.add(pos, "move data into files that the tasks read", "the document has more than %d values, aliases included",
		MaxNodes)
}

func (c *converter) entries(n *node, content []*yaml.Node, depth int) {
	seen := make(map[string]at, len(content)/2)
	for i := 0; i+1 < len(content); i += 2 {
		k := content[i]
		for k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		pos := at{content[i].Line, content[i].Column}
		switch {
		case k.Kind != yaml.ScalarNode:
			c.add(pos, "quote it if it is a text", "a key must be a text")
			continue
		case k.ShortTag() == "!!merge":
			c.add(pos, "write the keys out, or put common settings into defaults",
				"a document may not merge maps with <<")
			continue
		}
		if first, twice := seen[k.Value]; twice {
			c.add(pos, "remove one of the two", "the key %q stands here twice, first in line %d", k.Value, first.line)
			continue
		}
		seen[k.Value] = pos
		value := c.convert(content[i+1], depth+1)
		if value.line == 0 {
			value.at = pos
		}
		n.keys, n.items = append(n.keys, key{pos, k.Value}), append(n.items, value)
	}
}

func (c *converter) scalar(n *node, y *yaml.Node) {
	n.kind, n.value = textNode, y.Value
	if strings.ContainsRune(y.Value, 0) {
		c.add(n.at, "remove it", "the text contains a NUL character")
	}
	if y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return
	}
	switch y.ShortTag() {
	case "!!null":
		n.kind, n.value = nullNode, nil
	case "!!bool":
		n.kind, n.value = boolNode, strings.EqualFold(y.Value, "true")
	case "!!int", "!!float":
		c.number(n, y.Value)
	case "!!binary":
		c.add(n.at, "remove the tag", "a document may not have binary data")
	}
}

// decimal is the form of a number that YAML and JSON read alike.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// number reads a number. It refuses numbers that another reader of YAML or JSON would read as another value.
func (r *report) number(n *node, text string) {
	n.kind, n.value = numberNode, 0
	shown := text[:min(len(text), 40)]
	if !decimal.MatchString(text) {
		r.add(n.at, "write it as a decimal number, or quote it if it is a text", "%s is no decimal number", shown)
		return
	}
	if i, err := strconv.Atoi(text); err == nil && i >= -maxInt && i <= maxInt {
		n.value = i
		return
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(f) > maxInt && !strings.ContainsAny(text, ".eE") {
		r.add(n.at, "quote it if it is a text", "the number %s is too large", shown)
		return
	}
	if f == math.Trunc(f) && math.Abs(f) <= maxInt {
		n.value = int(f)
		return
	}
	n.value = f
}

// position returns the position of a byte of a text.
func position(text []byte, offset int) at {
	before := text[:min(max(offset, 0), len(text))]
	line := bytes.Count(before, []byte("\n")) + 1
	start := bytes.LastIndexByte(before, '\n') + 1
	return at{line, utf8.RuneCount(before[start:]) + 1}
}

func invalidUTF8(text []byte) at {
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		if c == utf8.RuneError && size <= 1 {
			return position(text, i)
		}
		i += size
	}
	return at{}
}

// quoted shows a text of a document in a message, shortened.
func quoted(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
