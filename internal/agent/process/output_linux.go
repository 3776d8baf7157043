package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// chunkSize is the maximum number of bytes in one call of Output.
const chunkSize = 32 << 10

// pipe is the pipe for standard output or for standard error.
type pipe struct{ read, write *os.File }

// openPipes makes the output pipes and returns the end of the input pipe that the command reads.
func (t *Tree) openPipes() (stdin *os.File, err error) {
	t.pipes = make(map[Stream]pipe, 2)
	for _, s := range []Stream{Stdout, Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("make the %s pipe: %w", s, err)
		}
		t.pipes[s] = pipe{read: r, write: w}
	}
	switch {
	case t.command.Stdin != nil:
		stdin, t.stdin, err = os.Pipe()
	case t.command.Input != nil:
		stdin, err = duplicate(t.command.Input)
	default:
		stdin, err = os.Open(os.DevNull)
	}
	if err != nil {
		return nil, fmt.Errorf("make the stdin pipe: %w", err)
	}
	return stdin, nil
}

// duplicate returns another descriptor of an open file.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// closeFiles closes this process's ends of all files that were opened for a supervisor that failed
// to start.
func (t *Tree) closeFiles() {
	if t.wire != nil {
		_ = t.wire.conn.Close()
	}
	if t.stdin != nil {
		_ = t.stdin.Close()
	}
	for _, p := range t.pipes {
		_ = p.read.Close()
		_ = p.write.Close()
	}
	t.proxy.close(t.command.drain())
}

// feed writes the command's input. A command that does not read all of its input causes no error.
func (t *Tree) feed() {
	if t.stdin != nil {
		_, _ = t.stdin.Write(t.command.Stdin)
		_ = t.stdin.Close()
	}
}

// pump reads both output pipes and passes their data to Output, until every writer has closed the
// pipes. If Output fails, pump calls failed once and discards all later output, so that a full pipe
// does not delay the end of a cancelled command. whole reports whether Output received everything.
func (t *Tree) pump(ctx context.Context, failed func(error)) (whole bool) {
	whole = true
	deliver := func(c Chunk) {
		if t.command.Output == nil || !whole {
			return
		}
		if ctx.Err() != nil {
			whole = false // Wait has returned
		} else if err := t.command.Output(ctx, c); err != nil {
			whole = false
			failed(err)
		}
	}
	var (
		mu     sync.Mutex
		group  sync.WaitGroup
		buffer = make([]byte, chunkSize)
		cut    atomic.Bool
	)
	for stream, p := range t.pipes {
		group.Go(func() {
			defer p.read.Close()
			err := drain(p.read, &mu, buffer, func(n int) {
				deliver(Chunk{Stream: stream, Data: buffer[:n]})
			})
			if err != nil {
				cut.Store(true)
			}
		})
	}
	group.Wait()
	return whole && !cut.Load()
}

// drain reads f to its end. It locks mu during each read and the delivery of the data. So the data
// of both streams is delivered in the order of reading, and both streams can use the same buffer.
func drain(f *os.File, mu *sync.Mutex, buffer []byte, deliver func(n int)) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var end error
	step := func(fd uintptr) (ready bool) {
		mu.Lock()
		defer mu.Unlock()
		n, err := syscall.Read(int(fd), buffer)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return false
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			end = err
		case n == 0:
			end = io.EOF
		default:
			deliver(n)
		}
		return true
	}
	for end == nil {
		if err := raw.Read(step); err != nil {
			return err
		}
	}
	if errors.Is(end, io.EOF) {
		return nil
	}
	return end
}

// stopReading makes pump stop reading, although some process still has a pipe open.
func (t *Tree) stopReading() {
	for _, p := range t.pipes {
		_ = p.read.SetReadDeadline(time.Unix(1, 0))
	}
}
