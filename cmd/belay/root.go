package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what all commands share.
type app struct {
	// streams are fit for a screen: what commands write is somebody's input as well. Raw
	// are those that bytes go to as they are; see plain.
	streams
	raw streams

	data    string
	server  string
	store   string // of belay keys: the database, if it is one
	keyFile string
	output  string
	verbose bool
}

const rootLong = `Belay runs long work durably: every execution has exactly one owner at a time, a
truthful status, and goes on from its last checkpoint when its worker falls.

  belay run -- make test        run a command durably; again after a crash, it goes on
  belay ls                      what runs, waits, failed
  belay watch ID                follow one as it happens
  belay explain ID              why it is where it is

With --server or BELAY_SERVER all of it happens on a server; the key, if it wants
one, is in BELAY_KEY or in --key-file. Otherwise everything is kept in one data
directory, ./belay-data unless --data or BELAY_DATA says otherwise, and any number
of commands use it side by side: one has the engine, and when it ends the next
takes over.

Exit codes: belay run ends with the command's own exit code, 127 or 126 when there
is no such command or it cannot be run, 125 when its workspace could not be made,
124 when it timed out, 130 when it was interrupted or cancelled. Otherwise 0, or
  64 the command line cannot be read      65 invalid input, or too large
  66 not found                            69 unavailable, try again
  70 a bug, or a damaged database         73 not possible from here
  75 somebody else holds it               77 not allowed`

// run carries out one command line and answers with the exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: streams{s.in, screened{s.out}, screened{s.err}}, raw: s}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var exit exitCode
	if errors.As(err, &exit) {
		return int(exit)
	}
	fmt.Fprintln(a.err, "belay:", err)
	code := codeOf(err)
	if code == belay.CodeUnauthorized && a.server != "" {
		fmt.Fprintln(a.err, a.keyHint())
	}
	return code.Exit()
}

// plain are the streams that pass everything on.
func (a *app) plain() streams {
	if a.raw.out == nil {
		return a.streams
	}
	return a.raw
}

// codeOf is the code of an error. What the machine has refused without Belay
// saying more is no bug.
func codeOf(err error) belay.Code {
	code := belay.CodeOf(err)
	var path *fs.PathError
	switch {
	case code != belay.CodeInternal:
	case errors.Is(err, fs.ErrPermission):
		return belay.CodeForbidden
	case errors.As(err, &path):
		return belay.CodeConflict
	}
	return code
}

// exitCode ends belay with a code and no further word.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "belay", Short: "Run long work durably", Long: rootLong,
		SilenceUsage: true, SilenceErrors: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if f := c.Flags(); f.Changed("data") && !f.Changed("server") {
				a.server = "" // what is typed counts before what is set
			}
			level := slog.LevelWarn
			if a.verbose {
				level = slog.LevelInfo
			}
			slog.SetDefault(slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level})))
			if a.output != "text" && a.output != "json" {
				return usage("-o is %q; it can be text or json", a.output)
			}
			return nil
		},
	}
	root.SetFlagErrorFunc(unknownFlag)
	helpOf(root)
	f := root.PersistentFlags()
	f.StringVar(&a.data, "data", envOr("BELAY_DATA", "belay-data"), "the data `directory`")
	f.StringVar(&a.server, "server", envOr("BELAY_SERVER", ""),
		"the server, as http://HOST:PORT, https://HOST or unix:PATH, instead of a data directory")
	f.StringVar(&a.keyFile, "key-file", envOr("BELAY_KEY_FILE", ""),
		"the `file` that holds the key for the server; without it, BELAY_KEY")
	f.StringVarP(&a.output, "output", "o", "text", "`text` or json")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "say more on standard error")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"},
		cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(
		a.runCommand(), a.submitCommand(), a.lsCommand(), a.getCommand(), a.logsCommand(), a.watchCommand(),
		a.explainCommand(),
		a.cancelCommand(), a.pauseCommand(), a.resumeCommand(), a.retryCommand(), a.signalCommand(),
		a.lockCommand(), a.workersCommand(), a.workspacesCommand(), a.demoCommand(), a.serveCommand(),
		a.workerCommand(), a.keysCommand(), a.backupCommand(), a.restoreCommand(), a.migrateCommand(),
		a.doctorCommand(), a.versionCommand(),
	)
	return root
}

func envOr(name, other string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return other
}

// usage is an error about the command line itself.
func usage(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeMalformed, Message: fmt.Sprintf(format, args...)}
}

// exactly wants n arguments and names them when they are not there.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usage("%s takes %s, not %d arguments", c.CommandPath(), strings.Join(names, " and "), len(args))
		}
		return nil
	}
}

// none wants no arguments.
func none(c *cobra.Command, args []string) error {
	if len(args) > 0 && c.HasAvailableSubCommands() {
		return unknownCommand(c, args[0])
	}
	if len(args) > 0 {
		return usage("%s takes no arguments; %q is one too many", c.CommandPath(), args[0])
	}
	return nil
}
