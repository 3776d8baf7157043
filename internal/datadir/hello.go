package datadir

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/socket"
	"github.com/belaydev/belay/internal/wire"
)

// silent returns refused (the error that another process uses the directory) with a longer message:
// it adds that the other process does not answer.
func silent(refused error) error {
	var e *belay.Error
	if !errors.As(refused, &e) {
		return refused
	}
	with := *e
	with.Message += "; it does not answer: if it was stopped (Ctrl-Z), continue it with fg or kill -CONT"
	return &with
}

// presence is the open HELLO request of a client. The request ends when the host (the process with
// the engine) ends.
type presence struct {
	hello socket.Hello
	lines *bufio.Reader
	leave func()
}

// greet opens the HELLO request. The error is socket.ErrNobody if no process listens, and
// socket.ErrSilent if the process does not answer in time.
func greet(ctx context.Context, dir string, o Options) (*presence, error) {
	open, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	timer := time.AfterFunc(socket.Greeting, func() { leave(socket.ErrSilent) })
	defer timer.Stop()
	release := context.AfterFunc(ctx, func() { leave(context.Cause(ctx)) })
	defer release()
	//nolint:bodyclose // p.leave closes the body
	resp, err := socket.Send(open, dir, o.judge(), http.MethodGet, "/datadir/hello", "")
	if err != nil {
		leave(nil)
		return nil, err
	}
	p := &presence{lines: bufio.NewReader(io.LimitReader(resp.Body, 2*socket.MaxLine)), leave: func() {
		leave(nil)
		_ = resp.Body.Close()
	}}
	if resp.StatusCode == http.StatusForbidden {
		defer p.leave()
		return nil, forbidden(resp)
	}
	err = p.read(&p.hello)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: hello: %w", socket.ErrNobody, err)
	case resp.StatusCode != http.StatusOK || p.hello.Protocol == 0:
		err = &belay.Error{
			Code: belay.CodeConflict, Message: fmt.Sprintf(
				"the process that serves the socket in %s does not share the directory as this Belay does: it answers "+
					"with %s", dir, resp.Status),
		}
	case p.hello.Protocol != socket.Protocol:
		err = &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf(
			"%s has this data directory and shares it by protocol %d (Belay %s), but this Belay uses protocol %d; "+
				"use the same version, or wait for that process to end",
			p.hello, p.hello.Protocol, p.hello.Version, socket.Protocol)}
	}
	if err != nil {
		p.leave()
		return nil, err
	}
	return p, nil
}

// forbidden returns the reason in the answer of a host (the process with the engine) that does not
// serve this process.
func forbidden(resp *http.Response) error {
	var p wire.Problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, socket.MaxLine)).Decode(&p); err != nil || p.Detail == "" {
		p.Detail = "the host of the data directory does not serve this process"
	}
	return &belay.Error{Code: belay.CodeForbidden, Message: p.Detail}
}

// read reads one line of JSON into v.
func (p *presence) read(v any) error {
	line, err := p.lines.ReadBytes('\n')
	if err != nil && len(line) == 0 {
		return err
	}
	_ = json.Unmarshal(line, v) // a line in another format leaves v empty, and the caller checks v
	return nil
}

// goodbye waits until the host (the process with the engine) stops or dies, and returns the name of
// the next host, or "" if the host named none.
func (p *presence) goodbye() (next string) {
	var bye socket.Goodbye
	if p.read(&bye) != nil {
		return ""
	}
	return bye.Next
}
