package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/diff"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) storedDiffCommand() *cobra.Command {
	return a.readFlag(&cobra.Command{
		Use: "diff NAME [VERSION [VERSION]] | FILE", Short: "Compare versions of a document, or a file with the newest",
		Long: `Print the differences between two versions of a stored document, in the unified format:
between the newest version and the one before, between a version and the newest, or
between two versions. With a file, print the differences between the newest version and
the file.

  belay workflows diff nightly
  belay workflows diff nightly 3
  belay workflows diff nightly 3 5
  belay workflows diff nightly.yaml`,
		ValidArgsFunction: a.completeStored,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 3 {
				return usage("%s takes a name and up to two versions, or a file, not %d arguments", c.CommandPath(),
					len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(r reader) error {
				d, err := a.compare(c.Context(), r, args)
				if err != nil {
					return err
				}
				if a.output == "json" {
					return screen.PrintJSON(a.out, d)
				}
				a.printDiff(d.Diff)
				return nil
			})
		},
	})
}

// compared is what belay workflows diff -o json prints. To is 0 for a file.
type compared struct {
	Name string `json:"name"`
	From int    `json:"from"`
	To   int    `json:"to,omitempty"`
	Diff string `json:"diff"`
}

// compare returns the difference that the arguments of belay workflows diff request.
func (a *app) compare(ctx context.Context, r reader, args []string) (compared, error) {
	if len(args) == 1 && (definition.IsFile(args[0]) || args[0] == "-") {
		return a.compareFile(ctx, r, args[0])
	}
	out := compared{Name: args[0]}
	all, err := r.DocumentVersions(ctx, args[0])
	if err != nil {
		return out, err
	}
	for i, to := range []*int{&out.From, &out.To} {
		if len(args) <= i+1 {
			break
		}
		n, err := strconv.Atoi(strings.TrimPrefix(args[i+1], "@"))
		if err != nil || n < 1 {
			return out, usage("%s is no version; a version is a number from 1", quoted(args[i+1]))
		}
		*to = n
	}
	if out.To == 0 {
		out.To = all.Versions[0].Version
	}
	if out.From == 0 {
		if len(all.Versions) < 2 {
			return out, &belay.Error{Code: belay.CodeNotFound, Message: fmt.Sprintf(
				"%s has only one version, %d; there is nothing to compare it with", args[0], out.To)}
		}
		out.From = all.Versions[1].Version
	}
	from, err := r.Document(ctx, args[0], out.From)
	if err != nil {
		return out, err
	}
	to, err := r.Document(ctx, args[0], out.To)
	out.Diff = diff.Unified(from.String(), to.String(), from.Text, to.Text)
	return out, err
}

func (a *app) compareFile(ctx context.Context, r reader, path string) (compared, error) {
	files, err := a.files([]string{path})
	if err != nil {
		return compared{}, err
	}
	was, err := newest(ctx, r, files[0].name)
	if err != nil {
		return compared{}, err
	}
	return compared{
		Name: was.Name, From: was.Version, Diff: diff.Unified(was.String(), path, was.Text, files[0].text),
	}, nil
}
