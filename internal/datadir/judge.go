package datadir

import "github.com/belaydev/belay/internal/peer"

// judge returns the peer.Judge that tells processes of jobs from other processes; nil without
// Options.InJob.
func (o Options) judge() *peer.Judge {
	if o.InJob == nil {
		return nil
	}
	return &peer.Judge{InJob: o.InJob}
}
