// Command testreport reads the output of `go test -json` and prints what a reader of a CI log
// needs: the line of every package as `go test` prints it, the whole output of failed tests, the
// reasons of skipped tests, and the slowest tests.
//
//	go test -json ./... | testreport
//
// With -v it also prints the output of passing tests. If the environment variable BELAY_TALLY names
// a file, testreport appends a line of counts to the file. The exit status is 1 if a test or a
// build failed, or if no test ran: then the command line is most likely wrong.
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
	fmt.Print(report.slowest())
	if path := os.Getenv("BELAY_TALLY"); path != "" {
		if err := appendLine(path, report.counts()); err != nil {
			fmt.Fprintln(os.Stderr, "testreport: write counts:", err)
			os.Exit(1)
		}
	}
	if reason := report.failure(); reason != "" {
		fmt.Fprintln(os.Stderr, "testreport:", reason)
		os.Exit(1)
	}
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}
