package repo

import (
	"encoding/xml"
	"strings"
	"testing"
)

// Rule: the picture of the demo in README.md shows a recording in which all promises were kept. Its text can be read
// without seeing it, and follows the reader's preference for light or dark.
func TestTheRecordingOfTheDemo(t *testing.T) {
	raw := read(t, "docs/demo.svg")
	var svg struct {
		Role  string `xml:"role,attr"`
		Named string `xml:"aria-labelledby,attr"`
		Title string `xml:"title"`
		Desc  string `xml:"desc"`
		Style string `xml:"style"`
	}
	if err := xml.Unmarshal([]byte(raw), &svg); err != nil {
		t.Fatal(err)
	}
	if svg.Role != "img" || svg.Named != "title desc" || !strings.Contains(svg.Style, "prefers-color-scheme: dark") ||
		!strings.Contains(svg.Style, "prefers-reduced-motion") {
		t.Errorf("role %q, named by %q, style\n%s", svg.Role, svg.Named, svg.Style)
	}
	if !strings.Contains(read(t, "README.md"), "!["+svg.Title+"](docs/demo.svg)") {
		t.Errorf("README.md does not show the picture with the text %q", svg.Title)
	}
	for _, said := range []string{"$ belay demo --repo .", "kill -9", "is refused (reassigned)", "All promises kept"} {
		if !strings.Contains(svg.Desc, said) {
			t.Errorf("the recording does not say %q; record it again with make recording", said)
		}
	}
}
