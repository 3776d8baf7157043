package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

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
// Open is refused with CodeForbidden if others than this user and root may change
// the directory. Stores other than a data directory have no socket: there Listen
// changes nothing.
func Listen() Option { return func(s *settings) { s.listen = (*Backend).listen } }

// listen serves the socket of the directory, whose lock this process has.
func (b *Backend) listen(dir string, set *settings) error {
	log := set.engine.Log
	if log == nil {
		log = slog.Default()
	}
	dir, err := filepath.Abs(dir) // it stays where it is if the program goes elsewhere
	if err == nil {
		b.server, err = socket.Open(dir, socket.Options{Purpose: set.purpose, Judge: &peer.Judge{InJob: process.InJob}, Log: log})
	}
	if err != nil {
		return fmt.Errorf("make the socket of the data directory: %w", err)
	}
	b.server.Serve(httpapi.New(b, httpapi.Options{Log: log, Stopping: b.server.Stopping(), Ready: b.Ready, Crowded: b.Crowded}))
	return nil
}

// Ready reports whether the engine takes work: CodeUnavailable, with the reason, if
// not. Notes are worth knowing besides, such as that the clock was set.
func (b *Backend) Ready(context.Context) (notes []string, err error) {
	v := b.Vitals()
	return v.Notes(time.Now()), v.Trouble()
}
