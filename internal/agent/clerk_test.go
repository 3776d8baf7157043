package agent

import (
	"context"
	"testing"
	"time"
)

// An agent reports while its changes are stored, which may take long.
func TestReportsDoNotWaitForCheckpoints(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k := newClerk(ctx, turn{number: firstTurn}, nil)
	stores, stored := make(chan struct{}), make(chan struct{})
	k.begin(func(error) {}, func() (bool, error) {
		close(stores)
		<-stored
		return true, nil
	})
	saved := make(chan error, 1)
	go func() { saved <- k.Checkpoint(ctx) }()
	<-stores
	k.reports = maxReports // so that the report is refused, and nothing is written
	reported := make(chan error, 1)
	go func() { reported <- k.Report("half done") }()
	select {
	case err := <-reported:
		if err == nil {
			t.Error("the report was taken beyond the limit")
		}
	case <-ctx.Done():
		t.Error("the report waits for the checkpoint")
	}
	close(stored)
	if err := <-saved; err != nil {
		t.Error(err)
	}
}
