package datadir

import "github.com/belaydev/belay/internal/peer"

// judge tells processes of jobs from others; nil if none is to be told apart.
func (o Options) judge() *peer.Judge {
	if o.InJob == nil {
		return nil
	}
	return &peer.Judge{InJob: o.InJob}
}
