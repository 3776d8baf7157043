// Package repo has the tests of the repository itself. They check rules that the compiler does not
// check, so that a reviewer does not have to.
//
//   - layers_test.go: imports point down, and each package uses only the outside modules in its row
//   - purity_test.go: the rules of package machine read no clock, draw no random numbers and start
//     no goroutine
//   - docs_test.go: packages and public identifiers are documented
//   - examples_test.go: exported functions of the public packages have examples
//   - size_test.go: files and functions stay short
//   - links_test.go: links between Markdown pages resolve
//   - snippets_test.go: Go code on a page compiles; readme_test.go runs the code of the README
//   - named_test.go: tests that pages and the Makefile name exist
//   - pins_test.go: direct dependencies are the chosen ones, at versions that fit together
//   - plain_test.go: sentences are plain and lines are short
//   - words_test.go: no file names the machine it was written on or has unfinished work
//   - migrations_test.go: a released migration never changes
//   - sleep_test.go: no test sleeps to wait
//
// The package has no code of its own. Each failure says what to change and, if there may be
// exceptions, where to enter an exception.
package repo
