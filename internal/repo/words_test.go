package repo

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unwanted are patterns that no file of the repository may contain. Each pattern is written so that
// it does not match itself.
var unwanted = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(?:^|[\s"'=(:` + "`" + `])/(?:work|home|Users|root)/[\w.]`),
		"a path of the machine on which the file was written"},
	{regexp.MustCompile(`\b(?:TOD[O]|FIXM[E]|XX[X])\b`), "unfinished work: finish it, or open an issue"},
	{regexp.MustCompile(`(?m)^(?:<{7} |>{7} |={7}$)`), "an unresolved merge conflict"},
	{regexp.MustCompile(`-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----`), "a private key"},
}

// spoken lists files that may contain an unwanted pattern, with the reason.
var spoken = map[string]string{
	"LICENSE":      "a text by others",
	"go.sum":       "hashes",
	"tools/go.sum": "hashes",
	"bench/go.sum": "hashes",
}

// Rule: files contain no paths of the machine on which they were written, no unfinished work and no
// secrets.
func TestNoUnwantedWords(t *testing.T) {
	for _, name := range repoFiles(t) {
		if spoken[name] != "" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(data, 0) >= 0 { // a binary file
			continue
		}
		for _, u := range unwanted {
			if at := u.pattern.FindIndex(data); at != nil {
				line := 1 + bytes.Count(data[:at[0]], []byte("\n"))
				t.Errorf("%s:%d: %q: %s", name, line, strings.TrimSpace(string(data[at[0]:at[1]])), u.why)
			}
		}
	}
}

// Rule: lock files name the public registry, because the address of a mirror works only in one
// network and reveals that network.
func TestLockFilesNamePublicRegistries(t *testing.T) {
	const public = "https://registry.npmjs.org/"
	for _, name := range repoFiles(t) {
		switch path.Base(name) {
		case ".npmrc", "pip.conf", ".yarnrc.yml":
			t.Errorf("%s: settings of a registry belong to the user, not to the repository", name)
		case "package-lock.json":
			var lock struct {
				Packages map[string]struct{ Resolved string }
			}
			if err := json.Unmarshal([]byte(read(t, name)), &lock); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for pkg, p := range lock.Packages {
				if p.Resolved != "" && !strings.HasPrefix(p.Resolved, public) {
					t.Errorf("%s: %s is resolved to %s, want %s…", name, pkg, p.Resolved, public)
				}
			}
		}
	}
}
