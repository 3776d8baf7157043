package datadir

import (
	"github.com/belaydev/belay/internal/peer"
	"github.com/belaydev/belay/internal/socket"
)

// ErrForeign means that a data directory belongs to another user.
var ErrForeign = socket.ErrForeign

// Check refuses a data directory that others than this user and root could have
// prepared, or may change. One that is not there yet is good. The error is a
// [belay.Error] with CodeForbidden that says what to do; for one of another user it
// wraps [ErrForeign].
func Check(dir string) error { return socket.Check(dir) }

// judge tells processes of jobs from others; nil if nobody is to be told apart.
func (o Options) judge() *peer.Judge {
	if o.InJob == nil {
		return nil
	}
	return &peer.Judge{InJob: o.InJob}
}
