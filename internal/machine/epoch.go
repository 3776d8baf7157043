package machine

import "time"

// A restored store cannot know of every earlier restore, so epochs are counted
// by the clock too: one every ten minutes since 2026. That lasts until 2064, and
// leaves room for 65,536 epochs after it below 2^53.
const (
	epochStart  Time = 1_767_225_600_000_000 // 2026-01-01 00:00:00 UTC
	epochLength      = 10 * time.Minute
	epochLatest      = 1<<21 - 1<<16
)

// NextEpoch is the epoch of a store whose newest commits may be gone: a backup
// was restored, or a standby took over that had not seen them all. known is the
// highest epoch that can be found. Every token of the new epoch is above all
// that were ever given (G1), also those that no row tells of any more.
//
// For that, one more than known would do, but once only: a backup that is
// restored a second time knows nothing of the first. Two restores are told apart
// by the clock if there are ten minutes between them, and else by what the second
// finds of the first.
func NextEpoch(known int64, now Time) int64 {
	return max(known+1, min(int64(now.Sub(epochStart)/epochLength), epochLatest))
}
