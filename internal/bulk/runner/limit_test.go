package runner

import (
	"testing"

	"github.com/belaydev/belay"
)

// A bulk ends when it has selected MaxBulk executions, and its field More says that the selection has more executions.
func TestABulkEndsAtItsLimit(t *testing.T) {
	x := &turn{bulk: belay.Bulk{Rate: 10}, state: state{BulkProgress: belay.BulkProgress{Selected: belay.MaxBulk}}}
	if err := x.plan(t.Context()); err != nil || !x.state.Over || !x.state.More || !x.dirty {
		t.Errorf("%+v, %v", x.state, err)
	}
}
