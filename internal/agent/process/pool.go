package process

import (
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// ErrNoUser means that every user of a pool is taken.
var ErrNoUser = errors.New("every user of the pool is taken")

// Range is a range of user ids, and of group ids with the same numbers, that belong
// to nobody else on this machine.
type Range struct {
	First uint32
	Count uint32
}

// String is the range as people write it: 70000-70063.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.First+r.Count-1) }

func (r Range) has(uid uint64) bool {
	return uid >= uint64(r.First) && uid-uint64(r.First) < uint64(r.Count)
}

func (r Range) validate() error {
	const most = 1<<31 - 1
	switch {
	case r.Count == 0:
		return errors.New("a pool of no users")
	case r.First < 1000:
		return fmt.Errorf("users %s: those below 1000 belong to the system", r)
	case uint64(r.First)+uint64(r.Count) > most:
		return fmt.Errorf("users from %d: they end beyond %d", r.First, most)
	case r.First <= nobody && nobody < r.First+r.Count:
		return fmt.Errorf("users %s: %d is nobody, whom others share", r, nobody)
	}
	return nil
}

// nobody is the user that stands for all that are not known.
const nobody = 65534

// Seat is a user that one run has for itself.
type Seat struct {
	User host.User

	pool *Pool
	slot *slot
}

// Taken is a user of a pool that somebody has.
type Taken struct {
	UID uint32    `json:"uid"`
	Run string    `json:"run"`
	At  time.Time `json:"at"`
	// Left says that whoever took it is gone.
	Left bool `json:"left,omitempty"`
}
