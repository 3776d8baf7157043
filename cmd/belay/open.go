package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/datadir"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/secret"
	"github.com/belaydev/belay/internal/socket"
)

func (a *app) url() string { return "sqlite:" + a.data }

// reader is what the reading commands need: of a server, of whoever has the
// engine, or of the data directory itself.
type reader interface {
	Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error)
	Executions(ctx context.Context, f belay.Filter) (belay.Page, error)
	Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error)
	Explain(ctx context.Context, id belay.ExecutionID) (belay.Explanation, error)
	Chunks(ctx context.Context, q belay.ChunkQuery) ([]belay.StoredChunk, error)
	Workers(ctx context.Context) ([]belay.Worker, error)
}

// reading reads from the server, if one is named, and else from the data
// directory, beside whoever has it.
func (a *app) reading(ctx context.Context, f func(reader) error) error {
	if a.server != "" {
		b, err := a.dial(ctx)
		if err != nil {
			return err
		}
		return closing(b, f(b))
	}
	r, err := a.openReader(ctx)
	if err == nil {
		defer r.Close()
		return f(r)
	}
	if belay.CodeOf(err) != belay.CodeNotFound { // of another version, or user: the engine there can read it
		if b, derr := datadir.Dial(ctx, a.data, datadir.Options{InJob: process.InJob}); derr == nil {
			return closing(b, f(b))
		}
	}
	return err
}

// openReader reads the store of the data directory where it is, unless others than this
// user could have prepared it.
func (a *app) openReader(ctx context.Context) (*embedded.Reader, error) {
	if err := socket.Check(a.data); err != nil {
		return nil, err
	}
	return embedded.OpenReader(ctx, a.url())
}

// writing acts through the server, if one is named, and else through the engine
// of the data directory. It makes neither: an operator acts on what is there.
func (a *app) writing(ctx context.Context, f func(belay.Backend) error) error {
	if a.server == "" && a.store == "" {
		r, err := a.openReader(ctx)
		switch {
		case err == nil:
			_ = r.Close()
		case belay.CodeOf(err) == belay.CodeNotFound:
			return err
		}
	}
	b, err := a.backend(ctx, fmt.Sprint("belay ", ctx.Value(commandName{})))
	if err != nil {
		return err
	}
	return closing(b, f(b))
}

// backend is the server, if one is named, and else the engine of the data
// directory: in the process that has it, or else in this one.
func (a *app) backend(ctx context.Context, purpose string) (belay.Backend, error) {
	if a.server != "" {
		return a.dial(ctx)
	}
	if a.store != "" {
		return embedded.Open(ctx, a.store)
	}
	return datadir.Open(ctx, a.data, datadir.Options{
		Purpose: purpose, Version: version, InJob: process.InJob,
		Engine: []embedded.Option{embedded.Bury(buryBelow(a.data))},
	})
}

// dial reaches the server that the command line or the environment names.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	key, err := a.key()
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, a.server, client.Key(key), client.UserAgent("belay/"+version))
}

// key is the secret that a server wants. It is never an argument: everybody on
// the machine can see those.
func (a *app) key() (string, error) {
	if a.keyFile == "" {
		return os.Getenv("BELAY_KEY"), nil
	}
	text, err := secret.Read(a.keyFile, 64<<10)
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return "", usage("the key file %s does not hold one key, as `belay keys create` shows it", quoted(a.keyFile))
	}
	return key, nil
}

// keyHint says to whom a server has refused its key where it was looked for.
func (a *app) keyHint() string {
	switch {
	case a.keyFile != "":
		return "the key is the one in " + quoted(a.keyFile) + "; belay keys create, on the server, makes another"
	case os.Getenv("BELAY_KEY") != "":
		return "the key is the one in BELAY_KEY; belay keys create, on the server, makes another"
	}
	return "put a key into BELAY_KEY, or name the file that holds it with --key-file; belay keys create, on the " +
		"server, makes one"
}

// absence is how long nobody has answered.
type absence struct{ since time.Time }

// longAbsence is how long who waits for something waits for somebody to answer.
const longAbsence = 5 * time.Minute

// rideOut pauses after an error that may pass, and says so the first time. It is
// false for any other, and when the absence has lasted too long.
func (a *app) rideOut(ctx context.Context, away *absence, err error) bool {
	if belay.CodeOf(err) != belay.CodeUnavailable || ctx.Err() != nil {
		return false
	}
	if away.since.IsZero() {
		away.since = time.Now()
		fmt.Fprintf(a.err, "belay: nobody answers, and it is tried again: %s\n", screen.Line(err.Error()))
	}
	timer := time.NewTimer(500 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return time.Since(away.since) < longAbsence
}

// closing closes b after err.
func closing(b belay.Backend, err error) error {
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	return err
}

// commandName is the key under which a context carries the command's name.
type commandName struct{}

// named notes the command's name in the context.
func named(c *cobra.Command) context.Context {
	return context.WithValue(c.Context(), commandName{}, strings.TrimPrefix(c.CommandPath(), "belay "))
}

// lastExecution names the newest execution that is no child.
const lastExecution = "@last"

// executionID reads an argument that names an execution: its whole id, its key, or the
// beginning or the end of its id if that fits only one of the newest thousand; or
// lastExecution.
func (a *app) executionID(ctx context.Context, arg string) (belay.ExecutionID, error) {
	id, err := belay.ParseExecutionID(arg)
	if err == nil || strings.HasPrefix(arg, "ex_") && !begins(arg) {
		return id, err
	}
	f := belay.Filter{Children: true, Limit: 1000}
	if arg == lastExecution {
		f = belay.Filter{Limit: 1}
	}
	var found []belay.ExecutionID
	err = a.reading(ctx, func(r reader) error {
		page, err := r.Executions(ctx, f)
		for _, e := range page.Executions {
			if arg == lastExecution || e.Key == arg || fits(e.ID.String(), arg) {
				found = append(found, e.ID)
			}
		}
		return err
	})
	switch {
	case err != nil:
		return belay.ExecutionID{}, err
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return belay.ExecutionID{}, usage("%q fits %d executions; give the whole id of one, as `belay ls` shows it",
			arg, len(found))
	}
	return belay.ExecutionID{}, &belay.Error{
		Code: belay.CodeNotFound, Message: "no execution has the id, a part of an id, or the key " + quoted(arg) +
			"; `belay ls` lists them",
	}
}

// begins reports whether a text can be the beginning of an id.
func begins(text string) bool {
	const letters, length = "0123456789abcdefghjkmnpqrstvwxyz", 26
	bare := strings.TrimPrefix(text, "ex_")
	return len(bare) < length && strings.Trim(bare, letters) == ""
}

// fits reports whether a part of an id, its beginning or its end, may stand for it.
func fits(id, part string) bool {
	const least = 4 // characters
	bare := strings.TrimPrefix(part, "ex_")
	return len(bare) >= least && (strings.HasPrefix(id, "ex_"+bare) || bare == part && strings.HasSuffix(id, part))
}

// completeIDs offers the newest executions to the shell.
func (a *app) completeIDs(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ids := []string{lastExecution + "\tthe newest"}
	_ = a.reading(c.Context(), func(r reader) error {
		page, err := r.Executions(c.Context(), belay.Filter{Limit: 50})
		for _, e := range page.Executions {
			ids = append(ids, e.ID.String()+"\t"+e.State.String()+" "+e.Workflow)
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
