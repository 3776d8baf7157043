package webui

import "strings"

// diffView is a difference of two texts, which the template "diff" shows.
type diffView struct {
	Lines []diffLine
	More  string // says that the difference is longer
}

// diffLine is a line of a difference. Class is "file", "head", "hunk", "added", "gone" or empty.
type diffLine struct{ Class, Text string }

// diffOf classifies the lines of a difference, and shows at most so many.
func diffOf(text string, most int) *diffView {
	d := &diffView{}
	text = strings.TrimSuffix(text, "\n")
	inside := false // a hunk, whose lines may begin like headers
	for l := range strings.SplitSeq(text, "\n") {
		if len(d.Lines) == most {
			d.More = "The difference has more lines."
			break
		}
		class := ""
		switch {
		case strings.HasPrefix(l, "@@"):
			class, inside = "hunk", true
		case strings.HasPrefix(l, "diff "):
			class, inside = "file", false
		case !inside:
			class = "head"
		case strings.HasPrefix(l, "+"):
			class = "added"
		case strings.HasPrefix(l, "-"):
			class = "gone"
		}
		d.Lines = append(d.Lines, diffLine{class, excerpt(strings.TrimSuffix(l, "\r"), 500)})
	}
	return d
}
