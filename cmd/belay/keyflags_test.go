package main

import (
	"testing"

	"github.com/belaydev/belay/internal/config"
)

// A list that is typed twice is refused, since half of it would be forgotten; of
// anything else the last one counts, as with all flags.
func TestListsAreTypedOnce(t *testing.T) {
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
