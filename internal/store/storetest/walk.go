package storetest

import "testing"

func walk(t *testing.T, open Open) {}
