package main

import (
	"io"
	"strconv"
	"time"

	"github.com/belaydev/belay/internal/screen"
)

// screened is a writer that escapes the characters that could control a terminal. Each Write is a
// complete text: screened does not recognise an escape sequence that spans two calls.
type screened struct{ to io.Writer }

// Write writes p, escaped.
func (s screened) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.to, screen.Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
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
