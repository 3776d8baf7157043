package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) workflowsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "workflows", Short: "Check, draw and store workflows that are written as documents", Args: none,
		Long: `Check, draw and store documents: workflows that are written in YAML or JSON, without Go.

  belay workflows validate nightly.yaml     list all mistakes with line and column
  belay workflows graph nightly.yaml        print the tasks in their order
  belay workflows schema > belay.schema.json
                                            the format, for editors
  belay workflows apply nightly.yaml        store a new version
  belay workflows ls                        list the stored documents

belay run FILE.yaml runs a document from a file, and belay submit --document NAME runs a
stored one.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.validateCommand(), a.graphCommand(), a.schemaCommand(), a.applyCommand(), a.storedLsCommand(),
		a.storedGetCommand(), a.storedDiffCommand(), a.deprecateCommand(), a.restoreDocumentCommand(),
		a.storedRmCommand())
	return c
}

// completeDocuments offers the names of documents to the shell.
func completeDocuments(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// readDocument reads the text of a document; - stands for standard input.
func (a *app) readDocument(file string) ([]byte, error) {
	r := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil, &belay.Error{Code: belay.CodeNotFound, Message: "there is no file " + quoted(file)}
			}
			return nil, err
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, definition.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", quoted(file), err)
	}
	return text, nil
}

// document reads and validates a document. The error lists all its problems.
func (a *app) document(file string) (*definition.Document, []byte, error) {
	text, err := a.readDocument(file)
	if err != nil {
		return nil, nil, err
	}
	d, problems := catalog.Parse(file, text)
	if d == nil {
		return nil, nil, documentError(problems)
	}
	return d, text, nil
}

// documentError returns the problems of a document as an error of several lines.
func documentError(problems definition.Problems) error {
	lines := make([]string, len(problems))
	for i := range problems {
		lines[i] = screen.Line(problems[i].String())
	}
	return &belay.Error{
		Code: belay.CodeInvalid, Message: fmt.Sprintf("the document has %s:\n%s", screen.Plural(len(lines), "problem"),
			strings.Join(lines, "\n")),
	}
}

func (a *app) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE…", Short: "List the mistakes of documents",
		Long: `Check documents, and list all mistakes with file, line and column. The exit code is 65 if
there is one. - stands for standard input.

  belay workflows validate *.yaml
  belay workflows validate -o json nightly.yaml | jq '.[].problems'`,
		ValidArgsFunction: completeDocuments,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name the file of a document, as in: belay workflows validate nightly.yaml")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.validate(args) },
	}
}

// validated is what belay workflows validate -o json prints about a document.
type validated struct {
	File     string              `json:"file"`
	Valid    bool                `json:"valid"`
	Name     string              `json:"name,omitempty"`
	Tasks    int                 `json:"tasks,omitempty"`
	Hash     string              `json:"hash,omitempty"`
	Problems definition.Problems `json:"problems,omitempty"`
}

func (a *app) validate(files []string) error {
	all := make([]validated, 0, len(files))
	for _, file := range files {
		text, err := a.readDocument(file)
		if err != nil {
			return err
		}
		d, problems := catalog.Parse(file, text)
		v := validated{File: file, Valid: d != nil, Problems: problems}
		if d != nil {
			v.Name, v.Tasks, v.Hash = d.Name, len(d.Tasks), d.Hash
		}
		all = append(all, v)
	}
	bad := slices.ContainsFunc(all, func(v validated) bool { return !v.Valid })
	if a.output == "json" {
		if err := screen.PrintJSON(a.out, all); err != nil {
			return err
		}
	} else {
		for i := range all {
			a.printValidated(&all[i])
		}
	}
	if bad {
		return exitCode(belay.CodeInvalid.Exit())
	}
	return nil
}

func (a *app) printValidated(v *validated) {
	if v.Valid {
		fmt.Fprintf(a.out, "%s: valid: %s, %s\n", screen.Line(v.File), v.Name, screen.Plural(v.Tasks, "task"))
		return
	}
	for i := range v.Problems {
		fmt.Fprintln(a.out, screen.Line(v.Problems[i].String()))
	}
}

// graphFormats are the values of --format.
var graphFormats = []string{"text", "mermaid", "svg"}

func (a *app) graphCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "graph FILE", Short: "Draw the tasks of a document", Args: exactly("the file of a document"),
		Long: `Draw the tasks of a document with what each of them needs: as text, in the language of
Mermaid, or as an SVG image. With -o json, print the tasks and their needs.

  belay workflows graph nightly.yaml
  belay workflows graph --format svg nightly.yaml > nightly.svg`,
		ValidArgsFunction: completeDocuments,
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(graphFormats, format) {
				return usage("--format is %s; it can be %s", quoted(format), strings.Join(graphFormats, ", "))
			}
			d, _, err := a.document(args[0])
			if err != nil {
				return err
			}
			return a.printGraph(d, format)
		},
	}
	c.Flags().StringVar(&format, "format", "text", "the `format`: "+strings.Join(graphFormats, ", "))
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(graphFormats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// graphTask is a task in the JSON of belay workflows graph.
type graphTask struct {
	ID      string   `json:"id"`
	Uses    string   `json:"uses"`
	Needs   []string `json:"needs"`
	Foreach bool     `json:"foreach,omitempty"`
	Undoes  bool     `json:"compensates,omitempty"`
}

func (a *app) printGraph(d *definition.Document, format string) error {
	switch {
	case a.output == "json":
		tasks := make([]graphTask, len(d.Tasks))
		for i, t := range d.Tasks {
			tasks[i] = graphTask{t.ID, t.Uses, append([]string{}, t.Needs...), t.Foreach != nil, t.Undoes}
		}
		return screen.PrintJSON(a.out, map[string]any{"name": d.Name, "tasks": tasks})
	case format == "mermaid":
		fmt.Fprint(a.out, d.Mermaid())
	case format == "svg":
		fmt.Fprint(a.out, d.SVG())
	default:
		fmt.Fprint(a.out, d.Text())
	}
	return nil
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the format of documents as a JSON Schema, for editors", Args: none,
		Long: `Print the JSON Schema (2020-12) of the format of documents. An editor that knows it
completes keys, explains them and marks mistakes. For example, with the YAML language
server, begin a document with this line:

  # yaml-language-server: $schema=./belay.schema.json

  belay workflows schema > belay.schema.json`,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(definition.Published())
			return err
		},
	}
}
