package chaos

import "sync"

// pace keeps the two worlds of a short run, which run at the same time, from disturbing each other.
// Only one world at a time measures its throughput, and no fault happens before all worlds have
// measured it. Reading and checking the results takes all the processor time that there is, so no
// world begins with it while another world still has to do something within a time limit. In a long
// run one world ends before the next world joins, so no world waits.
type pace struct {
	turn sync.Mutex // locked by the world that measures
	// measuring counts the worlds (runs on one store each) that have not measured their throughput
	// yet, and hurried counts the worlds that still have to do something within a time limit
	measuring, hurried sync.WaitGroup
}

// member is the part of one world (a run on one store) in a pace.
type member struct {
	*pace
	measured, calmed func() // take this world out of the counts measuring and hurried
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

// measure calls the function throughput while no other world measures, and waits until all worlds
// have measured.
func (m *member) measure(throughput func()) {
	m.turn.Lock()
	throughput()
	m.turn.Unlock()
	m.measured()
	m.measuring.Wait()
}

// calm declares that this world does not have to do anything within a time limit any more, and
// waits until all worlds have declared this.
func (m *member) calm() {
	m.calmed()
	m.hurried.Wait()
}
