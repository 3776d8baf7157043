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

// view shows a job of belay run on the terminal of its user. The command's output goes to standard
// output and standard error as the command wrote it; Belay's own lines go to standard error. On a
// terminal the last line is a status line with the running step and its duration.
type view struct {
	app   *app
	job   *agent.Job
	quiet bool // set with -o json: standard output gets only the result
	tty   bool
	// out and err receive the command's output. The output of the user's own command is unchanged;
	// from the output of an isolated command, escape sequences are removed.
	out, err io.Writer

	mu       sync.Mutex
	status   string    // the text of the status line; empty for no status line
	since    time.Time // the time at which status was set
	drawn    bool      // whether the status line is on the screen
	midline  bool      // whether the command's output ends in the middle of a line
	replayed bool      // no step ran in this process, so the result comes from an earlier run
	isolated bool      // Held has printed the line about the command's isolation
}

var _ agent.Observer = (*view)(nil)

func newView(a *app, j *agent.Job, isolated bool) *view {
	plain := a.plain()
	v := &view{app: a, job: j, quiet: a.output == "json", out: plain.out, err: plain.err}
	if isolated {
		v.out, v.err = screen.NewWriter(plain.out), screen.NewWriter(plain.err)
	}
	v.tty = screen.IsTerminal(plain.err) && os.Getenv("TERM") != "dumb"
	return v
}

// begin prints the id of the execution. elsewhere is the name of the process that runs the
// execution already, or empty if no process does.
func (v *view) begin(e *belay.Execution, elsewhere string) {
	switch {
	case e.State.Terminal():
		v.replayed = true
		v.say("%s has ended already; no command runs", e.ID)
	case e.State == belay.Paused: // session.work refuses a paused execution with a message
	case elsewhere != "":
		v.replayed = true // true until a step runs in this process
		v.say("%s runs %s already; waiting for its end, and taking it over if that process ends", elsewhere, e.ID)
		v.show("waiting for " + elsewhere)
	case e.Seq > 1:
		v.say("%s goes on", e.ID)
	default:
		v.say("%s", e.ID)
	}
}

// Colours of Belay's own lines on a terminal.
const (
	dim   = "2"
	green = "32"
	red   = "1;31"
)

// endColour is the colour of the last line: green for success, red for any other end.
func endColour(s belay.State) string {
	if s == belay.Succeeded {
		return green
	}
	return red
}

// say prints one of Belay's own lines.
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
	if !v.tty || v.app.color == "never" || v.app.color != "always" && os.Getenv("NO_COLOR") != "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// ranHere records that a step runs in this process.
func (v *view) ranHere() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.replayed = false
}

// Preparing shows that the workspace is being prepared.
func (v *view) Preparing(j *agent.Job) {
	v.ranHere()
	if j.Repo != "" {
		v.show("preparing a workspace of " + j.Repo)
	}
}

// Retrying says that fetching the repository failed with the error why, and that another attempt
// follows.
func (v *view) Retrying(attempt int, why error) {
	v.say("the repository cannot be fetched, so attempt %d follows: %v", attempt, why)
}

// Prepared prints the commit that was checked out.
func (v *view) Prepared(commit string, dirty bool) {
	if commit == "" {
		return
	}
	v.say("workspace at %.12s of %s", commit, v.job.Repo)
	if dirty {
		v.say("the repository has uncommitted changes, which this run does not contain")
	}
}

// Skipped says that a step has finished in an earlier run and does not run again.
func (v *view) Skipped(s agent.StepResult) {
	v.ranHere()
	v.say("%s is done already (%s); belay has restored the files that it changed", stepName(s.Name),
		screen.Short(s.Duration()))
}

// Started says which step runs.
func (v *view) Started(s agent.Step) {
	v.ranHere()
	v.say("%s: %s", stepName(s.Name), stepLine(s))
	v.show(stepName(s.Name))
}

// Held prints, at its first call, the means of the operating system that isolate the command.
func (v *view) Held(by string) {
	if !v.isolated {
		v.isolated = true
		v.say("isolated by: %s", by)
	}
}

// Wrote prints output of the command.
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

// flush writes the output that the screen writers have buffered.
func (v *view) flush() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range []io.Writer{v.out, v.err} {
		if s, ok := w.(*screen.Writer); ok {
			_ = s.Flush() // errors of the output are ignored here and in Wrote
		}
	}
}

// Ended prints how a step ended.
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

// finish prints the summary of a job that has ended.
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
			v.say("get its commits: belay logs %s --name %s > work.bundle && git pull work.bundle", e.ID, c.Bundle)
		}
		if c.Patch != "" {
			v.say("get its other changes: belay logs %s --name %s | git apply", e.ID, c.Patch)
		}
		if c.Lost != "" {
			v.say("not saved: %s", c.Lost)
		}
	}
	if v.replayed {
		v.say("its output: belay logs %s", e.ID)
	}
	if v.replayed && e.State != belay.Succeeded {
		v.say("to run it again: belay retry %s, then the same belay run line", e.ID)
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

// show sets the text of the status line; an empty text removes it.
func (v *view) show(status string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.eraseLocked()
	v.status, v.since = status, time.Now()
	v.drawLocked()
}

// tick redraws the status line with the time that has passed.
func (v *view) tick() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.eraseLocked()
	v.drawLocked()
}

// tickUntil redraws the status line until an answer arrives, and returns the answer.
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
