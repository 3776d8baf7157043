package main

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// cell and height are the size of a character, and margin is the space around the text.
	cell, height, margin = 7.8, 19.0, 20.0
	fontSize             = 13
	// maxPause is the longest time between two lines in the picture.
	maxPause = 1200 * time.Millisecond
)

// look is the style sheet. The colours have a contrast of at least 4.5 to their background.
const look = `
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328;
  white-space: pre; }
.w { fill: #ffffff; stroke: #d1d9e0; }
.b { font-weight: 700; }
.d { fill: #59636e; }
.c31 { fill: #c5221f; } .c32 { fill: #1a7f37; } .c33 { fill: #8a5a00; }
.c34 { fill: #0860ca; } .c35 { fill: #8250df; } .c36 { fill: #136f76; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .w { fill: #0d1117; stroke: #3d444d; }
  .d { fill: #9198a1; }
  .c31 { fill: #ff7b72; } .c32 { fill: #3fb950; } .c33 { fill: #d29922; }
  .c34 { fill: #58a6ff; } .c35 { fill: #d2a8ff; } .c36 { fill: #39c5cf; }
}
@media (prefers-reduced-motion: no-preference) {
  .l { animation: show 1ms linear both; }
  @keyframes show { from { opacity: 0; } to { opacity: 1; } }
}
`

// draw draws lines below a prompt.
func draw(prompt, title string, lines []line) string {
	most := utf8.RuneCountInString("$ " + prompt)
	var said []string
	for _, l := range lines {
		most = max(most, utf8.RuneCountInString(l.text()))
		said = append(said, l.text())
	}
	w := 2*margin + cell*float64(most)
	h := 2*margin + height*float64(len(lines)+1)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" `+
		`role="img" aria-labelledby="title desc">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n", escape(title),
		escape("$ "+prompt+"\n"+strings.Join(said, "\n")))
	fmt.Fprintf(&b, "<style>%s</style>\n", look)
	fmt.Fprintf(&b, `<rect class="w" x="0.5" y="0.5" width="%.0f" height="%.0f" rx="8"/>`+"\n", w-1, h-1)
	fmt.Fprintf(&b, `<text x="%.0f" y="%.1f"><tspan class="d">$ </tspan><tspan class="b">%s</tspan></text>`+"\n",
		margin, margin+fontSize, escape(prompt))
	var at, before time.Duration
	for i, l := range lines {
		at += min(l.at-before, maxPause)
		before = l.at
		if len(l.spans) == 0 {
			continue
		}
		y := margin + fontSize + height*float64(i+1)
		fmt.Fprintf(&b, `<text class="l" style="animation-delay:%dms" x="%.0f" y="%.1f" textLength="%.1f" `+
			`xml:space="preserve">`, at.Milliseconds(), margin, y, cell*float64(utf8.RuneCountInString(l.text())))
		for _, s := range l.spans {
			if class := s.style.class(); class != "" {
				fmt.Fprintf(&b, `<tspan class="%s">%s</tspan>`, class, escape(s.text))
			} else {
				b.WriteString(escape(s.text))
			}
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (l line) text() string {
	var b strings.Builder
	for _, s := range l.spans {
		b.WriteString(s.text)
	}
	return b.String()
}

// class returns the classes of a style in the style sheet.
func (s style) class() string {
	var all []string
	if s.bold {
		all = append(all, "b")
	}
	if s.dim {
		all = append(all, "d")
	}
	if s.colour != 0 {
		all = append(all, fmt.Sprint("c", s.colour))
	}
	return strings.Join(all, " ")
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder never fails
	return strings.ReplaceAll(b.String(), "&#xA;", "\n")
}
