package machine

import (
	"os"
	"strings"
	"testing"
)

// rulebook is a parsed table of testdata.
type rulebook struct {
	blocks map[string]*block
	read   map[string]bool
}

// block lists the effects of one command, by situation.
type block struct {
	name  string
	lines map[string]string // the key is the name of a situation, or a state and a star
	used  map[string]bool
}

func readRules(t *testing.T, file string) *rulebook {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	book := &rulebook{make(map[string]*block), make(map[string]bool)}
	var b *block
	var names []string
	sets := make(map[string][]string)
	for n, line := range strings.Split(string(text), "\n") {
		left, right, rule := strings.Cut(line, "→")
		switch {
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
		case strings.HasPrefix(line, "let "):
			words := strings.Fields(line)
			names = words[1:2]
			for _, w := range words[3:] {
				sets[words[1]] = append(sets[words[1]], set(sets, w)...)
			}
		case !strings.HasPrefix(line, " "):
			if book.blocks[line] != nil {
				t.Errorf("line %d: a second block %q", n+1, line)
			}
			b, names = &block{line, make(map[string]string), make(map[string]bool)}, nil
			book.blocks[line] = b
		case b == nil: // no block has begun, so this line continues the set of names above
			sets[names[0]] = append(sets[names[0]], strings.Fields(line)...)
		default:
			for _, name := range strings.Fields(left) {
				names = append(names, set(sets, name)...)
			}
			if rule {
				b.rule(t, n+1, names, strings.Join(strings.Fields(right), " "))
				names = nil
			}
		}
	}
	return book
}

// set expands a name: to itself, or, if a let line defines it, to the names in that line.
func set(sets map[string][]string, name string) []string {
	if s, ok := sets[name]; ok {
		return s
	}
	return []string{name}
}

// rule sets the wanted effect, from a line of the table, for each of the named situations.
func (b *block) rule(t *testing.T, line int, names []string, want string) {
	t.Helper()
	for _, name := range names {
		if _, twice := b.lines[name]; twice {
			t.Errorf("line %d: %s is listed twice in %q", line, name, b.name)
		}
		b.lines[name] = want
	}
}

func (r *rulebook) block(t *testing.T, name string) *block {
	t.Helper()
	r.read[name] = true
	b := r.blocks[name]
	if b == nil {
		t.Fatalf("the table has no block %q", name)
	}
	return b
}

// find returns the line of the table for a situation: the line that names it, or the line for all
// other situations of its state.
func (b *block) find(situation string) (string, bool) {
	state, _, _ := strings.Cut(situation, "/")
	for _, name := range []string{situation, state + "*", "*"} {
		if want, ok := b.lines[name]; ok {
			b.used[name] = true
			return want, true
		}
	}
	return "", false
}

// unused reports lines that find has returned for no situation.
func (b *block) unused(t *testing.T) {
	t.Helper()
	for name := range b.lines {
		if !b.used[name] {
			t.Errorf("no situation is %s in block %q", name, b.name)
		}
	}
}

func (r *rulebook) done(t *testing.T) {
	t.Helper()
	for name := range r.blocks {
		if !r.read[name] {
			t.Errorf("no command is %q", name)
		}
	}
}
