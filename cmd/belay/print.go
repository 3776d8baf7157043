package main

import (
	"io"
	"strconv"
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

func quoted(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strconv.Quote(s)
}

// since is how long ago t was; a dash for never.
func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return screen.Short(time.Since(t))
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }
