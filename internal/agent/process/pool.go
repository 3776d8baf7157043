package process

import (
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// ErrNoUser means that every user of a pool is in use.
var ErrNoUser = errors.New("every user of the pool is in use")

// Range is a range of ids that no other program on this machine uses. Each id in the range is both
// a user id and a group id.
type Range struct {
	First uint32
	Count uint32
}

// String formats the range as in the configuration: 70000-70063.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.First+r.Count-1) }

func (r Range) has(uid uint64) bool {
	return uid >= uint64(r.First) && uid-uint64(r.First) < uint64(r.Count)
}

func (r Range) validate() error {
	const most = 1<<31 - 1
	switch {
	case r.Count == 0:
		return errors.New("the pool has no users")
	case r.First < 1000:
		return fmt.Errorf("users %s: the ids below 1000 belong to the system", r)
	case uint64(r.First)+uint64(r.Count) > most:
		return fmt.Errorf("users from %d: the last id exceeds %d", r.First, most)
	case r.First <= nobody && nobody < r.First+r.Count:
		return fmt.Errorf("users %s: %d is the user nobody, which programs share", r, nobody)
	}
	return nil
}

// nobody is the id of the user nobody, which systems use for all unknown users.
const nobody = 65534

// Seat is a user of a pool that one run has reserved.
type Seat struct {
	User host.User

	pool *Pool
	slot *slot
}

// Taken is a user of a pool that is in use.
type Taken struct {
	UID uint32    `json:"uid"`
	Run string    `json:"run"`
	At  time.Time `json:"at"`
	// Left says that the process which reserved this user has ended without freeing the user.
	Left bool `json:"left,omitempty"`
}
