package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/internal/agent/desk"
)

// errNoDesk is the error of a command that only a job can use.
var errNoDesk = errors.New("this is no job of an agent: " + desk.Variable + " is not set")

func (a *app) mcpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Offer an agent the tools ask_human, checkpoint and report",
		Long: `Serve the Model Context Protocol on standard input and output, for an agent that runs as
a job of Belay. The agent gets three tools:

  ask_human    ask a person, and wait for the answer. The job ends meanwhile and needs no
               slot of the worker; after the answer, the agent continues.
  checkpoint   store the changes in the workspace with the execution, now
  report       show a line about what the agent does

Claude Code gets this server by itself (agent.preset: claude). In other agents configure
the command "$BELAY_BIN mcp"; it needs the variable BELAY_DESK of the job.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			path := os.Getenv(desk.Variable)
			if path == "" {
				return errNoDesk
			}
			return desk.ServeTools(c.Context(), path, version)
		},
	}
}
