package peer

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// search scans /proc for the processes that have a socket open. A scan, called a look, visits all
// processes and takes milliseconds, so calls that come during a look share the next look.
type search struct {
	looking sync.Mutex

	mu   sync.Mutex
	next *look
}

// look is one scan of /proc, for all sockets that were requested before it began.
type look struct {
	wanted map[uint32]bool // the inodes of the sockets
	done   chan struct{}   // closed when found and err are set
	found  map[uint32][]int
	err    error
}

// holders lists the processes that have the socket open and that this process may see. The scan of
// /proc begins after the call, so that it finds every process that opened the socket before the
// call.
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

// through visits all processes in a /proc directory. It skips processes whose files this process
// may not see, and processes that end during the scan.
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

// sockets lists the wanted sockets that one process has open.
func sockets(fds string, wanted map[uint32]bool) (open []uint32) {
	dir, err := os.Open(fds)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // the list may be incomplete if the process ends
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
			open = append(open, uint32(inode))
		}
	}
	return open
}
