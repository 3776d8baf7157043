//go:build linux

package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rule: Open refuses a directory that another user could replace, and the error names that
// directory.
func TestOpenRefusesDirectoriesThatOthersCanReplace(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(t *testing.T, parent string) error
		dir  string // below the parent
		want string // expected in the error; empty for no error
	}{
		"own": {set: func(*testing.T, string) error { return nil }, dir: "workspaces"},
		"writable to all": {set: func(_ *testing.T, p string) error {
			return os.Chmod(p, 0o777)
		}, dir: "workspaces", want: "every user may write in"},
		"writable to all, further up": {set: func(_ *testing.T, p string) error {
			return os.Chmod(p, 0o777)
		}, dir: "a/b/workspaces", want: "every user may write in"},
		"writable to all, and sticky": {set: func(_ *testing.T, p string) error {
			return os.Chmod(p, 0o777|os.ModeSticky)
		}, dir: "workspaces"},
		"itself writable to all": {set: func(_ *testing.T, p string) error {
			return mkdir(p+"/workspaces", 0o777)
		}, dir: "workspaces", want: "workspaces and could"},
		"of another user": {set: func(t *testing.T, p string) error {
			asRoot(t)
			return os.Chown(p, stranger, stranger)
		}, dir: "workspaces", want: "belongs to user 1600000001"},
		"itself of another user": {set: func(t *testing.T, p string) error {
			asRoot(t)
			_ = mkdir(p+"/workspaces", 0o700)
			return os.Chown(p+"/workspaces", stranger, stranger)
		}, dir: "workspaces", want: "workspaces belongs to user"},
		"through a link to a bad one": {set: func(t *testing.T, p string) error {
			bad := t.TempDir()
			_ = os.Chmod(bad, 0o777)
			return os.Symlink(bad, p+"/link")
		}, dir: "link/workspaces", want: "every user may write in"},
		"through a link to a good one": {set: func(t *testing.T, p string) error {
			return os.Symlink(t.TempDir(), p+"/link")
		}, dir: "link/workspaces"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			if err := tt.set(t, parent); err != nil {
				t.Fatal(err)
			}
			m, err := Open(filepath.Join(parent, tt.dir))
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			case err == nil && strings.Contains(m.dir, "/link/"):
				t.Errorf("it works in %s, by way of a link", m.dir)
			}
		})
	}
}

// mkdir makes a directory with exactly this mode, regardless of the umask.
func mkdir(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
