package config

import (
	"bytes"
	"encoding/json"
	"strings"
)

// words is the kind of a value that is a list whose items may be any text, such as the arguments of
// a command. In a flag or variable the list is a JSON array, or words as in a shell: spaces
// separate the items, and items with spaces have quotes around them.
type words struct {
	to   *[]string
	what string
}

func (k words) set(s string) bool {
	items, ok := split(s)
	if strings.HasPrefix(strings.TrimSpace(s), "[") {
		items = nil
		ok = json.Unmarshal([]byte(s), &items) == nil
	}
	if !ok || len(items) == 0 || strings.TrimSpace(items[0]) == "" || strings.ContainsRune(strings.Join(items, ""), 0) {
		return false
	}
	*k.to = items
	return true
}

func (k words) want() string { return k.what }

func (k words) show() string {
	if len(*k.to) == 0 {
		return ""
	}
	return asWords(*k.to)
}
func (words) word() string   { return "list" }
func (words) tags() []string { return []string{"!!seq", "!!str"} }

// anyText reports whether the items of a list may be any text.
func anyText(k kind) bool {
	switch k.(type) {
	case words, repositories, paths:
		return true
	}
	return false
}

// asWords returns items in the form that words.set reads.
func asWords(items []string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(items); err != nil {
		panic(err) // never happens: every list of texts can be encoded
	}
	return strings.TrimSpace(b.String())
}

// split splits a text into words like a shell, but supports only quotes and backslashes of the
// shell's syntax. It returns false if a quote is not closed.
func split(s string) ([]string, bool) {
	var (
		items []string
		word  strings.Builder
		open  bool // a word has begun
		quote rune // the quote that has not been closed; 0 for none
		taken bool // the character before was a backslash that escapes this one
	)
	for _, c := range s {
		switch {
		case taken:
			if quote == '"' && c != '"' && c != '\\' {
				word.WriteByte('\\')
			}
			word.WriteRune(c)
			taken = false
		case c == '\\' && quote != '\'':
			taken, open = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if open {
				items = append(items, word.String())
				word.Reset()
			}
			open = false
		default:
			word.WriteRune(c)
			open = true
		}
	}
	if open {
		items = append(items, word.String())
	}
	return items, quote == 0 && !taken
}
