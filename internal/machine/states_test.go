package machine

import (
	"testing"

	"github.com/belaydev/belay"
)

// A batch reports each execution whose state it has changed, once, with the state before the batch; a change of
// the row that leaves the state as it is is not reported.
func TestChangedStatesAreReported(t *testing.T) {
	row := func(n byte, s belay.State) *Execution { return &Execution{ID: belay.ExecutionID{n}, State: s, Seq: 1} }
	same, ended := row(1, belay.Running), row(2, belay.Running)
	twice, fresh := row(3, belay.Pending), row(4, belay.Pending)
	w := newWorld(&Rows{Executions: []*Execution{same, ended, twice, row(5, belay.Waiting)}})
	w.advance(same)
	ended.State = belay.Failed
	w.advance(ended)
	for _, s := range []belay.State{belay.Running, belay.Waiting} {
		twice.State = s
		w.advance(twice)
	}
	fresh.New = true
	w.advance(fresh)
	want := map[byte]belay.State{2: belay.Running, 3: belay.Pending, 4: 0}
	for _, c := range w.stateChanges() {
		if from, there := want[c.ID[0]]; !there || from != c.From {
			t.Errorf("execution %d: from %s to %s", c.ID[0], c.From, c.State)
		}
		delete(want, c.ID[0])
	}
	if len(want) > 0 {
		t.Errorf("not reported: %v", want)
	}
}
