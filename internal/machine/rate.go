package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// Rate is a bucket of tokens. Each run that starts takes a token, so that in any duration d at most
// Max + Max·d/Per runs start.
type Rate struct {
	Named *Pace `json:"named,omitempty"` // by the executions that name it
	Set   *Pace `json:"set,omitempty"`   // by an operator; applies instead of Named unless nil
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
	per, n := Time(pace.Per.D()/time.Microsecond), Time(pace.Max)
	return max(1, (per+n-1)/n)
}

// full is when the bucket will be full. If Full is later than the time at which a bucket that is
// empty now will be full, the clock was set back after Full was written; the bucket then counts as
// empty.
func (r *Rate) full(now Time) Time { return min(max(r.Full, now), now+r.each()*Time(r.pace().Max)) }

// tokens is the number of tokens in the bucket.
func (r *Rate) tokens(now Time) int { return r.pace().Max - int((r.full(now)-now+r.each()-1)/r.each()) }

// next is when the bucket will have a token; now if it has a token already.
func (r *Rate) next(now Time) Time {
	if r.tokens(now) > 0 {
		return now
	}
	return r.full(now) - r.each()*Time(r.pace().Max-1)
}

// take takes a token.
func (r *Rate) take(now Time) { r.Full = r.full(now) + r.each() }
