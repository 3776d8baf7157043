package trigger

import (
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Calendar is the machine.Calendar of all engines. It remembers the schedules that it has parsed.
type Calendar struct {
	mu     sync.Mutex
	parsed map[times]*Times
}

// times has what Parse reads of a schedule.
type times struct {
	name, cron, zone      string
	every, offset, jitter belay.Duration
}

// maxParsed is the largest number of schedules that a Calendar remembers.
const maxParsed = 25_000

func (c *Calendar) times(s *belay.Schedule) (*Times, error) {
	key := times{s.Name, s.Cron, s.TimeZone, s.Every, s.Offset, s.Jitter}
	c.mu.Lock()
	t := c.parsed[key]
	c.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t, err := Parse(s)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parsed == nil || len(c.parsed) >= maxParsed {
		c.parsed = make(map[times]*Times)
	}
	c.parsed[key] = t
	return t, nil
}

// Check returns CodeInvalid if the times of a schedule are wrong.
func (c *Calendar) Check(s *belay.Schedule) error {
	_, err := c.times(s) // so that Next, which the rules call in a commit, reads no time zone
	return err
}

// Next returns the first slot after a time, and when it is due; both are 0 if there is none.
func (c *Calendar) Next(s *belay.Schedule, after machine.Time) (slot, due machine.Time) {
	t, err := c.times(s)
	if err != nil { // the store has a schedule of a newer version
		return 0, 0
	}
	next, ok := t.Next(after.Time())
	if !ok {
		return 0, 0
	}
	slot = machine.At(next)
	return slot, slot.Add(t.Delay(next))
}
