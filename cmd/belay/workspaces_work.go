package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/screen"
)

// work is the changes of an execution to its repository, and the commit on which a user can restore
// them.
type work struct {
	Execution string `json:"execution,omitempty"`
	Repo      string `json:"repo,omitempty"`
	Commit    string `json:"commit,omitempty"`
	Branch    string `json:"branch,omitempty"`
	// From says, as text, where the work was found.
	From    string `json:"from"`
	Commits int    `json:"commits"`
	Files   int    `json:"files"`
	Lost    string `json:"lost,omitempty"`
	// Left lists the changes that belay workspaces restore has not applied to the checkout, because
	// they would make git run programs as the user.
	Left []string `json:"left,omitempty"`
	// BundleFile, PatchFile and HomeFile are the paths of the files that belay workspaces salvage
	// wrote.
	BundleFile string `json:"bundle,omitempty"`
	PatchFile  string `json:"patch,omitempty"`
	HomeFile   string `json:"home,omitempty"`
	Dir        string `json:"dir,omitempty"`
	HomeDir    string `json:"home_dir,omitempty"`

	salvage workspace.Salvage
}

func (s *spaces) salvageCommand() *cobra.Command {
	to := "."
	c := &cobra.Command{
		Use: "salvage ID", Short: "Write the work of an execution to files",
		Args: exactly("the id of an execution or workspace"),
		Long: "Write the changes that an execution made to files: ID.bundle, a git bundle of its commits, stashes\n" +
			"and staged changes; ID.patch, a patch of its other changes; and, if its run was interrupted,\n" +
			"ID.home.tar.gz, its HOME. ID is the id of an execution, or the id of a workspace from the output\n" +
			"of belay workspaces ls -o json.",
		ValidArgsFunction: s.completeWork,
		RunE: func(c *cobra.Command, args []string) error {
			w, err := s.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			name := w.Execution
			if name == "" {
				name = args[0]
			}
			if err := w.write(to, name); err != nil {
				return err
			}
			return s.printWork(w)
		},
	}
	c.Flags().StringVar(&to, "to", to, "the `directory` to write to")
	_ = c.MarkFlagDirname("to")
	return c
}

func (s *spaces) restoreCommand() *cobra.Command {
	var repo, home string
	c := &cobra.Command{
		Use: "restore ID DIR", Short: "Check out the work of an execution",
		Args: exactly("the id of an execution or workspace", "a directory"),
		Long: "Make a checkout in DIR, which must be empty or not exist, at the commit from which the execution\n" +
			"started, with the commits, refs, stashes, and staged and uncommitted changes of the execution. (To\n" +
			"restore a database from a backup, use belay restore.)",
		ValidArgsFunction: s.completeWork,
		RunE: func(c *cobra.Command, args []string) error {
			w, err := s.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			var login workspace.Login
			if repo != "" {
				if w.Repo, login, err = workspace.Reveal(repo); err != nil {
					return err
				}
			}
			return s.restore(c.Context(), w, args[1], home, login)
		},
	}
	c.Flags().StringVar(&home, "home", "", "the `directory` into which to unpack the execution's HOME; it must be empty or not exist")
	_ = c.MarkFlagDirname("home")
	c.Flags().StringVar(&repo, "repo", "",
		"the repository, a path or `URL`, if it has moved since the execution cloned it")
	return c
}

func (s *spaces) restore(ctx context.Context, w *work, dir, home string, login workspace.Login) error {
	switch {
	case home != "" && len(w.salvage.Home) == 0:
		return &belay.Error{
			Code:    belay.CodeNotFound,
			Message: "this execution has no saved HOME: Belay saves HOME only for an interrupted run",
		}
	case w.Repo == "":
		return usage("the repository of the work is not known; name it with --repo")
	case w.Commit == "":
		return &belay.Error{
			Code: belay.CodeNotFound, Message: "the commit at which the work began is not known, so it cannot be " +
				"checked out",
		}
	}
	if err := checkEmpty(home); err != nil {
		return err
	}
	m, err := s.open()
	if err == nil && m == nil { // no workspace of the execution is here, because it ran on another machine
		m, err = openSpaces(filepath.Join(s.data, "workspaces"))
	}
	if err != nil {
		return err
	}
	m.Credentials = withLogin(w.Repo, login, nil)
	if w.Left, err = m.CheckOut(ctx, workspace.Spec{Repo: w.Repo, Ref: w.Branch, Commit: w.Commit}, dir,
		w.salvage); err != nil {
		return err
	}
	if w.Dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if home != "" {
		err := os.MkdirAll(home, 0o700)
		if err == nil {
			err = workspace.UnpackHome(home, w.salvage.Home)
		}
		if err != nil {
			return err
		}
		w.HomeDir = home
	}
	return s.printWork(w)
}

