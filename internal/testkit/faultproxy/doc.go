// Package faultproxy is a TCP proxy that fails on demand, for tests of programs whose network
// fails.
//
//	p, err := faultproxy.Listen("127.0.0.1:7420", seed)
//	… // a worker connects to p.Addr() in place of the server
//	p.Set(faultproxy.Fault{Hold: faultproxy.Down}) // replies do not arrive
//	p.Cut() // the replies are lost
//	p.Heal()
//
// While a direction has the fault Hold, the proxy keeps the data of that direction. It delivers the
// data when the fault is over, unless Cut has dropped the connection before. The seed decides all
// random faults.
package faultproxy
