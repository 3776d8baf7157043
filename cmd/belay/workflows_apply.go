package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/diff"
	"github.com/belaydev/belay/internal/screen"
)

// applyFlags are the flags of belay workflows apply.
type applyFlags struct {
	ifVersion     int
	isNew, dryRun bool
	reason        string
}

func (a *app) applyCommand() *cobra.Command {
	var f applyFlags
	c := &cobra.Command{
		Use: "apply FILE…", Short: "Store documents, as new versions if they have changed",
		Long: `Store documents under the names in their files. If the newest version of a document has
another text, the file becomes a new version; versions never change. Executions that were
submitted before keep their version. All files are checked before the first is stored; a
wrong one is reported as by belay workflows validate, with exit code 65.

The schedules and webhooks that a document defines with the key on are created, changed
and removed with its versions. Their names are DOCUMENT.KEY.

  belay workflows apply nightly.yaml weekly.yaml
  belay workflows apply --dry-run nightly.yaml        print what would change, store nothing
  belay workflows apply --if-version 3 nightly.yaml   only if version 3 is the newest

belay submit --document NAME runs the newest version, and NAME@3 runs version 3.`,
		ValidArgsFunction: completeDocuments,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name the file of a document, as in: belay workflows apply nightly.yaml")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case c.Flags().Changed("if-version") && f.ifVersion < 1:
				return usage("--if-version is %d; versions count from 1", f.ifVersion)
			case f.ifVersion > 0 && len(args) > 1:
				return usage("--if-version is for one document, not for %d", len(args))
			case f.ifVersion > 0 && f.isNew:
				return usage("give --if-version or --new, not both")
			}
			return a.apply(c, &f, args)
		},
	}
	c.Flags().IntVar(&f.ifVersion, "if-version", 0, "store the document only if this `version` is the newest")
	c.Flags().BoolVar(&f.isNew, "new", false, "store documents only if there are none of their names")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false,
		"print the differences from the newest versions, and the schedules and webhooks that would change; store nothing")
	c.Flags().StringVar(&f.reason, "reason", "", "the reason, which the audit records")
	_ = c.RegisterFlagCompletionFunc("if-version", cobra.NoFileCompletions)
	return c
}

// file is a checked document of the command line.
type file struct{ path, name, text string }

// files reads and checks documents. The error lists the problems of all of them.
func (a *app) files(paths []string) ([]file, error) {
	var all []file
	var problems definition.Problems
	for _, path := range paths {
		text, err := a.readDocument(path)
		if err != nil {
			return nil, err
		}
		d, wrong := catalog.Parse(path, text)
		if d == nil {
			problems = append(problems, wrong...)
			continue
		}
		for _, x := range all {
			if x.name == d.Name {
				return nil, usage("%s and %s have the same name, %s", quoted(x.path), quoted(path), d.Name)
			}
		}
		all = append(all, file{path, d.Name, string(text)})
	}
	if len(problems) > 0 {
		return nil, documentError(problems)
	}
	return all, nil
}

func (a *app) apply(c *cobra.Command, f *applyFlags, paths []string) error {
	files, err := a.files(paths)
	if err != nil {
		return err
	}
	if f.dryRun {
		return a.reading(c.Context(), func(r reader) error { return a.applyDry(c, r, files) })
	}
	ctx := named(c)
	b, err := a.backend(ctx, "belay workflows apply")
	if err != nil {
		return err
	}
	applied := make([]belay.DocumentApplied, 0, len(files))
	for _, x := range files {
		d, err := b.ApplyDocument(ctx, belay.DocumentApply{
			Name: x.name, Text: x.text, IfVersion: f.ifVersion, IfNew: f.isNew, Actor: actor(), Reason: f.reason,
			Op: belay.OpID(embedded.NewID()),
		})
		if err != nil {
			return closing(b, err)
		}
		if applied = append(applied, d); a.output == "json" {
			continue
		}
		word := "unchanged"
		if d.Created {
			word = "stored"
		}
		fmt.Fprintf(a.out, "%s %s\n", d, word)
		for _, t := range d.Triggers {
			fmt.Fprintf(a.out, "%s %s %s\n", t.Kind, t.Name, t.Change)
		}
		if d.Deprecated != nil {
			fmt.Fprintf(a.err, "belay: %s is deprecated; end that with: belay workflows restore %s\n", d, d)
		}
	}
	if a.output == "json" {
		err = screen.PrintJSON(a.out, applied)
	}
	if err = closing(b, err); err == nil && slices.ContainsFunc(applied, setsSchedule) {
		a.noteNoSlots(belay.ScheduleInfo{})
	}
	return err
}

// setsSchedule reports whether an apply has created or changed a schedule.
func setsSchedule(d belay.DocumentApplied) bool {
	return slices.ContainsFunc(d.Triggers, func(t belay.DocumentTrigger) bool {
		return t.Kind == belay.ScheduleKind && t.Change != belay.TriggerRemoved
	})
}

// dryApplied is what belay workflows apply --dry-run -o json prints about a document.
type dryApplied struct {
	Name    string `json:"name"`
	Newest  int    `json:"newest,omitempty"` // 0 if there is no such document
	Changed bool   `json:"changed"`
	Diff    string `json:"diff,omitempty"`
	// Triggers are the schedules and webhooks that would change.
	Triggers []belay.DocumentTrigger `json:"triggers,omitempty"`
}

// applyDry prints what apply would change.
func (a *app) applyDry(c *cobra.Command, r reader, files []file) error {
	all := make([]dryApplied, 0, len(files))
	for _, x := range files {
		was, err := newest(c.Context(), r, x.name)
		if err != nil && belay.CodeOf(err) != belay.CodeNotFound {
			return err
		}
		d := dryApplied{Name: x.name, Newest: was.Version, Changed: was.Text != x.text}
		from := "/dev/null"
		if was.Version > 0 {
			from = was.String()
		}
		d.Diff = diff.Unified(from, x.path, was.Text, x.text)
		if d.Triggers, err = catalog.Plan(c.Context(), r, x.name, x.text); err != nil {
			return err
		}
		if all = append(all, d); a.output == "json" {
			continue
		}
		if d.Changed {
			a.printDiff(d.Diff)
		} else {
			fmt.Fprintf(a.out, "%s is unchanged\n", was)
		}
		for _, t := range d.Triggers {
			fmt.Fprintf(a.out, "%s %s would be %s\n", t.Kind, t.Name, t.Change)
		}
	}
	if a.output == "json" {
		return screen.PrintJSON(a.out, all)
	}
	return nil
}

// printDiff prints the lines of a difference without control characters.
func (a *app) printDiff(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintln(a.out, screen.Line(strings.TrimSuffix(line, "\n")))
	}
}
