package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Vitals show whether an engine does its work. They are available even while the store does not
// answer.
type Vitals struct {
	store.Vitals
	// Sweep, Mark and Commit are the durations for which the engine has failed to search for due
	// work, to write a mark of life (a time that shows that it runs) although sessions are open,
	// and to commit although there were commands. They are 0 while the engine works.
	Sweep, Mark, Commit time.Duration
	// Locked are the tables that another transaction has locked, and LockedFor is how long they
	// have been locked.
	Locked    store.Tables
	LockedFor time.Duration
	// Refused is the error of the newest write if the store refused it.
	Refused error
}

const (
	// StillAfter is how long an engine may do nothing before it counts as stalled: much longer than
	// any commit takes, and shorter than the usual TTL.
	StillAfter = 10 * time.Second
	// lockedAfter is how long a table may be locked before this is reported: longer than a
	// migration locks a table.
	lockedAfter = 2 * time.Second
	// recent is how long the engine reports that a new epoch of the store has begun, for example
	// because a backup was restored or a standby was promoted.
	recent = 7 * 24 * time.Hour
)

// Vitals returns the present values.
func (e *Engine) Vitals() Vitals {
	v := Vitals{Vitals: e.store.Vitals(), Refused: e.committer.writable()}
	e.committer.health.fillStalls(&v)
	return v
}

// Still returns the task that the engine has not done for the longest time, and for how long; "" if
// the engine does all its tasks.
func (v *Vitals) Still() (what string, since time.Duration) {
	for _, x := range []struct {
		what  string
		since time.Duration
	}{{"looked for what is due", v.Sweep}, {"left a mark of life", v.Mark}, {"committed anything", v.Commit}} {
		if x.since > StillAfter && x.since > since {
			what, since = x.what, x.since
		}
	}
	return what, since
}

// Trouble returns the error with which the server refuses new work, nil if it can accept work. The
// message contains nothing confidential; the wrapped error is for the log.
func (v *Vitals) Trouble() error {
	what, since := v.Still()
	refuse := func(err error, format string, args ...any) error {
		return &belay.Error{Code: belay.CodeUnavailable, Message: fmt.Sprintf(format, args...), Err: err}
	}
	var known *belay.Error
	switch {
	case v.Damage != nil:
		return refuse(v.Damage, "what is stored is damaged: stop the server and restore a backup")
	case v.LockedFor > lockedAfter:
		return refuse(nil, "another transaction has locked tables that writes need: %s, for %s",
			strings.Join(v.Locked.Names(), ", "), v.LockedFor.Round(time.Second))
	case errors.As(v.Refused, &known):
		return refuse(v.Refused, "the store takes no writes: %s", known.Message)
	case v.Refused != nil:
		return refuse(v.Refused, "the store takes no writes")
	case what != "":
		return refuse(nil, "the engine stands still: it has not %s for %s", what, since.Round(time.Second))
	}
	return nil
}

// Notes returns messages for operators about problems in spite of which the engine works.
func (v *Vitals) Notes(now time.Time) []string { return Notes(v.Vitals, now) }

// EpochBegan is the approximate start of the epoch; zero for the first epoch.
func (v *Vitals) EpochBegan() time.Time {
	began, _ := machine.EpochBegan(v.Epoch)
	return began.Time()
}

// Notes returns messages for operators about problems of a store in spite of which it can be used.
func Notes(v store.Vitals, now time.Time) []string {
	var notes []string
	if v.Ahead.Abs() >= minReportedSkew {
		notes = append(notes, fmt.Sprintf(
			"the clock was set back, or had run ahead: the store's time is %s ahead of it and goes on at its "+
				"normal pace",
			v.Ahead.Round(time.Second)))
	}
	if began, ok := machine.EpochBegan(v.Epoch); ok && now.Sub(began.Time()) < recent {
		notes = append(notes, fmt.Sprintf(
			"an epoch began about %s, as after a failover or a restore: writes that were acknowledged before it "+
				"may be gone",
			began.Time().Format(time.DateTime+" UTC")))
	}
	return notes
}

// Vitals returns the store's own view of its state.
func (r *Reader) Vitals() store.Vitals { return r.store.Vitals() }

// Explain says why an execution is in its state, and adds the problems of the engine that may keep
// it there.
func (e *Engine) Explain(ctx context.Context, id belay.ExecutionID) (belay.Explanation, error) {
	x, err := e.Reader.Explain(ctx, id)
	v := e.Vitals()
	var trouble *belay.Error
	if errors.As(v.Trouble(), &trouble) && belay.CodeOf(err) == belay.CodeUnavailable && err != nil {
		return x, &belay.Error{Code: trouble.Code, Op: "explain " + id.String(), Message: trouble.Message, Err: err}
	}
	if err != nil || x.State.Terminal() {
		return x, err
	}
	if trouble != nil {
		x.Facts = append(x.Facts, trouble.Message)
	}
	x.Facts = append(x.Facts, v.Notes(time.Now())...)
	return x, nil
}
