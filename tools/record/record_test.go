package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rule: the picture of a command that really runs has its lines in order and with their colours, as well-formed XML
// with a title and a description. Hostile output stays text.
func TestACommandIsDrawn(t *testing.T) {
	to := filepath.Join(t.TempDir(), "x.svg")
	script := `printf 'one \033[1;31mred\033[0m <script>&\n\n\033[2mtwo\033[0m ✗\n'; test -t 1`
	if err := record(to, ".", "a & b", "A <title>", []string{"sh", "-c", script}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Title string `xml:"title"`
		Desc  string `xml:"desc"`
		Text  []struct {
			Inner string `xml:",innerxml"`
		} `xml:"text"`
	}
	if err := xml.Unmarshal(raw, &svg); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`<tspan class="d">$ </tspan><tspan class="b">a &amp; b</tspan>`,
		`one <tspan class="b c31">red</tspan> &lt;script&gt;&amp;`, `<tspan class="d">two</tspan> ✗`,
	}
	for i, w := range want {
		if len(svg.Text) != len(want) || svg.Text[i].Inner != w {
			t.Fatalf("the picture has the texts %q", svg.Text)
		}
	}
	if svg.Title != "A <title>" || svg.Desc != "$ a & b\none red <script>&\n\ntwo ✗" {
		t.Errorf("the title is %q, the description %q", svg.Title, svg.Desc)
	}
}

// Rule: a command that fails, and output that a picture of lines cannot show, are errors, and leave no file.
func TestOtherOutputIsRefused(t *testing.T) {
	for script, want := range map[string]string{
		"exit 3": "exit status 3", `printf '\033[2Jx\n'`: "changes more than colours", `printf 'x'`: "within a line",
		`printf '\007\n'`: "control character", `printf '\033[48;5;1mx\n'`: "cannot draw", `printf '\033Mx\n'`: "escape",
	} {
		to := filepath.Join(t.TempDir(), "x.svg")
		err := record(to, ".", "p", "t", []string{"sh", "-c", script})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
		if _, err := os.Stat(to); err == nil {
			t.Errorf("%s leaves a file", script)
		}
	}
}
