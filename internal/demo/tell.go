package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// byBelay is written in place of a worker's name in lines about the engine.
const byBelay = "belay"

// teller writes the story of a demo: a line for each event, with the time since the beginning and
// the name of the worker.
type teller struct {
	out    io.Writer
	colour bool
	began  time.Time
}

func newTeller(o Options) *teller {
	// The teller writes to Terminal, because it writes colours and escapes the texts itself.
	t := &teller{out: o.Terminal, colour: coloured(o.Terminal), began: time.Now()}
	if o.JSON {
		t.out = io.Discard
	}
	return t
}

// coloured reports whether w is a terminal whose user wants colours.
func coloured(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && screen.IsTerminal(w)
}

// Colours of a terminal.
const (
	dim    = "2"
	bold   = "1"
	red    = "1;31"
	green  = "1;32"
	purple = "35"
	cyan   = "36"
)

func (t *teller) paint(colour, s string) string {
	if !t.colour || colour == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// title writes what the demo shows, and on which repository.
func (t *teller) title(repo string) {
	fmt.Fprintf(t.out, "%s\n%s\n\n", t.paint(bold, "Five steps, two workers, and a kill -9 in the middle of step 3."),
		t.paint(dim, "on a clone of "+screen.Line(repo)))
}

// begin starts the clock of the story and writes its first line.
func (t *teller) begin(text string) {
	t.began = time.Now()
	t.line(byBelay, text)
}

// line writes a line about a worker or the engine.
func (t *teller) line(who, text string) {
	colours := map[string]string{"anna": cyan, "bert": purple, byBelay: dim}
	t.write(t.paint(colours[who], fmt.Sprintf("%-5s", who)), screen.Line(text))
}

// ended writes that a worker has finished a step.
func (t *teller) ended(n note) { t.line(n.from.name, stepTitle(n.Step)+"is done: "+n.Text) }

// kill prints that the demo has killed a worker.
func (t *teller) kill(text string) { t.write(t.paint(red, "  ✗  "), t.paint(red, screen.Line(text))) }

func (t *teller) write(who, text string) {
	at := t.paint(dim, fmt.Sprintf("%5.1fs", time.Since(t.began).Seconds()))
	fmt.Fprintf(t.out, "%s  %s  %s\n", at, who, text)
}

// judgement is a demo's result as JSON.
type judgement struct {
	Held     bool              `json:"held"`
	Breaches []string          `json:"breaches,omitempty"`
	ID       belay.ExecutionID `json:"execution"`
	State    belay.State       `json:"state"`
	Steps    []stepOf          `json:"steps"`
	Killed   string            `json:"killed"`
	// OldToken is the token of the dead worker, NewToken the token of its successor.
	OldToken  belay.Token   `json:"old_token"`
	NewToken  belay.Token   `json:"new_token"`
	Successor string        `json:"successor"`
	LostMS    int64         `json:"lost_after_ms"`
	TakenMS   int64         `json:"taken_over_after_ms"`
	LateWrite string        `json:"late_write"`
	Events    []belay.Event `json:"events"`
}

// judge compares the facts with the promises and writes the result of the demo. It returns an error
// if Belay broke a promise.
func (d *demo) judge() error {
	f := &d.facts
	breaches := f.breaches()
	j := judgement{
		Held: len(breaches) == 0, Breaches: breaches, ID: f.Execution, State: f.State, Steps: f.steps(),
		Killed:   f.Victim,
		OldToken: f.OldToken, NewToken: f.NewToken, Successor: f.Successor, Events: f.Events,
		LostMS: f.Lost.Sub(f.Killed).Milliseconds(), TakenMS: f.TakenOver.Sub(f.Killed).Milliseconds(),
	}
	if f.Late != nil {
		j.LateWrite = f.Late.Error()
	}
	if d.opt.JSON {
		if err := screen.PrintJSON(d.opt.Out, j); err != nil {
			return err
		}
	} else {
		d.tell.summary(&j)
		if d.opt.Data != "" {
			fmt.Fprintf(d.opt.Out, "\nits history: belay get %s --data %s\n", j.ID, screen.Words([]string{d.dir}))
		}
	}
	if len(breaches) > 0 {
		return &belay.Error{
			Code: belay.CodeInternal, Message: "Belay broke " + screen.Plural(len(breaches), "promise"),
		}
	}
	return nil
}

// summary prints which worker ran which step, how long the takeover took, and how the late write
// was refused.
func (t *teller) summary(j *judgement) {
	fmt.Fprintln(t.out)
	tab := screen.NewTable(t.out, "STEP", "", "BEGUN BY", "SAVED BY", "TOKEN")
	for i, s := range j.Steps {
		var begun []string
		for _, l := range s.Begun {
			begun = append(begun, l.Worker)
		}
		tab.Row(fmt.Sprint(i+1), s.Name, strings.Join(begun, ", then "), s.SavedBy, fmt.Sprint(s.Token))
	}
	_ = tab.Flush() // an error could not be printed either
	fmt.Fprintln(t.out)
	if j.Killed != "" {
		say := func(what, format string, args ...any) {
			fmt.Fprintf(t.out, "%s  %s\n", t.paint(dim, fmt.Sprintf("%-10s", what)),
				screen.Line(fmt.Sprintf(format, args...)))
		}
		ms := func(n int64) string { return screen.Short(time.Duration(n) * time.Millisecond) }
		say("noticed", "%s after the kill", ms(j.LostMS))
		say("taken over", "%s after the kill, by %s with token %d; %s had %d", ms(j.TakenMS), j.Successor, j.NewToken,
			j.Killed, j.OldToken)
		say("refused", "%s", screen.Line(j.LateWrite))
	}
	fmt.Fprintln(t.out)
	if j.Held {
		fmt.Fprintln(t.out, t.paint(green,
			"All promises kept: every result was saved once, no finished step ran again, the old token was refused."))
	}
	for _, b := range j.Breaches {
		fmt.Fprintln(t.out, t.paint(red, "Broken: "+screen.Line(b)))
	}
}
