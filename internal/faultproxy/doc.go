// Package faultproxy is a TCP proxy that fails on demand, for tests that look at
// what becomes of programs when the network between them does.
//
//	p, err := faultproxy.Listen("127.0.0.1:7420", seed)
//	…	// a worker is told p.Addr() in place of the server's
//	p.Set(faultproxy.Fault{Hold: faultproxy.Down})	// replies do not come back
//	p.Cut()	// and never will
//	p.Heal()
//
// A network that does not deliver is not one that forgets: what a direction holds is
// delivered when the fault is over, late, unless its connection was cut. Chances are
// drawn from the seed.
package faultproxy
