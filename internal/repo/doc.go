// Package repo holds the tests of the repository itself: what a compiler does not check and a
// reviewer should not have to.
//
//   - layers_test.go: imports point down, and each package uses only the outside modules it was given
//   - purity_test.go: the rules of package machine read no clock, draw no random numbers and start nothing
//   - docs_test.go: packages and public identifiers are documented
//   - size_test.go: files and functions stay readable
//   - links_test.go: links between Markdown pages resolve
//   - snippets_test.go: Go code on a page is code that compiles; readme_test.go is the README's
//   - pins_test.go: direct dependencies are the chosen ones, at versions that fit together
//   - words_test.go: no file names the machine it was written on, nothing is left half done
//   - migrations_test.go: a released migration never changes
//   - sleep_test.go: no test sleeps to wait
//
// The package has no code of its own. Each failure says what to change, and where an exception is entered if it is one.
package repo
