package definition

import (
	"fmt"
	"html"
	"strings"
)

// The sizes of the drawing, in pixels.
const (
	boxWidth, boxHeight = 190, 46
	gapX, gapY          = 60, 18
	margin              = 12
)

// SVG draws the graph from left to right. The drawing has no script and loads nothing.
func (d *Document) SVG() string {
	ranks := d.Ranks()
	type place struct{ x, y int }
	places := map[string]place{}
	height := 0
	for i, rank := range ranks {
		for j, t := range rank {
			places[t.ID] = place{margin + i*(boxWidth+gapX), margin + j*(boxHeight+gapY)}
		}
		height = max(height, 2*margin+len(rank)*(boxHeight+gapY)-gapY)
	}
	width := 2*margin + len(ranks)*(boxWidth+gapX) - gapX
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" `+
		`font-family="sans-serif" font-size="12">`+"\n<title>%s</title>\n", width, height, width, height, escaped(d.Name))
	b.WriteString(`<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" ` +
		`orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>` + "\n")
	for _, t := range d.Tasks {
		for _, id := range t.Needs {
			from, to := places[id], places[t.ID]
			x1, y1, x2, y2 := from.x+boxWidth, from.y+boxHeight/2, to.x, to.y+boxHeight/2
			dash := ""
			if t.Undoes {
				dash = ` stroke-dasharray="4 3"`
			}
			fmt.Fprintf(&b, `<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="#667"%s marker-end="url(#arrow)"/>`+"\n",
				x1, y1, x1+gapX/2, y1, x2-gapX/2, y2, x2, y2, dash)
		}
	}
	for _, t := range d.Tasks {
		p := places[t.ID]
		fmt.Fprintf(&b, `<g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="#f4f6fa" `+
			`stroke="#667"/>`, escaped(t.ID+": "+t.Brief()), p.x, p.y, boxWidth, boxHeight)
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-weight="bold" fill="#223">%s</text>`, p.x+10, p.y+19,
			escaped(short(t.ID, 24)))
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#556">%s</text></g>`+"\n", p.x+10, p.y+36, escaped(short(t.Brief(), 28)))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// escaped makes a text safe in SVG, without the control characters that XML does not allow.
func escaped(s string) string {
	return html.EscapeString(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == 0xfffe || c == 0xffff {
			return ' '
		}
		return c
	}, s))
}

func short(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
