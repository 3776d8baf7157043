package main

import (
	"testing"

	"github.com/belaydev/belay/internal/config"
)

// Rule: belay refuses a flag for a list that is given twice, since the first list would be lost.
// For any other flag the last value counts.
func TestAListFlagIsRefusedWhenGivenTwice(t *testing.T) {
	for _, key := range config.Keys() {
		f := &keyFlag{key: key}
		if err := f.Set("a"); err != nil {
			t.Fatalf("--%s: %v", key.Flag(), err)
		}
		err := f.Set("b")
		if list := key.Type() == "list"; list != (err != nil) || !list && f.text != "b" {
			t.Errorf("--%s twice: %q, %v", key.Flag(), f.text, err)
		}
	}
}
