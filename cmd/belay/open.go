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

// url returns the URL of the data directory's store.
func (a *app) url() string { return "sqlite:" + a.data }

// reader has the calls that read-only commands need. A client of a server, a client of the process
// that runs the engine, and the reader of a store all implement reader.
type reader interface {
	Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error)
	Detail(ctx context.Context, id belay.ExecutionID) (belay.ExecutionDetail, error)
	Executions(ctx context.Context, f belay.Filter) (belay.Page, error)
	Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error)
	Follow(ctx context.Context, q belay.StatusQuery, f func(belay.StatusNews) error) error
	ListRuns(ctx context.Context, f belay.RunFilter) (belay.RunPage, error)
	Explain(ctx context.Context, id belay.ExecutionID) (belay.Explanation, error)
	Chunks(ctx context.Context, q belay.ChunkQuery) ([]belay.StoredChunk, error)
	Workers(ctx context.Context) ([]belay.Worker, error)
	Gates(ctx context.Context, f belay.GateFilter) (belay.GatePage, error)
	Gate(ctx context.Context, id belay.GateID) (belay.GateDetail, error)
	Documents(ctx context.Context, f belay.DocumentFilter) (belay.DocumentPage, error)
	DocumentVersions(ctx context.Context, name string) (belay.DocumentVersions, error)
	Document(ctx context.Context, name string, version int) (belay.Document, error)
	Schedules(ctx context.Context, f belay.ScheduleFilter) (belay.SchedulePage, error)
	Schedule(ctx context.Context, name string) (belay.ScheduleInfo, error)
	Webhooks(ctx context.Context, f belay.WebhookFilter) (belay.WebhookPage, error)
	Webhook(ctx context.Context, name string) (belay.WebhookInfo, error)
	WebhookDelivery(ctx context.Context, webhook, id string) (belay.WebhookDeliveryData, error)
	NotificationTargets(ctx context.Context) ([]belay.NotificationTargetInfo, error)
	NotificationTarget(ctx context.Context, name string) (belay.NotificationTargetInfo, error)
	DeadLetters(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterPage, error)
	DeadLetterGroups(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterGroups, error)
	DeadLetter(ctx context.Context, id belay.ExecutionID, generation int) (belay.DeadLetterDetail, error)
	Audit(ctx context.Context, f belay.AuditFilter) (belay.AuditPage, error)
	Usage(ctx context.Context, f belay.UsageFilter) (belay.UsageReport, error)
}

// reading calls f with a reader of the store that --store names. Without --store it calls f with a
// client of the server that the command line names, or, if the command line names no server, with a
// reader of the data directory. It can read a store while other processes run engines on the store.
func (a *app) reading(ctx context.Context, f func(reader) error) error {
	if a.store != "" {
		r, err := embedded.OpenReader(ctx, a.store)
		if err != nil {
			return err
		}
		defer r.Close()
		return f(r)
	}
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
	// This program may be unable to read the store: another version of Belay wrote it, or another
	// user owns its files. A process that runs the engine of this data directory can read it, so
	// belay asks that process.
	if belay.CodeOf(err) != belay.CodeNotFound {
		if b, derr := datadir.Dial(ctx, a.data, datadir.Options{InJob: process.InJob}); derr == nil {
			return closing(b, f(b))
		}
	}
	return err
}

// asking calls f like reading, but prefers the process that runs the engine of the data directory to the files: a
// server knows which requests it has refused, and the files do not.
func (a *app) asking(ctx context.Context, f func(reader) error) error {
	if a.store == "" && a.server == "" {
		if b, err := datadir.Dial(ctx, a.data, datadir.Options{InJob: process.InJob}); err == nil {
			return closing(b, f(b))
		}
	}
	return a.reading(ctx, f)
}

// openReader opens the files of the data directory's store for reading. It refuses a directory into
// which users other than this user and root may write, since they could have forged the files.
func (a *app) openReader(ctx context.Context) (*embedded.Reader, error) {
	if err := socket.Check(a.data); err != nil {
		return nil, err
	}
	return embedded.OpenReader(ctx, a.url())
}

// writing calls f with the server, if the command line names one, and otherwise with the engine of
// the data directory. It does not create a data directory, since operators act on existing work.
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

