package embedded_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/belaydev/belay/embedded"
)

// Rule: a second Close of a Backend does not remove the socket of the next Backend on the same
// directory.
func TestASecondCloseKeepsTheSocketOfTheNextBackend(t *testing.T) {
	dir := t.TempDir()
	open := func() *embedded.Backend {
		b, err := embedded.Open(t.Context(), "sqlite:"+dir, embedded.Listen(), embedded.Logger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := open()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "belay.sock")
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after Close the socket is there: %v", err)
	}
	second := open()
	_ = first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket of the next Backend is gone: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
