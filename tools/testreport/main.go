// Command testreport reads the output of `go test -json` and prints what a reader of a CI log
// needs: the line of every package as `go test` prints it, the whole output of failed tests, the
// reasons of skipped tests, and the slowest tests.
//
//	go test -json ./... | testreport
//
// With -v it also prints the output of passing tests. If the environment variable BELAY_TALLY names
// a file, testreport appends a line of counts to the file; if BELAY_SLOWEST names a file, it appends
// the lines of the slowest tests. The exit status is 1 if a test or a build failed, or if no test
// ran: then the command line is most likely wrong.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	verbose := flag.Bool("v", false, "show the output of passing tests too")
	flag.Parse()

	report := newReport(os.Stdout, *verbose)
	if err := report.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport: read events:", err)
		os.Exit(1)
	}
	slowest := report.slowest()
	if slowest != "" {
		fmt.Print("slowest:\n" + slowest)
	}
	for variable, text := range map[string]string{"BELAY_TALLY": report.counts() + "\n", "BELAY_SLOWEST": slowest} {
		if err := appendTo(os.Getenv(variable), text); err != nil {
			fmt.Fprintf(os.Stderr, "testreport: write the file of %s: %v\n", variable, err)
			os.Exit(1)
		}
	}
	if reason := report.failure(); reason != "" {
		fmt.Fprintln(os.Stderr, "testreport:", reason)
		os.Exit(1)
	}
}

// appendTo appends a text to a file, if a file is named.
func appendTo(path, text string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
