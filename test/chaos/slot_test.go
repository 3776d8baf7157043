package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/belaydev/belay/internal/testkit/faultproxy"
)

// slot stands for one worker of the test. When a process of this worker has ended, the slot starts
// the next process.
type slot struct {
	w     *world
	name  string
	far   bool
	url   string            // the URL of the worker's server, or of the proxy in front of that server
	proxy *faultproxy.Proxy // the proxy in front of the server, for a far worker
	mu    sync.Mutex        // only one fault of this worker at a time
	ended bool              // the worker must not be started again
	life  int
	proc  *process
	books []string // the ledgers of all processes of the worker
}

func (w *world) newSlot(i int) *slot {
	w.t.Helper()
	at := w.servers[i%len(w.servers)]
	s := &slot{w: w, name: fmt.Sprintf("worker%d", i), far: i%2 == 1, url: at.url()}
	if s.far {
		s.proxy = w.proxy(at.addr, s.name)
		s.url = "http://" + s.proxy.Addr()
	}
	if err := s.start(); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (s *slot) start() error {
	s.life++
	name := fmt.Sprintf("%s.%d", s.name, s.life)
	s.books = append(s.books, s.w.path(name+".ledger"))
	cmd := exec.Command(os.Args[0])
	cmd.Dir = s.w.dir
	cmd.Env = s.w.environment(roleEnv+"=worker", urlEnv+"="+s.url, nameEnv+"="+name,
		ledgerEnv+"="+s.w.path(name+".ledger"))
	if s.far {
		cmd.Env = append(cmd.Env, farEnv+"=1")
	}
	proc, err := s.w.starter.start(cmd, s.w.path(s.name+".log"))
	if err != nil {
		return err
	}
	s.proc = proc
	go s.supervise(proc)
	return nil
}

// supervise starts the worker again if its process ends by itself, as a process supervisor would.
func (s *slot) supervise(proc *process) {
	<-proc.done
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != proc || s.ended {
		return // the goroutine that ended the worker starts it again
	}
	if how, is := proc.cmd.ProcessState.Sys().(syscall.WaitStatus); !is || how.Signal() != syscall.SIGKILL {
		s.w.t.Errorf("%s ended by itself: %s", s.name, proc.cmd.ProcessState)
	}
	s.w.fault("worker killed by poison")
	defer s.w.harmed(s.name, time.Now())
	if err := s.start(); err != nil {
		s.w.t.Errorf("start %s: %v", s.name, err)
	}
}

// kill kills the worker as a crash would.
func (s *slot) kill() {
	s.w.died(s.proc.pid())
	s.proc.signal(syscall.SIGKILL)
	<-s.proc.done
}

// stop ends the worker gracefully; the worker releases its executions.
func (s *slot) stop(within time.Duration) {
	s.w.died(s.proc.pid())
	s.proc.signal(syscall.SIGTERM)
	s.proc.end(within)
}
