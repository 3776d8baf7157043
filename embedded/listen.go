package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/peer"
	"github.com/belaydev/belay/internal/socket"
)

// Listen serves the socket of the data directory, belay.sock, so that other programs can use this
// engine too: the belay command with --data, and package client with "unix:DIR/belay.sock". The
// socket has mode 0600. Only this user, the directory's owner and root can connect to it; processes
// of jobs that belay runs cannot. Close removes the socket.
//
// If a belay command such as belay run has the directory's engine, that command stops its engine in
// favour of this program, and continues as a client of this program's engine. Open returns
// CodeForbidden if users other than this user and root may change the directory. Stores other than
// a data directory have no socket: Listen has no effect on them.
func Listen() Option { return func(s *settings) { s.listen = (*Backend).listen } }

// judge returns the peer.Judge that the socket uses: it refuses connections from processes that
// belong to jobs.
func judge() *peer.Judge { return &peer.Judge{InJob: process.InJob} }

// How long a program with Listen waits for the lock of its directory while another process has the
// lock: settling if that process gives no answer, since it may be starting or stopping; leaving if
// that process has answered that it will release the directory.
const (
	settling = 2 * time.Second
	leaving  = 10 * time.Second
)

// askEvery is the interval at which a program requests the process that has the lock to release the
// directory. The program repeats the request, because another process may take the lock first.
const askEvery = 300 * time.Millisecond

// takeOver takes the lock of a directory as acquire does. If another process has the lock, takeOver
// requests that process to release the directory, and waits. If that process refuses, takeOver
// returns the error of acquire at once.
func takeOver(ctx context.Context, dir, purpose string) (*lock, error) {
	until, ask := time.Now().Add(settling), time.Time{}
	for {
		l, err := acquire(ctx, dir, purpose)
		if err == nil || belay.CodeOf(err) != belay.CodeConflict {
			return l, err
		}
		if now := time.Now(); now.After(ask) {
			asked := socket.AskToYield(ctx, dir, judge(), purpose)
			if errors.Is(asked, socket.ErrRefused) {
				return nil, err
			}
			if asked == nil {
				until = now.Add(leaving)
			}
			ask = now.Add(askEvery)
		}
		if time.Now().After(until) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// listen serves the socket of the directory. This process must have the directory's lock.
func (b *Backend) listen(dir string, set *settings) error {
	log := set.engine.Log
	if log == nil {
		log = slog.Default()
	}
	dir, err := filepath.Abs(dir) // the path stays valid if the program changes its working directory
	if err == nil {
		b.server, err = socket.Open(dir, socket.Options{Purpose: set.purpose, Judge: judge(), Log: log})
	}
	if err != nil {
		return fmt.Errorf("make the socket of the data directory: %w", err)
	}
	b.server.Serve(httpapi.New(b, httpapi.Options{
		Log: log, Stopping: b.server.Stopping(), Ready: b.Ready, Crowded: b.Crowded,
	}))
	return nil
}

// Ready reports whether the engine takes work: it returns CodeUnavailable with the reason if the
// engine does not. The notes are further notices for operators, for example that the clock was set.
func (b *Backend) Ready(context.Context) (notes []string, err error) {
	v := b.Vitals()
	return v.Notes(time.Now()), v.Trouble()
}
