package webui

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// deeds are all deeds, in the order in which pages offer them.
var deeds = slices.Concat(commonDeeds, gateTermDeeds, webhookDeeds, targetDeeds)

var commonDeeds = []deed{
	{
		of: ofWorker, name: "cordon", label: "Cordon", do: cordon(false),
		about: "The worker claims nothing more until an operator allows it again. Its present runs go on.",
	},
	{
		of: ofWorker, name: "uncordon", label: "Uncordon", do: cordon(true),
		about: "The worker claims executions again.",
	},
	{
		of: ofWorker, name: "drain", label: "Drain", danger: true, unexplained: true,
		about: "The worker claims nothing more, and its session ends after its present runs.",
		do: func(ctx context.Context, b belay.Backend, o order) (string, error) {
			id, err := belay.ParseWorkerID(o.id)
			if err != nil {
				return "", nothingThere()
			}
			return "", b.Drain(ctx, id)
		},
	},
	{
		of: ofGate, name: "pause", label: "Pause", do: changeGate(belay.GatePause, fillPause),
		fields: []field{untilField},
		about:  "No execution passes the gate until an operator resumes it. Present runs go on.",
	},
	{
		of: ofGate, name: "resume", label: "Resume", do: changeGate(belay.GateResume, nil),
		about: "The pause ends, and waiting executions pass as far as the other parts of the gate allow.",
	},
	{
		of: ofGate, name: "open", label: "Force the breaker open", danger: true,
		do:    changeGate(belay.GateForceOpen, nil),
		about: "No step with this target starts until an operator changes it.",
	},
	{
		of: ofGate, name: "close", label: "Force the breaker closed", danger: true,
		do:    changeGate(belay.GateForceClosed, nil),
		about: "Steps with this target start whatever happens, until an operator changes it.",
	},
	{
		of: ofGate, name: "auto", label: "Let the breaker decide", do: changeGate(belay.GateAutomatic, nil),
		about: "The circuit breaker opens and closes by itself again.",
	},
	{
		of: ofSchedule, name: "pause", label: "Pause", do: changeSchedule(belay.SchedulePauseAction),
		about: "Slots whose times come are not started until an operator resumes the schedule.",
	},
	{
		of: ofSchedule, name: "resume", label: "Resume", do: changeSchedule(belay.ScheduleResume),
		about: "The schedule starts its next slot on time.",
	},
	{
		of: ofSchedule, name: "run", label: "Start one now", do: changeSchedule(belay.ScheduleRun),
		about: "The schedule starts an execution now, whether or not it is paused.",
	},
	{
		of: ofSchedule, name: "remove", label: "Remove", danger: true, do: changeSchedule(belay.ScheduleRemove),
		about: "The schedule is removed and starts nothing more. Executions that it has started go on.",
	},
	{
		of: ofLetter, name: "fix", label: "Fixed", do: changeLetter(belay.DeadLetterFix),
		about: "The dead letter is resolved: a person has repaired the consequences. The execution stays as it ended.",
	},
	{
		of: ofLetter, name: "discard", label: "Not needed", do: changeLetter(belay.DeadLetterDiscard),
		about: "The dead letter is resolved: the work is not needed. The execution stays as it ended.",
	},
	{
		of: ofLetter, name: "note", label: "Add a note", do: changeLetter(belay.DeadLetterNoted),
		about: "The dead letter stays open, and everybody who looks at it sees the note.",
	},
	{
		of: ofGroup, name: "note", label: "Add a note to all", do: noteGroup,
		about: fmt.Sprintf("The open dead letters of the group, the newest %d at most, get the note and stay open.",
			mostNoted),
	},
}

// mostNoted is how many dead letters of a group get a note.
const mostNoted = 200

// noteGroup adds a note to the open dead letters of a group. A repetition adds no note twice, since the operation ids
// depend only on the form and the dead letter.
func noteGroup(ctx context.Context, b belay.Backend, o order) (string, error) {
	if o.reason == "" {
		return "", &belay.Error{Code: belay.CodeInvalid, Message: "write the note"}
	}
	found, err := b.DeadLetters(ctx, belay.DeadLetterFilter{Fingerprint: o.id, Limit: mostNoted})
	if err != nil {
		return "", err
	}
	for i := range found.DeadLetters[:min(len(found.DeadLetters), mostNoted)] {
		l := &found.DeadLetters[i]
		op := belay.ChildID(belay.ExecutionID(o.op), l.Generation, "note "+l.Execution.String())
		_, err := b.ChangeDeadLetter(ctx, belay.DeadLetterChange{
			Execution: l.Execution, Generation: l.Generation, Action: belay.DeadLetterNoted, Actor: o.actor,
			Note: o.reason, Op: belay.OpID(op),
		})
		if code := belay.CodeOf(err); err != nil && code != belay.CodeConflict && code != belay.CodeNotFound {
			return "", err // a letter that was resolved or deleted meanwhile needs no note
		}
	}
	return "", nil
}

func changeLetter(a belay.DeadLetterAction) doer {
	return func(ctx context.Context, b belay.Backend, o order) (string, error) {
		text, generation, _ := strings.Cut(o.id, ".")
		id, err := belay.ParseExecutionID(text)
		n, err2 := strconv.Atoi(generation)
		if err != nil || err2 != nil || n < 1 {
			return "", nothingThere()
		}
		_, err = b.ChangeDeadLetter(ctx, belay.DeadLetterChange{
			Execution: id, Generation: n, Action: a, Actor: o.actor, Note: o.reason, Op: o.op,
		})
		return "", err
	}
}

func cordon(off bool) doer {
	return func(ctx context.Context, b belay.Backend, o order) (string, error) {
		id, err := belay.ParseWorkerID(o.id)
		if err != nil {
			return "", nothingThere()
		}
		return "", b.Cordon(ctx, belay.Cordon{Worker: id, Off: off, Actor: o.actor, Reason: o.reason})
	}
}

// changeGate returns the function that changes a gate. fill sets the fields of the change from the form; it may be nil.
func changeGate(a belay.GateAction, fill func(url.Values, *belay.GateChange) error) doer {
	return func(ctx context.Context, b belay.Backend, o order) (string, error) {
		c := belay.GateChange{Gate: belay.GateID(o.id), Action: a, Actor: o.actor, Reason: o.reason, Op: o.op}
		if fill != nil {
			if err := fill(o.form, &c); err != nil {
				return "", err
			}
		}
		_, err := b.ChangeGate(ctx, c)
		return "", err
	}
}

func changeSchedule(a belay.ScheduleAction) doer {
	return func(ctx context.Context, b belay.Backend, o order) (string, error) {
		_, err := b.ChangeSchedule(ctx, belay.ScheduleChange{
			Name: o.id, Action: a, Actor: o.actor, Reason: o.reason, Op: o.op,
		})
		if a == belay.ScheduleRemove {
			return "/schedules", err
		}
		return "", err
	}
}
