package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition/tasks"
)

// streams are the standard input, output and error of a command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app has the streams and the global flags that all commands share.
type app struct {
	// The embedded streams escape control characters, since the output of commands contains text of
	// other users. The streams in raw pass bytes on unchanged; see plain.
	streams
	raw streams

	data    string
	server  string
	store   string // the URL of the store that --store or BELAY_STORE names, if the command uses it; else ""
	keyFile string
	output  string
	color   string // --color: auto, always or never
	verbose bool

	viewer *tasks.Viewer // for tasks that no server computes
}

const rootLong = `Belay runs long work durably: each piece of work (an execution) has at most one owner
at a time and a status that is reliable. If the worker of an execution crashes, the
execution continues from its last checkpoint.

  belay run -- make test        run a command durably
  belay run --resume -- make test
                                after a crash: continue after the last finished step
  belay ls                      list executions: running, waiting, failed and so on
  belay watch ID                follow the events of one execution
  belay top                     watch workers, gates and executions in one view
  belay explain ID              say why an execution is in its state

With --server or BELAY_SERVER all commands use a server. If the server requires an API
key, put the key into BELAY_KEY, or into the file that --key-file names. Without a
server all data is in one data directory: --data, BELAY_DATA or ./belay-data. Any
number of commands can use a data directory at the same time: one process runs the
engine, and when that process ends, another one starts the engine. Commands that read
can also read the database of servers, without a server: --store or BELAY_STORE.

An ID is the id of an execution, the first or last characters of an id (four at
least), the execution's idempotency key, or @last for the newest execution.

Exit codes: belay run exits with the exit code of its command, or with 127 if the
command does not exist, 126 if it cannot be run, 125 if its workspace could not be made,
124 if it timed out, and 130 if it was interrupted or cancelled. All other commands exit
with 0, or with
  64 the command line cannot be parsed    65 invalid input, or too large
  66 not found                            69 unavailable, try again
  70 a bug, or a damaged database         73 not possible in the present state
  75 another owner has the execution      77 not allowed`

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: streams{s.in, screened{to: s.out}, screened{to: s.err}}, raw: s, viewer: new(tasks.Viewer)}
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

// plain returns the streams that pass control characters on unchanged.
func (a *app) plain() streams {
	if a.raw.out == nil {
		return a.streams
	}
	return a.raw
}

// codeOf returns the code of an error. If the operating system refuses to open a file, the error is
// not internal: for a missing permission the code is forbidden, and for any other refusal conflict.
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

// exitCode is the error that ends belay with an exit code and prints no message.
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
				a.server = "" // the flag --data has precedence over the variable BELAY_SERVER
			}
			level := slog.LevelWarn
			if a.verbose {
				level = slog.LevelInfo
			}
			slog.SetDefault(slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level})))
			if !slices.Contains(outputs, a.output) {
				return usage("-o is %q; it can be text, wide or json", a.output)
			}
			if !slices.Contains(colours, a.color) {
				return usage("--color is %s; it can be auto, always or never", quoted(a.color))
			}
			if a.raw.out != nil {
				a.out = screened{to: a.raw.out, paints: a.coloured(a.raw.out)}
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
		"the `file` with the API key for the server; without it, BELAY_KEY has the key")
	f.StringVarP(&a.output, "output", "o", "text",
		"the format of the output: `text`, wide (text with internal queues, labels and counters) or json")
	f.StringVar(&a.color, "color", "auto", "colours: `when` to show them: auto (on a terminal, unless NO_COLOR is "+
		"set), always or never")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log more on standard error")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colours, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(
		a.runCommand(), a.submitCommand(), a.agentCommand(), a.mcpCommand(),
		a.lsCommand(), a.getCommand(), a.tasksCommand(), a.logsCommand(),
		a.watchCommand(), a.topCommand(),
		a.explainCommand(), a.runsCommand(),
		a.cancelCommand(), a.pauseCommand(), a.resumeCommand(), a.retryCommand(), a.forkCommand(), a.signalCommand(),
		a.preemptCommand(), a.budgetCommand(), a.quarantineCommand(), a.deadCommand(), a.bulkCommand(), a.rmCommand(),
		a.lockCommand(), a.gatesCommand(), a.limitsCommand(), a.ratesCommand(), a.breakersCommand(),
		a.resourcesCommand(), a.registryCommand(), a.swapCommand(), a.workflowsCommand(), a.schedulesCommand(),
		a.webhooksCommand(), a.publishCommand(), a.targetsCommand(), a.workersCommand(), a.workspacesCommand(),
		a.demoCommand(), a.serveCommand(), a.workerCommand(), a.keysCommand(), a.auditCommand(), a.usageCommand(),
		a.backupCommand(), a.restoreCommand(), a.migrateCommand(), a.doctorCommand(), a.versionCommand(),
	)
	return root
}

// outputs are the values of -o.
var outputs = []string{"text", "wide", "json"}

// wide reports whether text tables also show internal queues, labels and counters.
func (a *app) wide() bool { return a.output == "wide" }

func envOr(name, other string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return other
}

// usage returns an error about the command line itself. Its exit code is 64.
func usage(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeMalformed, Message: fmt.Sprintf(format, args...)}
}

// exactly requires one argument for each name, and lists the names in its error.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usage("%s takes %s, not %d arguments", c.CommandPath(), strings.Join(names, " and "), len(args))
		}
		return nil
	}
}

// none returns an error if a command that takes no arguments gets some.
func none(c *cobra.Command, args []string) error {
	if len(args) > 0 && c.HasAvailableSubCommands() {
		return unknownCommand(c, args[0])
	}
	if len(args) > 0 {
		return usage("%s takes no arguments; %q is one too many", c.CommandPath(), args[0])
	}
	return nil
}
