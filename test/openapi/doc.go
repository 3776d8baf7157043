// Package openapi names the generator that makes a Go client from the OpenAPI document, and the
// package that generated clients import. testdata has the program that uses such a client:
// TestGeneratedGoClient of package test generates, compiles and runs it.
package openapi

import _ "github.com/oapi-codegen/runtime" // generated clients import it
