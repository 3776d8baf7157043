package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/internal/screen"
)

// The linker sets commit. A release changes version.
var (
	version = "0.1.0-dev"
	commit  = "unknown"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: none,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Commit  string `json:"commit"`
				Go      string `json:"go"`
				System  string `json:"system"`
			}{version, commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if a.output == "json" {
				return screen.PrintJSON(a.out, v)
			}
			fmt.Fprintf(a.out, "belay %s (%s), %s, %s\n", v.Version, v.Commit, v.Go, v.System)
			return nil
		},
	}
}
