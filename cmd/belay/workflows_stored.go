package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// newest reads the newest version of a stored document, deprecated or not.
func newest(ctx context.Context, r reader, name string) (belay.Document, error) {
	all, err := r.DocumentVersions(ctx, name)
	if err != nil {
		return belay.Document{}, err
	}
	return r.Document(ctx, name, all.Versions[0].Version)
}

// stored reads the version of a document that an argument names: NAME for the newest, or NAME@VERSION.
func stored(ctx context.Context, r reader, ref belay.DocumentRef) (belay.Document, error) {
	if ref.Version == 0 {
		return newest(ctx, r, ref.Name)
	}
	return r.Document(ctx, ref.Name, ref.Version)
}

// documentRef reads an argument NAME or NAME@VERSION.
func documentRef(arg string) (belay.DocumentRef, error) {
	ref, err := belay.ParseDocumentRef(arg)
	if err != nil {
		return ref, usage("%s is no stored document: %s", quoted(arg), err)
	}
	return ref, nil
}

// completeStored offers the names of stored documents to the shell.
func (a *app) completeStored(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	_ = a.reading(c.Context(), func(r reader) error {
		page, err := r.Documents(c.Context(), belay.DocumentFilter{Limit: 100})
		for _, d := range page.Documents {
			names = append(names, fmt.Sprintf("%s\tversion %d", d.Name, d.Newest.Version))
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) storedLsCommand() *cobra.Command {
	limit := 0
	c := &cobra.Command{
		Use: "ls [NAME]", Short: "List the stored documents, or the versions of one",
		Long: `List the stored documents, or all versions of one document, the newest first. The column
DEFAULT has the version that runs if a submission names none: the newest version that is
not deprecated. After the versions stand the schedules and webhooks that the document
defines.`,
		ValidArgsFunction: a.completeStored,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("%s takes one name, not %d arguments", c.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 1 {
				return usage("--limit is %d; it must be 1 at least", limit)
			}
			return a.reading(c.Context(), func(r reader) error {
				if len(args) == 0 {
					return a.listDocuments(c.Context(), r, limit)
				}
				all, err := r.DocumentVersions(c.Context(), args[0])
				if err != nil {
					return err
				}
				return a.printVersions(&all)
			})
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 1000, "the largest number of documents to list")
	return a.readFlag(c)
}

func (a *app) listDocuments(ctx context.Context, r reader, limit int) error {
	all, err := upTo(a, limit, func(cursor string, most int) ([]belay.DocumentInfo, string, error) {
		page, err := r.Documents(ctx, belay.DocumentFilter{Cursor: cursor, Limit: most})
		return page.Documents, page.Next, err
	})
	if err != nil {
		return err
	}
	if a.output == "json" {
		return screen.PrintJSON(a.out, all)
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no documents; belay workflows apply FILE stores one")
		return nil
	}
	t := screen.NewTable(a.out, "NAME", "NEWEST", "DEFAULT", "VERSIONS", "AGE", "BY")
	for _, d := range all {
		t.Row(d.Name, fmt.Sprint(d.Newest.Version), defaultOf(d.Default), fmt.Sprint(d.Count),
			since(d.Newest.CreatedAt), dash(d.Newest.CreatedBy))
	}
	return t.Flush()
}

func defaultOf(version int) string {
	if version == 0 {
		return "-"
	}
	return fmt.Sprint(version)
}

func (a *app) printVersions(all *belay.DocumentVersions) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, all)
	}
	t := screen.NewTable(a.out, "VERSION", "AGE", "BY", "SIZE", "HASH", "DEPRECATED")
	for _, v := range all.Versions {
		t.Row(v.String(), since(v.CreatedAt), dash(v.CreatedBy), fmt.Sprint(v.Size), v.Hash[:min(12, len(v.Hash))],
			deprecated(&v))
	}
	if err := t.Flush(); err != nil || len(all.Schedules)+len(all.Webhooks) == 0 {
		return err
	}
	fmt.Fprintln(a.out)
	for _, name := range all.Schedules {
		fmt.Fprintf(a.out, "defines the schedule %s\n", name)
	}
	for _, name := range all.Webhooks {
		fmt.Fprintf(a.out, "defines the webhook %s\n", name)
	}
	return nil
}

// deprecated says since when a version is deprecated, by which actor, and why.
func deprecated(v *belay.DocumentVersion) string {
	if v.Deprecated == nil {
		return "-"
	}
	return done(since(v.Deprecated.At)+" ago", v.Deprecated.By, v.Deprecated.Reason)
}

func (a *app) storedGetCommand() *cobra.Command {
	text := false
	c := &cobra.Command{
		Use: "get NAME[@VERSION]", Short: "Show a stored document", Args: exactly("the name of a document"),
		Long: `Show the newest version of a stored document, or the version after @. With --text, print
only its text, as it was applied.

  belay workflows get nightly
  belay workflows get nightly@3 --text > nightly.yaml`,
		ValidArgsFunction: a.completeStored,
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := documentRef(args[0])
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				d, err := stored(c.Context(), r, ref)
				if err != nil {
					return err
				}
				return a.printDocument(&d, text)
			})
		},
	}
	c.Flags().BoolVar(&text, "text", false, "print only the text")
	return a.readFlag(c)
}

func (a *app) printDocument(d *belay.Document, textOnly bool) error {
	switch {
	case textOnly:
		_, err := fmt.Fprint(a.out, d.Text)
		return err
	case a.output == "json":
		return screen.PrintJSON(a.out, d)
	}
	say := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	say("document", "%s", d)
	say("hash", "%s", d.Hash)
	say("created", "%s (%s ago) by %s", d.CreatedAt.Local().Format(time.DateTime), since(d.CreatedAt),
		dash(d.CreatedBy))
	if d.Deprecated != nil {
		say("deprecated", "%s", deprecated(&d.DocumentVersion))
	}
	fmt.Fprintln(a.out)
	for line := range strings.Lines(d.Text) {
		fmt.Fprintln(a.out, screen.Line(strings.TrimSuffix(line, "\n")))
	}
	return nil
}
