package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// An epoch begins whenever a store's newest commits may be gone: a backup was
// restored, or a standby took over that had not seen them all. It is a floor below
// all tokens that are given out from then on.
//
// A store that goes back in time cannot know of every epoch that began after the
// moment it goes back to, so floors follow the clock: a token's upper 21 bits count
// spans of ten minutes since 2026, which lasts until 2064 and leaves room for 65,536
// epochs after it below 2^53. The lower 32 bits count within the span, seven to each
// microsecond, far faster than any execution is claimed. So two epochs that begin one
// after the other, on whichever copies of a database, are apart, and the later one
// is above all tokens of the earlier one.
const (
	epochStart Time = 1_767_225_600_000_000 // 2026-01-01 00:00:00 UTC
	epochSpan       = Time(10 * time.Minute / time.Microsecond)
	lastSpan        = 1<<21 - 1<<16
)

// Two clocks may show the same moment. Chance keeps floors apart then, by so many
// steps of so many tokens: an eighth of a second by the clock, in all.
const (
	epochChances = 1 << 8
	epochStep    = 1 << 12
)

// NextEpoch is the floor of the epoch that begins now. known is the highest floor
// that can be found; random is any number. Every token above the answer is above all
// that were ever given (G1), also those that no row tells of any more, provided that
// the clocks of two servers that begin an epoch on copies of one database differ by
// less than the time between the two. Where the clock has not passed the known floor
// the answer is one span above that.
func NextEpoch(known belay.Token, now Time, random uint64) belay.Token {
	chance := belay.Token(random%epochChances) * epochStep
	if floor := floorAt(now); floor > known+epochChances*epochStep {
		return floor + chance
	}
	return known + 1<<32 + chance
}

// floorAt is the floor of an epoch that begins at a moment.
func floorAt(now Time) belay.Token {
	since := max(now-epochStart, 0)
	span, within := since/epochSpan, since%epochSpan
	if span >= lastSpan {
		span, within = lastSpan, 0
	}
	return belay.Token(span<<32 + within<<32/epochSpan)
}

// EpochBegan is about when an epoch began, by its floor; false for the first one, which
// every store begins with.
func EpochBegan(floor belay.Token) (Time, bool) {
	if floor < epochChances*epochStep {
		return 0, false
	}
	span, within := Time(floor>>32), Time(floor&(1<<32-1))
	return epochStart + span*epochSpan + within*epochSpan>>32, true
}
