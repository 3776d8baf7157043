package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/screen"
)

// printJobDiff prints the changes of an ended job. A diff contains names and texts that an agent chose:
// on a terminal, characters that could control it are left out.
func (a *app) printJobDiff(ctx context.Context, r reader, e *belay.Execution) error {
	diff, cut, err := agent.ReadDiff(ctx, e, r.Chunks)
	if err != nil {
		return err
	}
	out := a.plain().out
	switch {
	case len(diff) == 0:
		fmt.Fprintln(a.err, "the job changed no files")
	case screen.IsTerminal(out) || a.color == "always":
		err = paintDiff(out, diff, a.coloured(out))
	default:
		_, err = out.Write(diff)
	}
	if cut && err == nil {
		fmt.Fprintln(a.err, "this is only the beginning of the diff; for all changes: belay workspaces apply "+
			e.ID.String())
	}
	return err
}

// paintDiff writes a diff without control characters, with a colour for each kind of line.
func paintDiff(w io.Writer, diff []byte, coloured bool) error {
	inside := false // in a hunk, whose lines may begin like headers
	var b bytes.Buffer
	for line := range strings.Lines(string(diff)) {
		colour := ""
		switch {
		case strings.HasPrefix(line, "@@"):
			colour, inside = "36", true
		case strings.HasPrefix(line, "diff "):
			colour, inside = "1", false
		case !inside:
			colour = "1"
		case strings.HasPrefix(line, "+"):
			colour = "32"
		case strings.HasPrefix(line, "-"):
			colour = "31"
		}
		text := cleanLines(strings.TrimRight(line, "\r\n"))
		if coloured && colour != "" {
			text = "\x1b[" + colour + "m" + text + "\x1b[0m"
		}
		b.WriteString(text + "\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}
