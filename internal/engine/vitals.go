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

// Vitals tell whether an engine does its work. They cost nothing and ask nobody, so
// that they are told while the store does not answer.
type Vitals struct {
	store.Vitals
	// Sweep, Mark and Commit are for how long the engine has not looked for what is due
	// though it should have, has left no mark of life though sessions live, and has
	// committed nothing though there was something; 0 while all goes well.
	Sweep, Mark, Commit time.Duration
	// Locked are the tables that somebody else has locked, LockedFor for how long.
	Locked    store.Tables
	LockedFor time.Duration
	// Refused is why the store did not take the newest write.
	Refused error
}

const (
	// StillAfter is for how long an engine may do nothing before it stands still: much
	// longer than any commit takes, and shorter than the usual TTL.
	StillAfter = 10 * time.Second
	// lockedAfter is for how long a table may be locked before it counts: longer than a
	// migration holds one.
	lockedAfter = 2 * time.Second
	// recent is for how long an epoch that began is worth telling.
	recent = 7 * 24 * time.Hour
)

// Vitals are those of this moment.
func (e *Engine) Vitals() Vitals {
	v := Vitals{Vitals: e.store.Vitals(), Refused: e.committer.writable()}
	e.committer.life.still(&v)
	return v
}

// Still says what the engine has not done for the longest time, and for how long; ""
// if it does its work.
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

// Trouble is why no work can be taken, nil if it can be. Its message names nothing that
// is not everybody's to know; what lies below is for the log.
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
		return refuse(nil, "somebody else has locked what writes need: %s, for %s",
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

// Notes are what is worth knowing though work goes on.
func (v *Vitals) Notes(now time.Time) []string { return Notes(v.Vitals, now) }

// EpochBegan is about when the epoch began; zero for the first one.
func (v *Vitals) EpochBegan() time.Time {
	began, _ := machine.EpochBegan(v.Epoch)
	return began.Time()
}

// Notes say what of a store is worth knowing though it can be used.
func Notes(v store.Vitals, now time.Time) []string {
	var notes []string
	if v.Ahead.Abs() >= noticed {
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

// Vitals are what the store knows of itself.
func (r *Reader) Vitals() store.Vitals { return r.store.Vitals() }

// Explain says why an execution is where it is, and what of the engine keeps it there.
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
