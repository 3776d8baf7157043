package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Rule: each run appends its lines to the file that the environment names, and writes no file if the environment names
// none.
func TestAppendTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slowest")
	for _, text := range []string{"a\n", "", "b\nc\n"} {
		if err := appendTo(path, text); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "a\nb\nc\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := appendTo("", "text"); err != nil {
		t.Error(err)
	}
	if err := appendTo(t.TempDir(), "text"); err == nil {
		t.Error("a directory took the text")
	}
}
