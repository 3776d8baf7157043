package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// The view is read again when states have changed, at most once in topLeast, and after topTick in any case,
// because workers and gates change without a change of a state.
const (
	topLeast = time.Second
	topTick  = 5 * time.Second
)

// The escape sequences of the view: the alternate screen without cursor and line wrap, its end, and home.
const (
	topEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	topLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// liveTop redraws the view until q, Ctrl-C or an error.
func (a *app) liveTop(ctx context.Context, r reader) error {
	out := a.plain().out
	restore, err := keysAtOnce(a.in)
	if err != nil {
		return err
	}
	defer restore()
	if _, err := io.WriteString(out, topEnter); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(out, topLeave) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	quit := make(chan struct{})
	go pressed(a.in, quit)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	changed := make(chan struct{}, 1)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		followStates(ctx, r, changed)
	}()
	defer func() {
		stop()
		<-followed
	}()
	var v *topView
	var failure error
	for {
		next, err := readTop(ctx, r)
		if ctx.Err() != nil {
			return exitCode(130)
		}
		switch failure = err; {
		case err == nil:
			v = next
		case belay.CodeOf(err) != belay.CodeUnavailable:
			return err
		}
		least, tick := time.NewTimer(topLeast), time.NewTimer(topTick)
		var wake chan struct{} // nil until topLeast has passed
		for again := false; !again; {
			if err := a.drawTop(out, v, failure); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return exitCode(130)
			case <-quit:
				return nil
			case <-resized:
			case <-least.C:
				wake = changed
			case <-wake:
				again = true
			case <-tick.C:
				again = true
			}
		}
		least.Stop()
		tick.Stop()
	}
}

// followStates reports to changed that the states of executions have changed, until ctx ends.
func followStates(ctx context.Context, r reader, changed chan<- struct{}) {
	var q belay.StatusQuery
	for ctx.Err() == nil {
		_ = r.Follow(ctx, q, func(n belay.StatusNews) error {
			if n.Position != "" {
				q.After = n.Position
			}
			select {
			case changed <- struct{}{}:
			default:
			}
			return nil
		}) // without the stream, the tick refreshes the view
		select {
		case <-ctx.Done():
		case <-time.After(topTick):
		}
	}
}

// drawTop draws a view in the size of the terminal.
func (a *app) drawTop(out io.Writer, v *topView, failure error) error {
	columns, rows := screen.Size(out)
	if columns == 0 || rows == 0 {
		columns, rows = 80, 24
	}
	var text bytes.Buffer
	to := *a
	to.out = marked{&text, a.coloured(out)}
	if v != nil {
		if err := to.printTop(v); err != nil {
			return err
		}
	}
	head := "belay top · " + time.Now().Format(time.TimeOnly) + " · q quits"
	if failure != nil {
		head = "belay: no answer; trying again: " + screen.Line(failure.Error())
	}
	lines := append([]string{head}, strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
	if len(lines) > rows {
		more := fmt.Sprintf("… %d more lines", len(lines)-rows+1)
		lines = append(lines[:rows-1], more)
	}
	frame := []byte("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			frame = append(frame, '\n')
		}
		frame = append(frame, screen.Paint([]byte(screen.Cut(line, columns)))...)
		frame = append(frame, "\x1b[K"...)
	}
	_, err := out.Write(append(frame, "\x1b[J"...))
	return err
}

// marked collects text for the screen and keeps the marks of its words until the lines are cut.
type marked struct {
	*bytes.Buffer
	paints bool
}

// Paints reports whether words are marked.
func (m marked) Paints() bool { return m.paints }

// Raw returns the writer for text with marks.
func (m marked) Raw() io.Writer { return m.Buffer }

// KeepsMarks says that screen.Write passes the marks on.
func (m marked) KeepsMarks() {}

// keysAtOnce makes a terminal report keys at once and not show them. Ctrl-C stays a signal.
func keysAtOnce(in io.Reader) (restore func(), err error) {
	f, ok := in.(*os.File)
	if !ok {
		return nil, errors.New("standard input is no terminal")
	}
	before, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the settings of the terminal: %w", err)
	}
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &now); err != nil {
		return nil, fmt.Errorf("set the terminal: %w", err)
	}
	return func() { _ = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, before) }, nil
}

// pressed closes quit when the key q is pressed. It ends with its process, or with its input.
func pressed(in io.Reader, quit chan<- struct{}) {
	var key [1]byte
	for {
		if n, err := in.Read(key[:]); err != nil {
			return
		} else if n == 1 && (key[0] == 'q' || key[0] == 'Q') {
			close(quit)
			return
		}
	}
}

// isTerminalIn reports whether an input is a terminal.
func isTerminalIn(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && screen.IsTerminal(f)
}
