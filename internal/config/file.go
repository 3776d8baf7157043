package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// file is the state while a configuration file is read.
type file struct {
	path string
	bad  *problems
	all  []setting
}

// fromFile returns the settings in the text of a file, and adds the file's errors to bad.
func fromFile(path string, text []byte, bad *problems) []setting {
	f := &file{path: path, bad: bad}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // the file is empty
	case err != nil:
		f.broken(err)
		return nil
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			f.broken(err)
		} else {
			f.add(more.Line, "", "a second YAML document; a configuration is a single one")
		}
		return nil
	}
	f.document(doc.Content[0])
	return f.all
}

func (f *file) add(line int, key, format string, args ...any) {
	f.bad.add(f.at(line), key, format, args...)
}

func (f *file) at(line int) string { return f.path + ":" + strconv.Itoa(line) }

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// broken reports an error of the YAML parser.
func (f *file) broken(err error) {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		f.bad.add(f.path, "", "this is not YAML: %v", err)
		return
	}
	where := f.path
	if m[1] != "" {
		where += ":" + m[1]
	}
	f.bad.add(where, "", "this is not YAML: %s", m[2])
}

func (f *file) document(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // a file that has only comments
	}
	f.section("", n)
}

// section reads the keys of one section of the file; the name "" stands for the whole file.
func (f *file) section(name string, n *yaml.Node) {
	if f.indirect(name, n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		f.add(n.Line, name, "%s, where keys and values should be, such as %s", describe(n), example(name))
		return
	}
	lines := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if f.indirect(name, k) {
			continue
		}
		if k.Kind != yaml.ScalarNode {
			f.add(k.Line, name, "%s, where the name of a key should be", describe(k))
			continue
		}
		full := k.Value
		if name != "" {
			full = name + "." + k.Value
		}
		if first, twice := lines[full]; twice {
			f.add(k.Line, full, "given twice; it is given in line %d already", first)
			continue
		}
		lines[full] = k.Line
		f.entry(name, full, k, v)
	}
}

func (f *file) entry(section, full string, k, v *yaml.Node) {
	if section == "" && slices.Contains(sections(), full) {
		if v.Kind == yaml.ScalarNode && v.Tag == "!!null" {
			return // the section is empty
		}
		f.section(full, v)
		return
	}
	key, ok := find(full)
	if !ok || strings.Contains(k.Value, ".") {
		f.unknown(section, full, k)
		return
	}
	if f.indirect(full, v) {
		return
	}
	kind := key.of(Default())
	if !slices.Contains(kind.tags(), v.Tag) {
		f.add(v.Line, full, "%s, where %s should be; write %s", describe(v), article(kind.word()), kind.want())
		return
	}
	text := v.Value
	if v.Kind == yaml.SequenceNode {
		var ok bool
		if text, ok = f.items(full, v, kind); !ok {
			return
		}
	}
	f.all = append(f.all, setting{full, text, f.at(v.Line)})
}

// items converts a YAML list to the text that kind.set reads: with commas between the items, or as
// JSON if the items may be any text.
func (f *file) items(key string, n *yaml.Node, kind kind) (string, bool) {
	var items []string
	free := anyText(kind)
	for _, item := range n.Content {
		if f.indirect(key, item) {
			return "", false
		}
		if item.Kind != yaml.ScalarNode || item.Tag != "!!str" && !(free && item.Tag == "!!int") || !free &&
			strings.Contains(item.Value, ",") {
			hint := ""
			if free && item.Kind == yaml.MappingNode {
				hint = `; put text with braces in quotes, as in "{{prompt}}"`
			}
			f.add(item.Line, key, "%s in the list, where text should be%s", describe(item), hint)
			return "", false
		}
		items = append(items, item.Value)
	}
	if len(items) == 0 {
		switch kind.(type) {
		case places, repositories: // without the key everything is allowed, so an empty list is ambiguous
			f.add(n.Line, key, "an empty list could mean nothing or everything; write %s, or leave the key out",
				kind.want())
		}
		return "", false // an empty list means the same as leaving the key out
	}
	if free {
		return asWords(items), true
	}
	return strings.Join(items, ","), true
}

// indirect refuses anchors and aliases, because with them a small file can expand to very many
// values.
func (f *file) indirect(key string, n *yaml.Node) bool {
	if n.Kind != yaml.AliasNode && n.Anchor == "" {
		return false
	}
	f.add(n.Line, key, "anchors and aliases (& and *) are not supported; write the value out")
	return true
}

// unknown reports a key that does not exist, with an existing key of a similar name.
func (f *file) unknown(section, full string, k *yaml.Node) {
	var names []string
	for _, known := range keys {
		if s, rest, ok := strings.Cut(known.Name, "."); ok && s == section {
			names = append(names, rest)
		} else if !ok && section == "" {
			names = append(names, known.Name)
		}
	}
	if section == "" {
		names = append(names, sections()...)
	}
	if near := nearest(k.Value, names); near != "" {
		f.add(k.Line, full, "there is no such key; did you mean %s?", near)
		return
	}
	for _, known := range keys { // another section may have a key of this name, or a flag may have the name
		if _, rest, ok := strings.Cut(known.Name, "."); ok && rest == k.Value || known.Name == k.Value ||
			known.Flag() == k.Value {
			f.add(k.Line, full, "there is no such key here; did you mean %s?", known.Name)
			return
		}
	}
	f.add(k.Line, full, "there is no such key; there are %s", strings.Join(names, ", "))
}

// describe describes a YAML node in an error.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a section"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	case n.Tag == "!!str":
		return "the text " + quote(n.Value)
	}
	words := map[string]string{
		"!!int": "the number", "!!float": "the number", "!!bool": "the bool", "!!timestamp": "the date",
	}
	if w := words[n.Tag]; w != "" {
		return w + " " + quote(n.Value)
	}
	return fmt.Sprintf("a value of type %s", n.Tag)
}

func article(word string) string {
	if strings.HasPrefix(word, "a") {
		return "an " + word
	}
	if word == "text" {
		return word
	}
	return "a " + word
}

// example returns a correct line of a section, for an error message.
func example(section string) string {
	for _, k := range keys {
		if s, rest, ok := strings.Cut(k.Name, "."); ok && s == section {
			return rest + ": " + k.Default()
		}
	}
	return "listen: " + Default().Listen
}

func quote(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
