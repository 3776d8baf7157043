package machine

import (
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// An execution keeps a limited number of signals, with a limited number of bytes. Signals that a
// checkpoint consumed do not count. Ends of children do not count either, because they cannot be
// refused.
func TestAnExecutionKeepsABoundedNumberOfSignals(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	seq := s.do(s.signal(l.Execution, "go")).Seq
	e := s.records[l.Execution].execution

	e.Signals = belay.MaxSignals
	s.refused(s.signal(l.Execution, "go"), belay.CodeQueueFull)
	s.submit(s.childOf(l, "c"))
	s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
	if e := s.records[l.Execution].execution; e.Signals != belay.MaxSignals || e.SignalSeq == seq {
		t.Errorf("%d signals after the end of a child", e.Signals)
	}
	wait := s.save(l, belay.KindWait, "w")
	wait.Consumes = seq
	s.do(wait)
	s.do(s.signal(l.Execution, "go"))
	s.refused(s.signal(l.Execution, "go"), belay.CodeQueueFull)

	l = s.run(w)
	large := []byte(`"` + strings.Repeat("x", 98) + `"`)
	s.records[l.Execution].execution.SignalBytes = belay.MaxSignalBytes - 100
	deliver := func() Command {
		return &Deliver{SignalRequest: belay.SignalRequest{Execution: l.Execution, Name: "go", Payload: large}}
	}
	s.do(deliver())
	s.refused(deliver(), belay.CodeQueueFull)
}
