package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// Rate is a bucket of tokens. Each run takes a token when it starts, so that in any duration d at
// most Max + Max·d/Per runs start. An execution that the gate has let through has a place, which
// keeps one of the tokens for its run.
type Rate struct {
	Named *Pace `json:"named,omitempty"` // the pace that executions name when they are submitted
	Set   *Pace `json:"set,omitempty"`   // the pace that an operator has set, nil for none; it applies instead of Named
	// SetBy says who set Set; nil if Set is nil.
	SetBy *SetBy `json:"set_by,omitempty"`
	// Full is when the bucket will be full again if no token is taken.
	Full Time `json:"full,omitzero"`
}

// Pace is the largest number of tokens in a bucket, and the time in which an empty bucket fills.
type Pace struct {
	Max int            `json:"max"`
	Per belay.Duration `json:"per"`
}

// pace is the pace that applies.
func (r *Rate) pace() Pace {
	if r.Set != nil {
		return *r.Set
	}
	return *r.Named
}

// each is the time in which one token comes, in microseconds. It is rounded up, so that the rate is
// never exceeded.
func (r *Rate) each() Time {
	pace := r.pace()
	many := time.Duration(pace.Max) * time.Microsecond
	return max(1, Time((pace.Per.D()+many-1)/many))
}

// full is when the bucket will be full. If Full is later than the time at which a bucket that is
// empty now will be full, the clock was set back after Full was written; the bucket then counts as
// empty.
func (r *Rate) full(now Time) Time { return min(max(r.Full, now), now+r.each()*Time(r.pace().Max)) }

// limit moves Full to the time at which an empty bucket will be full, if Full is later than that
// time because the clock was set back or the rate has become faster. Without this correction the
// bucket would stay empty until the old time.
func (r *Rate) limit(now Time) (changed bool) {
	full := r.full(now)
	if changed = full < r.Full; changed {
		r.Full = full
	}
	return changed
}

// tokens is the number of tokens in the bucket.
func (r *Rate) tokens(now Time) int { return r.pace().Max - int((r.full(now)-now+r.each()-1)/r.each()) }

// next is when the bucket will have a token beside the kept tokens (those reserved for executions
// that the gate has let through). It is now if the bucket has one already, and 0 if all tokens of a
// full bucket are kept.
func (r *Rate) next(now Time, kept int) Time {
	switch most := r.pace().Max; {
	case r.tokens(now) > kept:
		return now
	case kept >= most:
		return 0
	default:
		return r.full(now) - r.each()*Time(most-1-kept)
	}
}

// take takes a token.
func (r *Rate) take(now Time) { r.Full = r.full(now) + r.each() }
