package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/belaydev/belay/internal/screen"
)

// screened passes on text as it is fit for a screen. Each Write is a text of its own.
type screened struct{ to io.Writer }

// Write passes p on.
func (s screened) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.to, screen.Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// printJSON writes v as people and programs can read it.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(screen.JSON(w))
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table writes aligned columns.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, head ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c)
	}
	fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
}

// printable is a text in one line that is fit for a screen.
func printable(s string) string { return screen.Line(s) }

func quoted(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strconv.Quote(s)
}

// short is a duration that a person reads at a glance.
func short(d time.Duration) string {
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

// since is how long ago t was; a dash for never.
func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return short(time.Since(t))
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }
