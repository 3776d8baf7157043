package config

import (
	"bytes"
	"encoding/json"
	"strings"
)

// words are a list whose items may be any text, such as the arguments of a
// command. A flag or variable has them as a JSON array, or as a shell would have
// them: with spaces between, and quotes around what has some.
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

// freely reports whether the items of a list may be any text.
func freely(k kind) bool {
	switch k.(type) {
	case words, repositories, paths:
		return true
	}
	return false
}

// asWords writes items as words takes them.
func asWords(items []string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(items); err != nil {
		panic(err) // texts always marshal
	}
	return strings.TrimSpace(b.String())
}

// split splits words as a shell would that knows nothing but quotes and
// backslashes; false if a quote is not closed.
func split(s string) ([]string, bool) {
	var (
		items []string
		word  strings.Builder
		open  bool // a word has begun
		quote rune
		taken bool // the character before was a backslash
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
