package screen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// PrintJSON writes v as indented JSON, with hostile characters escaped.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(JSON(w))
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Table writes aligned columns. If its writer shows colours, a column with the head STATE, and in a table
// without a head the value of the row state, has the colours of the states.
type Table struct {
	*tabwriter.Writer
	to     io.Writer
	text   *bytes.Buffer // the table before it is painted; nil without colours
	column int           // of the states; -1 for none
	headed bool
}

// NewTable makes a table, with a head line if head has cells.
func NewTable(w io.Writer, head ...string) *Table {
	t := &Table{to: w, column: -1}
	if raw(w) != nil {
		t.text = new(bytes.Buffer)
		w = t.text
	}
	t.Writer = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(head) > 0 {
		t.Row(head...)
		t.column, t.headed = stateColumn(head), true
	}
	return t
}

// Row writes one row. Each cell becomes a single line; see Line.
func (t *Table) Row(cells ...string) {
	column := t.column
	if !t.headed && len(cells) == 2 && cells[0] == "state" {
		column = 1
	}
	for i, c := range cells {
		cells[i] = Line(c)
		if i == column {
			cells[i] = Mark(t.to, cells[i])
		}
	}
	fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
}

// Flush writes the table.
func (t *Table) Flush() error {
	if err := t.Writer.Flush(); err != nil || t.text == nil {
		return err
	}
	text := t.text.String()
	t.text.Reset()
	return Write(t.to, text)
}

// Size returns the columns and rows of the terminal w, or zeros if w is none or has no size.
func Size(w io.Writer) (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// Short formats a duration for people.
func Short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Brief returns the beginning of a text, at most limit characters long.
func Brief(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}

// Plural formats a number of things: 1 file, 2 files.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Words joins arguments into a command line, with quotes where necessary, so that a shell splits it
// into the same arguments again.
func Words(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`&|;<>()*?[]#~!{}") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return Line(strings.Join(words, " "))
}
