package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/screen"
)

// view shows a job as it happens: the command's output goes to standard output
// and standard error as the command wrote it, what Belay says goes to standard
// error. On a terminal the last line says what runs and for how long.
type view struct {
	app   *app
	job   *agent.Job
	quiet bool // json: nothing but the result on standard output
	tty   bool
	// out and err are where the command's output goes: as it is where the command is its
	// user's own, and else as it is fit for a screen.
	out, err io.Writer

	mu       sync.Mutex
	status   string    // what the last line says; empty for none
	since    time.Time // when that began
	drawn    bool
	midline  bool // the output's last line is not ended
	began    time.Time
	replayed bool // nothing was run: the result is an earlier one
	held     bool // it was said by what
}

var _ agent.Observer = (*view)(nil)

func newView(a *app, j *agent.Job, isolated bool) *view {
	plain := a.plain()
	v := &view{app: a, job: j, quiet: a.output == "json", began: time.Now(), out: plain.out, err: plain.err}
	if isolated {
		v.out, v.err = screen.NewWriter(plain.out), screen.NewWriter(plain.err)
	}
	v.tty = screen.IsTerminal(plain.err) && os.Getenv("TERM") != "dumb"
	return v
}

// begin says which execution this is, and who runs it already, if anybody does.
func (v *view) begin(e *belay.Execution, elsewhere string) {
	switch {
	case e.State.Terminal():
		v.replayed = true
		v.say("%s has ended before; nothing is run", e.ID)
	case e.State == belay.Paused: // said by what refuses it
	case elsewhere != "":
		v.replayed = true // until something is run here
		v.say("%s is run by %s already; this waits for its end, and takes over if that goes", e.ID, elsewhere)
		v.show("waiting for " + elsewhere)
	case e.Seq > 1:
		v.say("%s goes on", e.ID)
	default:
		v.say("%s", e.ID)
	}
}

// Colours of what Belay says on a terminal.
const (
	dim   = "2"
	green = "32"
	red   = "1;31"
)

// endColour is the colour of an end: what failed looks otherwise than what succeeded.
func endColour(s belay.State) string {
	if s == belay.Succeeded {
		return green
	}
	return red
}

// say writes a line of Belay's own.
func (v *view) say(format string, args ...any) { v.sayIn(dim, format, args...) }

func (v *view) sayIn(colour, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.eraseLocked()
	if v.midline {
		fmt.Fprintln(v.app.err)
		v.midline = false
	}
	fmt.Fprintln(v.app.plain().err, v.paint(colour, "belay: "+screen.Line(fmt.Sprintf(format, args...))))
	v.drawLocked()
}

func (v *view) paint(colour, s string) string {
	if !v.tty || os.Getenv("NO_COLOR") != "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// here notes that something is run in this process.
func (v *view) here() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.replayed = false
}

// Preparing shows that the workspace is being made.
func (v *view) Preparing(j *agent.Job) {
	v.here()
	if j.Repo != "" {
		v.show("preparing a workspace of " + j.Repo)
	}
}

// Retrying says that the repository could not be reached, and is tried again.
func (v *view) Retrying(attempt int, why error) {
	v.say("attempt %d to fetch the repository follows: %v", attempt, why)
}

// Prepared says what was checked out.
func (v *view) Prepared(commit string, dirty bool) {
	if commit == "" {
		return
	}
	v.say("workspace at %.12s of %s", commit, v.job.Repo)
	if dirty {
		v.say("the repository has changes that are not committed; they are not part of this run")
	}
}

// Skipped says that a step is not run again.
func (v *view) Skipped(s agent.StepResult) {
	v.here()
	v.say("%s is done already (%s); what it left is restored", stepName(s.Name), screen.Short(s.Duration()))
}

// Started says which step runs.
func (v *view) Started(s agent.Step) {
	v.here()
	v.say("%s: %s", stepName(s.Name), stepLine(s))
	v.show(stepName(s.Name))
}

// Held says what holds the command, once.
func (v *view) Held(by string) {
	if !v.held {
		v.held = true
		v.say("held by: %s", by)
	}
}