// backend returns the server, if the command line names one; otherwise an engine on the store that
// --store names; otherwise the engine of the data directory. If another process runs the engine of
// the data directory, backend connects to that process, and otherwise it starts the engine in this
// process.
func (a *app) backend(ctx context.Context, purpose string) (belay.Backend, error) {
	if a.server != "" {
		return a.dial(ctx)
	}
	if a.store != "" {
		return embedded.Open(ctx, a.store)
	}
	return datadir.Open(ctx, a.data, datadir.Options{
		Purpose: purpose, Version: version, InJob: process.InJob,
		Engine: burial(a.data),
	})
}

// dial connects to the server that the command line or the environment names.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	key, err := a.key()
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, a.server, client.Key(key), client.UserAgent("belay/"+version))
}

// key returns the API key for the server. No flag takes the key itself, since all users of the
// machine can see the arguments of a process.
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
		return "", usage("the key file %s does not contain one key, as `belay keys create` shows it", quoted(a.keyFile))
	}
	return key, nil
}

// keyHint says where belay read the key from, for the error of a server that refused the key.
func (a *app) keyHint() string {
	switch {
	case a.keyFile != "":
		return "the key is the one in " + quoted(a.keyFile) + "; belay keys create, on the server, makes another"
	case os.Getenv("BELAY_KEY") != "":
		return "the key is the one in BELAY_KEY; belay keys create, on the server, makes another"
	}
	return "put a key into BELAY_KEY, or name the file that contains it with --key-file; belay keys create, on the " +
		"server, makes one"
}

// outage records how long neither a server nor an engine has answered: since is the time of the
// first failed call, or zero if the last call succeeded.
type outage struct{ since time.Time }

// maxOutage is how long a waiting command repeats its call while neither a server nor an engine
// answers.
const maxOutage = 5 * time.Minute

// retryLater reports whether the caller should repeat its call. If the server or engine is
// unavailable, retryLater prints a line at the beginning of the outage, sleeps for half a second
// and returns true, until maxOutage has passed. For any other error it returns false at once.
func (a *app) retryLater(ctx context.Context, away *outage, err error) bool {
	if belay.CodeOf(err) != belay.CodeUnavailable || ctx.Err() != nil {
		return false
	}
	if away.since.IsZero() {
		away.since = time.Now()
		fmt.Fprintf(a.err, "belay: no answer; trying again: %s\n", screen.Line(err.Error()))
	}
	timer := time.NewTimer(500 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return time.Since(away.since) < maxOutage
}

// closing closes b. It returns err or, if err is nil, the error of the close.
func closing(b belay.Backend, err error) error {
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	return err
}

// commandName is the key of the command's name in a context.
type commandName struct{}

// named returns the command's context with the command's name in it.
func named(c *cobra.Command) context.Context {
	return context.WithValue(c.Context(), commandName{}, strings.TrimPrefix(c.CommandPath(), "belay "))
}

// lastExecution is the argument that names the newest execution without a parent.
const lastExecution = "@last"

// executionID returns the id of the execution that an argument names. The argument is a whole id,
// lastExecution, or, for one of the newest thousand executions, an idempotency key or the beginning
// or end of an id. executionID refuses an argument that matches several executions.
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
		return belay.ExecutionID{}, usage("%q matches %d executions; give the complete id of one, as `belay ls` shows it",
			arg, len(found))
	}
	return belay.ExecutionID{}, &belay.Error{
		Code: belay.CodeNotFound, Message: "no execution has the id, a part of an id, or the key " + quoted(arg) +
			"; `belay ls` lists them",
	}
}

// begins reports whether a text can be an incomplete id.
func begins(text string) bool {
	const letters, length = "0123456789abcdefghjkmnpqrstvwxyz", 26
	bare := strings.TrimPrefix(text, "ex_")
	return len(bare) < length && strings.Trim(bare, letters) == ""
}

// fits reports whether part is the beginning or the end of the id and has at least four characters.
func fits(id, part string) bool {
	const least = 4 // the least number of characters
	bare := strings.TrimPrefix(part, "ex_")
	return len(bare) >= least && (strings.HasPrefix(id, "ex_"+bare) || bare == part && strings.HasSuffix(id, part))
}

// completeIDs offers to the shell the ids of the newest executions.
func (a *app) completeIDs(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || a.readStore(c) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ids := []string{lastExecution + "\tthe newest execution"}
	_ = a.reading(c.Context(), func(r reader) error {
		page, err := r.Executions(c.Context(), belay.Filter{Limit: 50})
		for _, e := range page.Executions {
			ids = append(ids, e.ID.String()+"\t"+e.State.String()+" "+e.Workflow)
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
