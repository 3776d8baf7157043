package chaos

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/belaydev/belay/internal/testkit/faultproxy"
)

// carryOut carries out the plan, with one goroutine for each victim. It returns when the plan is
// over and all processes run again.
func (w *world) carryOut(ctx context.Context, p plan, c *crowd) {
	began := time.Now()
	var all sync.WaitGroup
	follow := func(who string, happen func(context.Context, fault)) {
		all.Go(func() {
			for _, f := range p.faultsOf(who) {
				if pause(ctx, time.Until(began.Add(f.At))) != nil {
					return
				}
				happen(ctx, f)
			}
		})
	}
	for i, s := range w.servers {
		follow(s.name, func(ctx context.Context, f fault) {
			s.causeFault(ctx, f)
			if i == 0 { // two faults of this server in a row would make the commands' worker lose its lease
				_ = pause(ctx, jobTTL/3)
			}
		})
	}
	for i, s := range w.workers {
		follow(s.name, s.causeFault)
		if s.far {
			follow(fmt.Sprint("way", i), func(ctx context.Context, f fault) {
				w.causeLineFault(ctx, f, s.proxy, "worker's line ")
			})
		}
	}
	whose := "database's line "
	if w.store == onSQLite {
		whose = "clients' line "
	}
	follow("line", func(ctx context.Context, f fault) { w.causeLineFault(ctx, f, w.line, whose) })
	follow("servers", w.killServers)
	follow("tables", w.lockTable)
	follow("writes", w.refuseWrites)
	follow("snapshot", w.holdSnapshot)
	follow("keys", func(ctx context.Context, f fault) { w.holdKeys(ctx, f, c) })
	follow("pooler", w.killPooler)
	follow("disk", w.fillDisk)
	follow("database", w.causeDatabaseFault)
	follow("backends", func(context.Context, fault) { w.terminate() })
	all.Wait()
}

// causeFault kills the server and starts it again, or stops and continues it. A stopped server
// keeps the row locks that it has.
func (s *server) causeFault(ctx context.Context, f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := time.Now()
	if f.Kind == "stop" {
		s.w.fault("server stopped and continued")
		s.proc.signal(syscall.SIGSTOP)
		_ = pause(ctx, f.For)
		s.proc.signal(syscall.SIGCONT)
		s.w.troubled("stopped "+s.name, from)
		return
	}
	s.proc.signal(syscall.SIGKILL)
	<-s.proc.done
	s.w.fault("server killed")
	_ = pause(ctx, f.For)
	if err := s.start(ctx); err != nil {
		s.w.t.Errorf("start %s: %v", s.name, err)
	}
	s.w.troubled(s.name, from)
}

// causeFault kills, stops or gracefully ends the worker, and starts it again.
func (s *slot) causeFault(ctx context.Context, f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.w.harmed(s.name, time.Now())
	switch f.Kind {
	case "stop":
		s.w.fault("worker stopped and continued")
		s.proc.signal(syscall.SIGSTOP)
		_ = pause(ctx, f.For)
		s.proc.signal(syscall.SIGCONT)
		return
	case "end":
		s.w.fault("worker ended in order")
		s.stop(20 * time.Second)
	default:
		s.w.fault("worker killed")
		s.kill()
	}
	_ = pause(ctx, f.For)
	if err := s.start(); err != nil {
		s.w.t.Errorf("start %s: %v", s.name, err)
	}
}

// resumeTries is how often causeDatabaseFault tries to start a database that does not answer within
// half a minute.
const resumeTries = 5

// causeDatabaseFault restarts or kills the database, and starts it again.
func (w *world) causeDatabaseFault(ctx context.Context, f fault) {
	defer w.troubled("database", time.Now())
	stop, kind := w.database.Stop, "database restarted"
	if f.Kind == "kill" {
		stop, kind = w.database.Kill, "database killed"
	}
	if err := stop(); err != nil {
		w.t.Error(err)
	}
	w.fault(kind)
	_ = pause(ctx, f.For)
	for tries := 0; ; {
		err := w.database.Resume()
		if err == nil {
			return
		}
		w.t.Logf("resume the database: %v", err)
		if tries++; tries == resumeTries {
			w.t.Errorf("the database did not come back in %d tries", tries)
			return
		}
		if err := w.database.Kill(); err != nil { // a database process that does not answer may still run
			w.t.Error(err)
			return
		}
		if pause(ctx, 300*time.Millisecond) != nil {
			w.t.Error(err)
			return
		}
	}
}

// terminate ends every PostgreSQL backend (server process of a connection) of the servers. The
// fault counts only if the database was up and had such backends.
func (w *world) terminate() {
	from := time.Now()
	n, err := w.database.Query("postgres",
		"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'belay'")
	if err == nil && n != "0" {
		w.fault("backends terminated")
		w.troubled("backends", from)
	}
}

// causeLineFault makes a network connection fail for a while.
func (w *world) causeLineFault(ctx context.Context, f fault, p *faultproxy.Proxy, whose string) {
	from := time.Now()
	w.fault(whose + f.Kind)
	switch f.Kind {
	case "cut":
		p.Cut()
		return
	case "half open":
		p.HalfOpen()
		return
	case "hold":
		p.Set(faultproxy.Fault{Hold: faultproxy.Both})
	case "hold requests":
		p.Set(faultproxy.Fault{Hold: faultproxy.Up})
	case "hold replies":
		p.Set(faultproxy.Fault{Hold: faultproxy.Down})
	case "slow":
		p.Set(faultproxy.Fault{Latency: 20 * time.Millisecond, Jitter: 40 * time.Millisecond})
	case "lossy":
		p.Set(faultproxy.Fault{CutUp: 0.02, CutDown: 0.02})
	case "refuse":
		p.Set(faultproxy.Fault{Refuse: true})
		p.Cut()
	}
	_ = pause(ctx, f.For)
	p.Heal()
	if p == w.line && w.store == onPostgres {
		w.troubled("line", from)
	}
}
