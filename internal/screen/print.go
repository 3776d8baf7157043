package screen

import (
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

// PrintJSON writes v as people and programs can read it.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(JSON(w))
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Table writes aligned columns.
type Table struct{ *tabwriter.Writer }

// NewTable makes a table; without a head it has none.
func NewTable(w io.Writer, head ...string) *Table {
	t := &Table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.Row(head...)
	}
	return t
}

// Row writes one row, each cell as Line makes it.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = Line(c)
	}
	fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
}

// Short is a duration that a person reads at a glance.
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

// Brief is the beginning of a text, at most limit characters long.
func Brief(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}

// Plural counts things: 1 file, 2 files.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Words joins arguments so that a shell would split them again.
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
