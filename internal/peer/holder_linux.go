package peer

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// search looks through /proc for the processes that have a socket open. That goes
// through all processes and takes milliseconds: those who ask while one look is on its
// way share the next.
type search struct {
	looking sync.Mutex

	mu   sync.Mutex
	next *look
}

// look is one look through /proc, for all that was asked for before it began.
type look struct {
	wanted map[uint32]bool
	done   chan struct{}
	found  map[uint32][]int
	err    error
}

// holders lists the processes that have the socket open, as far as this process may
// see. The look begins after the call.
func (s *search) holders(inode uint32) ([]int, error) {
	s.mu.Lock()
	l := s.next
	first := l == nil
	if first {
		l = &look{wanted: make(map[uint32]bool), done: make(chan struct{})}
		s.next = l
	}
	l.wanted[inode] = true
	s.mu.Unlock()
	if first {
		s.looking.Lock()
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
		l.found, l.err = through("/proc", l.wanted)
		s.looking.Unlock()
		close(l.done)
	}
	<-l.done
	return l.found[inode], l.err
}

// through goes through all processes of a /proc. Those whose files are closed to this
// process, or that end meanwhile, have none.
func through(proc string, wanted map[uint32]bool) (map[uint32][]int, error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("look for the process of a socket: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("look for the process of a socket: %w", err)
	}
	found := make(map[uint32][]int)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		for _, inode := range sockets(proc+"/"+name+"/fd", wanted) {
			found[inode] = append(found[inode], pid)
		}
	}
	return found, nil
}

// sockets lists those of the wanted sockets that one process has open.
func sockets(fds string, wanted map[uint32]bool) (held []uint32) {
	dir, err := os.Open(fds)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // of a process that ends, as many as there are left
	for _, name := range names {
		target, err := os.Readlink(fds + "/" + name)
		if err != nil {
			continue
		}
		number, ok := strings.CutPrefix(target, "socket:[")
		if !ok {
			continue
		}
		inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 32)
		if err == nil && wanted[uint32(inode)] {
			held = append(held, uint32(inode))
		}
	}
	return held
}
