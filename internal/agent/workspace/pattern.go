package workspace

import (
	"path"
	"path/filepath"
	"strings"
)

// Pattern names one repository, or all that begin so: its last character is a * then,
// and stands behind a whole host.
type Pattern struct {
	at   Location // of the one, or of the directory that the many are below
	many bool
	// begins is how the path goes on below that directory.
	begins string
}

// ParsePattern reads a pattern. The error is as that of [Locate].
func ParsePattern(text string) (Pattern, error) {
	beginning, many := strings.CutSuffix(text, "*")
	switch {
	case strings.Contains(beginning, "*"):
		return Pattern{}, invalid("repository %q: a * stands only at the end", text)
	case !many:
		at, err := Locate(text)
		return Pattern{at: at}, err
	}
	// The directory is read like any location, and so its host is a whole one.
	i := strings.LastIndexByte(beginning, '/')
	if j := strings.LastIndexByte(beginning, ':'); j > i {
		i = j // host:*
	}
	dir, begins := beginning[:i+1], beginning[i+1:]
	switch rest, isURL := strings.CutPrefix(dir[strings.IndexByte(dir, ':')+1:], "//"); {
	case isURL && !strings.Contains(rest, "/"), dir == "":
		return Pattern{}, invalid("repository %q: a * stands behind a whole host and a slash, as in "+
			"https://example.org/*", text)
	case dir == "/", dir == "file:///":
		return Pattern{at: Location{Scheme: "file", Path: "/"}, many: true, begins: begins}, nil
	}
	const below = "x" // a name in it, which Locate wants
	at, err := Locate(dir + below)
	if err != nil {
		return Pattern{}, err
	}
	at.Path = path.Dir(at.Path)
	if _, err := plainSegments([]string{strings.Trim(begins, ".")}); err != nil {
		return Pattern{}, invalid("repository %q: what stands before the * can be taken for another", text)
	}
	return Pattern{at: at, many: true, begins: begins}, nil
}

// Resolve follows the links of the directory on this machine, if it is one.
func (p Pattern) Resolve() Pattern {
	if p.at.Local() {
		if real, err := filepath.EvalSymlinks(p.at.Path); err == nil {
			p.at.Path = real
		}
	}
	return p
}

// Matches reports whether a location is the one, or one of the many.
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
