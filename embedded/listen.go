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

// Listen serves the data directory's socket, belay.sock, so that other programs use
// this engine too: the belay command with --data, and package client with
// "unix:DIR/belay.sock". The socket has mode 0600; only this user, the directory's
// owner and root reach it, and no process of a job does. Close removes it.
//
// A belay command that has the engine for a while, such as a belay run, gives way to the
// program and goes on beside it. Open is refused with CodeForbidden if others than this
// user and root may change the directory. Stores other than a data directory have no
// socket: there Listen changes nothing.
func Listen() Option { return func(s *settings) { s.listen = (*Backend).listen } }

// judge tells processes of jobs from others.
func judge() *peer.Judge { return &peer.Judge{InJob: process.InJob} }

// How long a program that listens waits for the lock of its directory: of a process that
// answers nothing, since it may be about to start or to stop, and of one that said that it
// gives way.
const (
	settling = 2 * time.Second
	leaving  = 10 * time.Second
)

// askEvery is how often the process with the engine is asked to give way: after it has,
// another may have been quicker.
const askEvery = 300 * time.Millisecond

// takeOver takes the lock of a directory as acquire does. A process that has it and gives
// way is waited for; one that does not is the answer, at once.
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

// listen serves the socket of the directory, whose lock this process has.
func (b *Backend) listen(dir string, set *settings) error {
	log := set.engine.Log
	if log == nil {
		log = slog.Default()
	}
	dir, err := filepath.Abs(dir) // it stays where it is if the program goes elsewhere
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

// Ready reports whether the engine takes work: CodeUnavailable, with the reason, if
// not. Notes are worth knowing besides, such as that the clock was set.
func (b *Backend) Ready(context.Context) (notes []string, err error) {
	v := b.Vitals()
	return v.Notes(time.Now()), v.Trouble()
}