// checkEmpty returns an error if a directory has entries.
func checkEmpty(dir string) error {
	if entries, err := os.ReadDir(dir); dir != "" && err == nil && len(entries) > 0 {
		return &belay.Error{
			Code: belay.CodeConflict, Message: fmt.Sprintf("%s is not empty; name a directory that is empty or "+
				"does not exist", dir),
		}
	}
	return nil
}

// write writes the bundle, the patch and the archive of HOME to files.
func (w *work) write(dir, name string) error {
	for _, f := range []struct {
		suffix string
		data   []byte
		path   *string
	}{{
		".bundle", w.salvage.Bundle, &w.BundleFile,
	}, {".patch", w.salvage.Patch, &w.PatchFile}, {".home.tar.gz", w.salvage.Home, &w.HomeFile}} {
		if len(f.data) == 0 {
			continue
		}
		path := filepath.Join(dir, name+f.suffix)
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = out.Write(f.data)
		if cerr := out.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		*f.path = path
	}
	return nil
}

// printWork prints where the work was found and where it is now.
func (s *spaces) printWork(w *work) error {
	if s.output == "json" {
		return screen.PrintJSON(s.out, w)
	}
	t := screen.NewTable(s.out)
	t.Row("from", w.From)
	t.Row("changed", fmt.Sprintf("%d commits, %d files", w.Commits, w.Files))
	for _, r := range [][2]string{
		{"commit", w.Commit}, {"bundle", w.BundleFile}, {"patch", w.PatchFile}, {"checkout", w.Dir},
		{"home", cmp.Or(w.HomeFile, w.HomeDir)},
		{"lost", w.Lost}, {"left out", strings.Join(w.Left, "; ")},
	} {
		if r[1] != "" {
			t.Row(r[0], r[1])
		}
	}
	return t.Flush()
}

// find returns the newest work of an execution or of a workspace. It reads first the result of an
// execution that has ended, then the workspaces of dead processes on this machine and the work kept
// here, and then the checkpoints that the execution saved while it ran.
func (s *spaces) find(ctx context.Context, arg string) (*work, error) {
	id, named := executionOf(arg)
	if !named {
		var err error
		if id, err = s.executionID(ctx, arg); err != nil {
			return nil, err
		}
	}
	var e belay.Execution
	readErr := s.reading(ctx, func(r reader) (err error) {
		e, err = r.Execution(ctx, id)
		return err
	})
	if readErr != nil && !named {
		return nil, readErr
	}
	if readErr == nil && e.State.Terminal() && !named {
		if w, err := s.stored(ctx, &e); w != nil || err != nil {
			return w, err
		}
	}
	if w, err := s.left(ctx, id, arg, named); w != nil || err != nil {
		return w, err
	}
	if readErr == nil {
		for _, look := range []func(context.Context, *belay.Execution) (*work, error){s.stored, s.saved} {
			if w, err := look(ctx, &e); w != nil || err != nil {
				return w, err
			}
		}
	}
	if readErr == nil && !e.State.Terminal() {
		return nil, &belay.Error{
			Code: belay.CodeNotFound, Message: fmt.Sprintf(
				"%s is %s and has no saved work yet: work is saved when a step ends, every minute while an agent "+
					"works, and when a worker dies", id, e.State),
		}
	}
	return nil, &belay.Error{
		Code: belay.CodeNotFound, Message: fmt.Sprintf(
			"%s has no work: it changed nothing, or worked without a repository", arg),
	}
}

