// Package openapi exists for the go.mod of its module, which lists two dependencies of a test: the
// generator that makes a Go client from the OpenAPI document, and the package that generated
// clients import. testdata contains a program that uses such a client; TestGeneratedGoClient of
// package test generates the client, compiles the program and runs it.
package openapi

import _ "github.com/oapi-codegen/runtime" // generated clients import it
