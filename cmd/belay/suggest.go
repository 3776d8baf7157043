package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// unknownCommand returns the error for an argument that should be a command, with the names of
// similar commands.
func unknownCommand(c *cobra.Command, arg string) error {
	c.SuggestionsMinimumDistance = 2
	return usage("there is no command %q; %s`%s --help` lists them", c.CommandPath()+" "+arg,
		meant(c.SuggestionsFor(arg)), c.CommandPath())
}

// unknownFlag returns the error for flags that cobra cannot read, with the names of similar flags.
func unknownFlag(c *cobra.Command, err error) error {
	hint := ""
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		// cobra suggests only names of commands, so the names of flags become commands here
		flags := &cobra.Command{SuggestionsMinimumDistance: 2}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
			}
		})
		hint = meant(flags.SuggestionsFor("--" + name))
	}
	return usage("%v; %s`%s --help` lists the flags", err, hint, c.CommandPath())
}

func meant(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(names[:min(len(names), 3)], " or ") + "? "
}

// manyFlags is the least number of flags for which the help shows flags in groups.
const manyFlags = 30

// groups renders the flags of a command. If there are many, at least three flags with the same
// first part of their names form a group.
func groups(c *cobra.Command) string {
	flags := c.LocalFlags()
	count := make(map[string]int)
	total := 0
	flags.VisitAll(func(f *pflag.Flag) {
		count[groupOf(f)]++
		total++
	})
	if total < manyFlags {
		return "Flags:\n" + flags.FlagUsages()
	}
	sets := make(map[string]*pflag.FlagSet)
	flags.VisitAll(func(f *pflag.Flag) {
		name := groupOf(f)
		if count[name] < 3 {
			name = ""
		}
		if sets[name] == nil {
			sets[name] = pflag.NewFlagSet(name, pflag.ContinueOnError)
		}
		sets[name].AddFlag(f)
	})
	names := make([]string, 0, len(sets))
	for name := range sets {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for i, name := range names {
		title := "Flags"
		if name != "" {
			title = "Flags for " + name
		}
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s:\n%s", title, sets[name].FlagUsages())
	}
	return b.String()
}

func groupOf(f *pflag.Flag) string {
	first, _, _ := strings.Cut(f.Name, "-")
	return first
}

// helpOf installs cobra's usage text with the flags in groups.
func helpOf(root *cobra.Command) {
	cobra.AddTemplateFunc("groups", groups)
	const flags = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), flags, "{{groups . | trimTrailingWhitespaces}}", 1))
}