// Wrote passes the command's output on.
func (v *view) Wrote(stderr bool, b []byte) {
	if v.quiet || len(b) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.eraseLocked()
	w := v.out
	if stderr {
		w = v.err
	}
	_, _ = w.Write(b)
	v.midline = b[len(b)-1] != '\n'
	v.drawLocked()
}

// flush passes on what was held back of the output.
func (v *view) flush() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range []io.Writer{v.out, v.err} {
		if s, ok := w.(*screen.Writer); ok {
			_ = s.Flush() // as with what was written before
		}
	}
}

// Ended says how a step ended.
func (v *view) Ended(s agent.StepResult) {
	v.flush()
	v.show("")
	how := "done"
	switch {
	case s.TimedOut:
		how = "timed out"
	case s.Cancelled:
		how = "was stopped"
	case s.ExitCode != 0:
		how = fmt.Sprintf("failed with exit code %d", s.ExitCode)
	}
	colour := dim
	if how != "done" {
		colour = red
	}
	v.sayIn(colour, "%s %s after %s", stepName(s.Name), how, screen.Short(s.Duration()))
}

// finish writes the summary.
func (v *view) finish(e *belay.Execution, r *agent.Result, code int) {
	v.show("")
	line := fmt.Sprintf("%s, exit code %d, in %s", e.State, code, took(e))
	if what := changed(r.Changes); what != "" {
		line += "; changed " + what
	}
	v.sayIn(endColour(e.State), "%s", line)
	if e.Error != nil && e.State == belay.Failed && code != r.ExitCode {
		v.say("%s", e.Error.Message)
	}
	for _, note := range r.Notes {
		v.say("note: %s", note)
	}
	if c := r.Changes; c != nil {
		if c.Bundle != "" && c.Commits > 0 {
			v.say("its commits: belay logs %s --name %s > work.bundle && git pull work.bundle", e.ID, c.Bundle)
		}
		if c.Patch != "" {
			v.say("the rest:    belay logs %s --name %s | git apply", e.ID, c.Patch)
		}
		if c.Lost != "" {
			v.say("not kept: %s", c.Lost)
		}
	}
	if v.replayed {
		v.say("its output: belay logs %s", e.ID)
	}
	if v.replayed && e.State != belay.Succeeded {
		v.say("to run it again: belay retry %s, then this line", e.ID)
	}
	v.say("history: belay get %s", e.ID)
}

func changed(c *agent.Changes) string {
	if c == nil {
		return ""
	}
	var parts []string
	if c.Commits > 0 {
		parts = append(parts, screen.Plural(c.Commits, "commit"))
	}
	if c.Files > 0 {
		parts = append(parts, fmt.Sprintf("%s (+%d −%d)", screen.Plural(c.Files, "file"), c.Insertions, c.Deletions))
	}
	return strings.Join(parts, ", ")
}

// show sets what the last line says.
func (v *view) show(status string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.eraseLocked()
	v.status, v.since = status, time.Now()
	v.drawLocked()
}

// tick redraws the last line as time goes on.
func (v *view) tick() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.eraseLocked()
	v.drawLocked()
}

// tickUntil keeps the last line alive until there is an answer.
func (v *view) tickUntil(answer <-chan error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-answer:
			return err
		case <-tick.C:
			v.tick()
		}
	}
}

func (v *view) eraseLocked() {
	if v.drawn {
		fmt.Fprint(v.app.plain().err, "\r\x1b[K")
		v.drawn = false
	}
}

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

func (v *view) drawLocked() {
	if !v.tty || v.status == "" || v.midline {
		return
	}
	d := time.Since(v.since)
	mark := spinner[int(d/(100*time.Millisecond))%len(spinner)]
	line := fmt.Sprintf("%c %s · %s", mark, screen.Line(v.status), screen.Short(d.Truncate(100*time.Millisecond)))
	fmt.Fprint(v.app.plain().err, v.paint(dim, screen.Brief(line, 78)))
	v.drawn = true
}

func stepName(name string) string {
	if name == "command" {
		return "the command"
	}
	return "step " + name
}

func stepLine(s agent.Step) string {
	if len(s.Argv) == 3 && s.Argv[0] == "sh" && s.Argv[1] == "-c" {
		return screen.Brief(s.Argv[2], 120)
	}
	return screen.Brief(screen.Words(s.Argv), 120)
}
