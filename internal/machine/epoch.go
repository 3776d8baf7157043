package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// An epoch is a floor for tokens: all tokens that Belay gives out after the epoch begins are above
// the floor. A new epoch begins whenever a store's newest commits may be gone: a backup was
// restored, or a standby that had not received all commits took over.
//
// A restored store may not contain epochs that began after the backup was made. So floors follow
// the clock. A token's upper 21 bits count spans of ten minutes since 2026; this lasts until 2064
// and leaves room for 65,536 more epochs below 2^53. The lower 32 bits count within the span, seven
// for each microsecond, which is far faster than any execution is claimed. If one epoch begins
// after another, even on another copy of the database, its floor is therefore above all tokens of
// the earlier epoch.
const (
	epochStart Time = 1_767_225_600_000_000 // 2026-01-01 00:00:00 UTC
	epochSpan       = Time(10 * time.Minute / time.Microsecond)
	lastSpan        = 1<<21 - 1<<16
)

// Two servers may begin epochs at the same time by their clocks. To make the floors of these epochs
// different, each server adds a random multiple of epochStep to its floor, up to epochChances
// steps. A floor rises by seven tokens for each microsecond, so all steps together correspond to a
// seventh of a second.
const (
	epochChances = 1 << 8
	epochStep    = 1 << 12
)

// NextEpoch is the floor of the epoch that begins now. known is the highest floor that the caller
// can find; random is any number. Every token above the result is above all tokens ever given out
// (guarantee G1), also those whose rows are gone, provided that two servers which begin epochs on
// copies of one database do so further apart in time than their clocks differ. If the clock has not
// passed the known floor, the result is one span above the known floor.
func NextEpoch(known belay.Token, now Time, random uint64) belay.Token {
	chance := belay.Token(random%epochChances) * epochStep
	if floor := floorAt(now); floor > known+epochChances*epochStep {
		return floor + chance
	}
	return known + 1<<32 + chance
}

// floorAt is the number above which the tokens are in an epoch that begins at the moment now.
func floorAt(now Time) belay.Token {
	since := max(now-epochStart, 0)
	span, within := since/epochSpan, since%epochSpan
	if span >= lastSpan {
		span, within = lastSpan, 0
	}
	return belay.Token(span<<32 + within<<32/epochSpan)
}

// EpochBegan derives from the floor of an epoch (the number above which its tokens are) the
// approximate time at which its epoch began. It returns false for the first epoch of a store.
func EpochBegan(floor belay.Token) (Time, bool) {
	if floor < epochChances*epochStep {
		return 0, false
	}
	span, within := Time(floor>>32), Time(floor&(1<<32-1))
	return epochStart + span*epochSpan + within*epochSpan>>32, true
}
