package workspace

import (
	"path"
	"path/filepath"
	"strings"
)

// Pattern matches one repository. If it ends with *, it matches all repositories whose names begin
// with the text before the *; that text contains at least a whole host and a slash.
type Pattern struct {
	at   Location // the repository or, if many is set, the directory in which the matching repositories lie
	many bool
	// begins is the text of the pattern between its directory (the field at) and the *.
	begins string
}

// ParsePattern parses a pattern. It returns the same errors as [Locate].
func ParsePattern(text string) (Pattern, error) {
	beginning, many := strings.CutSuffix(text, "*")
	switch {
	case strings.Contains(beginning, "*"):
		return Pattern{}, invalid("repository %q: a * is only allowed at the end", text)
	case !many:
		at, err := Locate(text)
		return Pattern{at: at}, err
	}
	// The text up to the last slash is parsed as a location, so it must contain a complete host.
	i := strings.LastIndexByte(beginning, '/')
	if j := strings.LastIndexByte(beginning, ':'); j > i {
		i = j // the form host:*
	}
	dir, begins := beginning[:i+1], beginning[i+1:]
	switch rest, isURL := strings.CutPrefix(dir[strings.IndexByte(dir, ':')+1:], "//"); {
	case isURL && !strings.Contains(rest, "/"), dir == "":
		return Pattern{}, invalid("repository %q: a * may only follow a whole host and a slash, as in "+
			"https://example.org/*", text)
	case dir == "/", dir == "file:///":
		return Pattern{at: Location{Scheme: "file", Path: "/"}, many: true, begins: begins}, nil
	}
	const below = "x" // a name in the directory, because Locate needs a name
	at, err := Locate(dir + below)
	if err != nil {
		return Pattern{}, err
	}
	at.Path = path.Dir(at.Path)
	if _, err := plainSegments([]string{strings.Trim(begins, ".")}); err != nil {
		return Pattern{}, invalid("repository %q: the text before the * has a character that looks like another", text)
	}
	return Pattern{at: at, many: true, begins: begins}, nil
}

// Resolve follows the symbolic links in the pattern's directory, if that directory is on this
// machine.
func (p Pattern) Resolve() Pattern {
	if p.at.Local() {
		if real, err := filepath.EvalSymlinks(p.at.Path); err == nil {
			p.at.Path = real
		}
	}
	return p
}

// Matches reports whether the pattern matches a location.
func (p Pattern) Matches(l Location) bool {
	if !p.many {
		return l == p.at
	}
	same := l
	same.Path = p.at.Path
	if same != p.at {
		return false
	}
	rest, below := strings.CutPrefix(l.Path, strings.TrimSuffix(p.at.Path, "/")+"/")
	return below && rest != "" && strings.HasPrefix(rest+".git", p.begins)
}
