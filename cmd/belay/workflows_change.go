package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) deprecateCommand() *cobra.Command {
	return a.changeDocumentCommand(belay.DocumentDeprecate, "deprecate NAME@VERSION",
		"Deprecate a version of a document", `Deprecate a version of a stored document. Submissions that name no version get the newest
version that is not deprecated. Submissions that name the version still run it, with a
warning. Executions that run it continue.

  belay workflows deprecate nightly@3 --reason "it deletes too much"`)
}

func (a *app) restoreDocumentCommand() *cobra.Command {
	return a.changeDocumentCommand(belay.DocumentRestore, "restore NAME@VERSION", "End the deprecation of a version",
		`End the deprecation of a version of a stored document.

  belay workflows restore nightly@3`)
}

func (a *app) storedRmCommand() *cobra.Command {
	return a.changeDocumentCommand(belay.DocumentRemove, "rm NAME[@VERSION]", "Remove a version of a document, or all",
		`Remove a version of a stored document, or all its versions if there is no @. An execution
contains the text of its version, so executions that run or wait continue, and can be
retried. The number of a removed version is not used again. The schedules and webhooks
that the document defines are removed with its last version.

  belay workflows rm nightly@3
  belay workflows rm nightly`)
}

// changeDocumentCommand returns a command that changes one version, or removes all versions.
func (a *app) changeDocumentCommand(action belay.DocumentAction, use, short, long string) *cobra.Command {
	reason := ""
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: exactly("a version of a document, as in nightly@3"),
		ValidArgsFunction: a.completeStored,
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := documentRef(args[0])
			if err != nil {
				return err
			}
			if ref.Version == 0 && action != belay.DocumentRemove {
				return usage("name the version, as in: %s %s@3", c.CommandPath(), ref.Name)
			}
			return a.changeDocument(c, belay.DocumentChange{
				Name: ref.Name, Version: ref.Version, Action: action, Reason: reason, Actor: actor(),
				Op: belay.OpID(embedded.NewID()),
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "the reason, which the audit records")
	return c
}

func (a *app) changeDocument(c *cobra.Command, d belay.DocumentChange) error {
	ctx := named(c)
	return a.writing(ctx, func(b belay.Backend) error {
		v, err := b.ChangeDocument(ctx, d)
		if err != nil {
			return err
		}
		words := map[belay.DocumentAction]string{
			belay.DocumentDeprecate: "is deprecated", belay.DocumentRestore: "is not deprecated any more",
			belay.DocumentRemove: "is removed",
		}
		switch {
		case a.output == "json":
			return screen.PrintJSON(a.out, v)
		case d.Version == 0:
			fmt.Fprintf(a.out, "all versions of %s are removed\n", d.Name)
		default:
			fmt.Fprintf(a.out, "%s@%d %s\n", d.Name, d.Version, words[d.Action])
		}
		return nil
	})
}