// left returns the newest work that is in workspaces of dead processes or kept on this machine, or
// nil if there is none.
func (s *spaces) left(ctx context.Context, id belay.ExecutionID, arg string, named bool) (*work, error) {
	m, err := s.open()
	if err != nil || m == nil {
		return nil, err
	}
	mine := func(name string) bool {
		of, ok := executionOf(name)
		return name == arg || !named && ok && of == id
	}
	list, err := m.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := len(list) - 1; i >= 0; i-- { // the work with the newest token is the last in the list
		if !mine(list[i].ID) || list[i].InUse && !named || list[i].Commit == "" {
			continue
		}
		return salvageDead(ctx, m, list[i].ID, id)
	}
	kept, err := m.Kept()
	if err != nil {
		return nil, err
	}
	for i := len(kept) - 1; i >= 0; i-- {
		if mine(kept[i].ID) {
			k, err := m.Work(kept[i].ID)
			return fromSalvage(id, k.Repo, k.Commit, k.Branch, "kept on this machine "+since(k.At)+" ago", k.Salvage),
				err
		}
	}
	return nil, nil
}

// salvageDead reads the work in a workspace whose process has died. It does not change the
// workspace.
func salvageDead(ctx context.Context, m *workspace.Manager, name string, id belay.ExecutionID) (*work, error) {
	w, err := m.Adopt(name)
	if err != nil {
		return nil, err
	}
	defer w.Abandon()
	got, err := m.Salvage(ctx, w)
	if err != nil || got.Empty() {
		return nil, err
	}
	return fromSalvage(id, w.Repo, w.Commit, w.Branch, "a workspace of a dead process", got), nil
}

func fromSalvage(id belay.ExecutionID, repo, commit, branch, from string, got workspace.Salvage) *work {
	return &work{
		Execution: id.String(), Repo: repo, Commit: commit, Branch: branch, From: from, Commits: got.Commits,
		Files: got.Files, Lost: got.Lost,
		salvage: got,
	}
}

// stored returns the work in the result of an execution, or nil if there is none.
func (s *spaces) stored(ctx context.Context, e *belay.Execution) (*work, error) {
	var out struct {
		Commit  string         `json:"commit"`
		Changes *agent.Changes `json:"changes"`
	}
	if len(e.Output) == 0 || json.Unmarshal(e.Output, &out) != nil || out.Changes == nil {
		return nil, nil //nolint:nilerr // another workflow's result, or no changes
	}
	var w *work
	err := s.reading(ctx, func(r reader) (err error) {
		w, err = readWork(ctx, r, e, out.Commit, "the execution", out.Changes)
		return err
	})
	return w, err
}

// saved returns the work that was saved in checkpoints while an agent worked, or nil if there is
// none.
func (s *spaces) saved(ctx context.Context, e *belay.Execution) (*work, error) {
	var w *work
	err := s.reading(ctx, func(r reader) error {
		events, err := allEvents(ctx, r, belay.EventQuery{Execution: e.ID, Data: true})
		if err != nil {
			return err
		}
		var at struct{ Commit string }
		var newest struct{ Changes *agent.Changes }
		var when time.Time
		for i := range events {
			switch ev := &events[i]; {
			case ev.Pruned:
			case ev.Kind == "step" && ev.Name == "checkout":
				// If the commit cannot be read, it stays empty, and belay workspaces restore reports that.
				_ = json.Unmarshal(ev.Data, &at)
			case ev.Kind == "state":
				newest.Changes, when = nil, ev.At
				// the state of another workflow contains no changes, so an error is ignored
				_ = json.Unmarshal(ev.Data, &newest)
			}
		}
		if newest.Changes == nil || newest.Changes.Bundle+newest.Changes.Patch+newest.Changes.Home == "" {
			return nil
		}
		w, err = readWork(ctx, r, e, at.Commit, "the execution, kept while it ran "+since(when)+" ago", newest.Changes)
		return err
	})
	return w, err
}

// readWork returns the changes of an execution to its repository. It reads them from the artifacts
// that c names.
func readWork(ctx context.Context, r reader, e *belay.Execution, commit, from string, c *agent.Changes) (*work, error) {
	var in struct{ Repo, Ref string }
	_ = json.Unmarshal(e.Input, &in) // if the input names no repository, restore needs --repo
	w := &work{Execution: e.ID.String(), Repo: in.Repo, Branch: in.Ref, Commit: commit, From: from, Commits: c.Commits,
		Files: c.Files, Lost: c.Lost}
	for name, to := range map[string]*[]byte{c.Bundle: &w.salvage.Bundle, c.Patch: &w.salvage.Patch,
		c.Home: &w.salvage.Home} {
		if name == "" {
			continue
		}
		var data bytes.Buffer
		if err := copyChunks(ctx, &data, r, e.ID, name); err != nil {
			return nil, err
		}
		*to = data.Bytes()
	}
	return w, nil
}
