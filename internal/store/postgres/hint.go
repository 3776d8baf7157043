package postgres

import "github.com/belaydev/belay/internal/machine"

// news gathers what other servers should know of.
type news struct{}

func (n *news) tell(rows *machine.Rows, c *machine.Changes) {}
