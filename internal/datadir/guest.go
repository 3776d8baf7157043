package datadir

import (
	"context"
	"errors"
	"net"

	"github.com/belaydev/belay"
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

// dial connects to the directory's socket, if it is served by the directory's
// owner, this user or root, and by no job.
func dial(ctx context.Context, dir string, o Options) (net.Conn, error) {
	c, err := socket.Dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := served(o.judge(), c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// served refuses a host that is, or may be, a process of a job.
func served(j *peer.Judge, c net.Conn) error {
	err := socket.Guest(j, c)
	if err == nil {
		return nil
	}
	return &belay.Error{Code: belay.CodeForbidden, Err: err, Message: "the data directory is served by a process that may be a job's"}
}
