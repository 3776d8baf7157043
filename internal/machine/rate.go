package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// Rate is a bucket of tokens. Each run that starts takes one, so that in any time d at
// most Max + Max·d/Per runs start.
type Rate struct {
	Named *Pace `json:"named,omitempty"` // by the executions under it
	Set   *Pace `json:"set,omitempty"`   // by an operator, which counts before what is named
	// Full is when the bucket will be full again, if nothing is taken.
	Full Time `json:"full,omitzero"`
}

// Pace is how many tokens a bucket holds, and the time in which they come.
type Pace struct {
	Max int            `json:"max"`
	Per belay.Duration `json:"per"`
}

// pace is the pace that counts.
func (r *Rate) pace() Pace {
	if r.Set != nil {
		return *r.Set
	}
	return *r.Named
}

// each is the time in which one token comes, in microseconds, rounded up: a rate is never
// exceeded.
func (r *Rate) each() Time {
	pace := r.pace()
	per, n := Time(pace.Per.D()/time.Microsecond), Time(pace.Max)
	return max(1, (per+n-1)/n)
}

// full is when the bucket will be full. A bucket that is further from full than an empty
// one was written under a clock that has been set since; it counts as empty.
func (r *Rate) full(now Time) Time { return min(max(r.Full, now), now+r.each()*Time(r.pace().Max)) }

// tokens is how many tokens the bucket has.
func (r *Rate) tokens(now Time) int { return r.pace().Max - int((r.full(now)-now+r.each()-1)/r.each()) }

// next is when the bucket has a token, now if it has one.
func (r *Rate) next(now Time) Time {
	if r.tokens(now) > 0 {
		return now
	}
	return r.full(now) - r.each()*Time(r.pace().Max-1)
}

// take takes a token.
func (r *Rate) take(now Time) { r.Full = r.full(now) + r.each() }
