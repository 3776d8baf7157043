package definition

import "strings"

// kind is the kind of a node.
type kind uint8

const (
	nullNode kind = iota
	boolNode
	numberNode
	textNode
	listNode
	mapNode
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a text", "a list", "a map"}[k]
}

// node is a value of a document with its position.
type node struct {
	at
	kind  kind
	value any     // a bool, an int, a float64 or a string
	items []*node // of a list, or the values of a map
	keys  []key   // of a map, in the order of the document
}

// key is a key of a map with its position.
type key struct {
	at
	name string
}

// get returns the value of a key of a map; nil if the map has no such key.
func (n *node) get(name string) *node {
	if n == nil || n.kind != mapNode {
		return nil
	}
	for i := range n.keys {
		if n.keys[i].name == name {
			return n.items[i]
		}
	}
	return nil
}

// text returns the text of a node, or "" if the node is no text.
func (n *node) text() string {
	if n == nil {
		return ""
	}
	s, _ := n.value.(string)
	return s
}

// number returns the whole number of a node, or 0 if it has none.
func (n *node) number() int {
	if n == nil {
		return 0
	}
	i, _ := n.value.(int)
	return i
}

// mentions reports whether a text or a key of the value contains a text.
func (n *node) mentions(text string) bool {
	switch {
	case n == nil:
		return false
	case n.kind == textNode:
		return strings.Contains(n.text(), text)
	}
	for i, x := range n.items {
		if x.mentions(text) || n.kind == mapNode && strings.Contains(n.keys[i].name, text) {
			return true
		}
	}
	return false
}

// plain returns the value of a node as encoding/json would decode it, except that an integer is an int.
func (n *node) plain() any {
	switch {
	case n == nil:
		return nil
	case n.kind == listNode:
		list := make([]any, len(n.items))
		for i, x := range n.items {
			list[i] = x.plain()
		}
		return list
	case n.kind == mapNode:
		m := make(map[string]any, len(n.items))
		for i, x := range n.items {
			m[n.keys[i].name] = x.plain()
		}
		return m
	}
	return n.value
}
