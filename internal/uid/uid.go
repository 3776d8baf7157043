// Package uid makes ids: UUIDs of version 7. A later id sorts after an earlier one.
package uid

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// New returns an id with the present time.
func New() [16]byte { return uuid.Must(uuid.NewV7()) }

// At returns an id with the given time and random bytes, for callers that control time and
// randomness.
func At(t time.Time, random [16]byte) [16]byte {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(t.UnixMilli()))
	copy(random[:6], ms[2:])
	random[6] = random[6]&0x0f | 0x70
	random[8] = random[8]&0x3f | 0x80
	return random
}
