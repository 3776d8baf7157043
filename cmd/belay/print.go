package main

import (
	"io"
	"os"
	"strconv"
	"time"

	"github.com/belaydev/belay/internal/screen"
)

// screened is a writer that escapes the characters that could control a terminal. Each Write is a
// complete text: screened does not recognise an escape sequence that spans two calls.
type screened struct {
	to     io.Writer
	paints bool // colours are shown
}

// Write writes p, escaped.
func (s screened) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.to, screen.Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Paints reports whether tables and lines written to s show colours; see screen.Painter.
func (s screened) Paints() bool { return s.paints }

// Raw returns the writer that passes escape sequences on.
func (s screened) Raw() io.Writer { return s.to }

// colours are the values of --color.
var colours = []string{"auto", "always", "never"}

// coloured reports whether text on w shows colours: with --color auto only on a terminal, unless NO_COLOR is set
// or the terminal is dumb.
func (a *app) coloured(w io.Writer) bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && screen.IsTerminal(w)
}

func quoted(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strconv.Quote(s)
}

// since returns the time that has passed since t as text, and a dash for the zero time.
func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return screen.Short(time.Since(t))
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }
