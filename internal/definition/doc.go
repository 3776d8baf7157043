// Package definition reads documents: workflows that are written in YAML or JSON instead of Go. It parses and validates
// a document, draws its graph, and evaluates its expressions. Package runner below it executes a document.
//
// # One table describes the format
//
// The table in format.go lists every key of the format, with its type and its description. The validation, the JSON
// Schema for editors ([Schema]) and the reference of docs/documents.md are all made from this table.
//
// # A document is hostile
//
// Everything about a document is limited: its size, its depth, the nodes to which its aliases expand, its tasks and its
// numbers ([Parse]); the length, the nodes, the steps, the memory and the time of an expression ([Program]); the size
// and the patterns of a JSON Schema. A document beyond a limit gets a [Problem] that names the limit and its position.
//
// # Expressions have no side effects
//
// An expression can read the input, the tasks that ended before, and the item of a foreach. It has no clock, no
// randomness and no access to files, so the runner may evaluate it again after a crash and gets the same value.
package definition
