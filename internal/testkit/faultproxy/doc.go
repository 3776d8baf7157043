// Package faultproxy is a TCP proxy that fails on demand, for tests of programs whose network
// fails.
//
//	p, err := faultproxy.Listen("127.0.0.1:7420", seed)
//	… // a worker connects to p.Addr() in place of the server
//	p.Set(faultproxy.Fault{Hold: faultproxy.Down}) // replies do not arrive
//	p.Cut() // the replies are lost
//	p.Heal()
//
// A direction with the fault Hold keeps its data and delivers it late, when the fault is over,
// unless Cut drops the connection before. The proxy draws its chances from the seed.
package faultproxy
