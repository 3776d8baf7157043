package chaos

import "sync"

// pace keeps the two worlds of a short run, which run at the same time, from disturbing each other:
// one world at a time measures its throughput; no fault happens before all worlds have measured it;
// and no world reads and checks its results, which takes all the processor time that there is,
// before nothing in any world must happen within a time limit. In a long run one world ends before
// the next world joins, so no world waits.
type pace struct {
	turn sync.Mutex // to measure
	// the worlds that have to measure their throughput, and the worlds with time limits
	measuring, hurried sync.WaitGroup
}

// member is the part of one world in a pace.
type member struct {
	*pace
	measured, calmed func() // no longer measuring, no longer hurried
}

// join adds a world. All worlds that run at the same time join before the first of them runs.
func (p *pace) join() *member {
	p.measuring.Add(1)
	p.hurried.Add(1)
	return &member{p, sync.OnceFunc(p.measuring.Done), sync.OnceFunc(p.hurried.Done)}
}

// leave lets the other worlds continue without this one.
func (m *member) leave() {
	m.measured()
	m.calmed()
}

// measure calls throughput while no other world does, and waits until all worlds have measured.
func (m *member) measure(throughput func()) {
	m.turn.Lock()
	throughput()
	m.turn.Unlock()
	m.measured()
	m.measuring.Wait()
}

// calm says that nothing in this world must happen within a time limit any more, and waits until
// the same is true of all worlds.
func (m *member) calm() {
	m.calmed()
	m.hurried.Wait()
}
