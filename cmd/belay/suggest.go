package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// unknownCommand refuses an argument where the name of a command belongs, and names those
// that may have been meant.
func unknownCommand(c *cobra.Command, arg string) error {
	c.SuggestionsMinimumDistance = 2
	return usage("there is no command %q; %s`%s --help` lists them", c.CommandPath()+" "+arg,
		meant(c.SuggestionsFor(arg)), c.CommandPath())
}

// unknownFlag is what is wrong with the flags of a command line, and which were meant.
func unknownFlag(c *cobra.Command, err error) error {
	hint := ""
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		flags := &cobra.Command{SuggestionsMinimumDistance: 2} // cobra compares names of commands alone
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

// manyFlags is how many flags a command has whose help shows them in groups.
const manyFlags = 30

// groups shows the flags of a command that has many under the first part of their names,
// where three or more share it.
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

// helpOf is cobra's usage text with the flags in groups.
func helpOf(root *cobra.Command) {
	cobra.AddTemplateFunc("groups", groups)
	const flags = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), flags, "{{groups . | trimTrailingWhitespaces}}", 1))
}
