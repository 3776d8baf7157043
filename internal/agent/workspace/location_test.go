package workspace

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: Locate returns the same Location for all spellings of a repository, and different Locations
// for different repositories.
func TestLocations(t *testing.T) {
	for want, spellings := range map[Location][]string{
		{Scheme: "https", Host: "git.example", Path: "/team/app"}: {
			"https://git.example/team/app", "HTTPS://Git.Example/team/app.git", "https://git.example:443/team/app/",
			"https://git.example:0443//team//app.git/",
			"https://git.example./team/app", "https://git.example/te%61m/app",
		},
		{Scheme: "https", Host: "git.example:8443", Path: "/team/app"}: {"https://git.example:8443/team/app"},
		{Scheme: "https", Host: "git.example", Path: "/team/App"}:      {"https://git.example/team/App.git"},
		{Scheme: "https", Host: "git.example", Path: "/team/.git"}:     {"https://git.example/team/.git"},
		{Scheme: "https", Host: "[::1]", Path: "/x"}: {
			"https://[::1]/x", "https://[0:0:0::1]:443/x.git",
		},
		{Scheme: "ssh", User: "git", Host: "git.example", Path: "/team/app"}: {
			"ssh://git@git.example/team/app.git", "SSH://git@GIT.example:22/team/app", "git@git.example:/team/app.git",
		},
		{Scheme: "ssh", Host: "git.example", Path: "/team/app"}: {"ssh://git.example/team/app"},
		{Scheme: "ssh", User: "git", Host: "git.example", Path: "/~/team/app"}: {"git@git.example:team/app.git",
			"git@Git.Example:team//app/"},
		{Scheme: "ssh", User: "git", Host: "git.example", Path: "/~jo/app"}: {
			"git@git.example:~jo/app", "ssh://git@git.example/~jo/app",
		},
		{Scheme: "file", Path: "/srv/app"}: {
			"/srv/app", "/srv//app/", "/srv/x/../app", "file:///srv/app", "file://localhost/srv/app",
			"FILE:///srv/app/",
		},
		{Scheme: "file", Path: "/srv/app.git"}: {"/srv/app.git", "file:///srv/app.git"},
	} {
		for _, s := range spellings {
			if got, err := Locate(s); err != nil || got != want {
				t.Errorf("%s: %+v, %v; want %+v", s, got, err, want)
			}
		}
	}
}

// Rule: Locate refuses an ambiguous location and a location with credentials, and the error does
// not contain the credentials.
func TestLocationsThatAreRefused(t *testing.T) {
	for _, repo := range []string{
		"https://git.example/team/../other", "https://git.example/team/%2e%2e/other",
		"https://git.example/team/%2E./other", "https://git.example/team/./other",
		"https://git.example/team/..%2fother", "https://git.example/team%2Fother",
		"https://git.example/team%5c..%5cother", `https://git.example/team\..\other`,
		"https://git.example/team/%252e%252e/other", "https://git.example/team/%25", "https://git.example/team/%zz",
		"https://git.example/team/．．/other",
		"https://git.example/team／..／other", "https://git.example/team/․․/other", "https://git.example/te\u202eam",
		"https://git.example/team/..;/other", "https://git.example/team/.;x/..;y/other", "https://git.example/a\u200bb",
		"https://git.example", "https://git.example/", "https://git.example//", "https://git.example/x?token=secret",
		"https://git.example/x?", "https://git.example/x#y",
		"https://bot:secret@git.example/x", "https://secret@git.example/x", "https://:secret@git.example/x",
		"https://@git.example/x", "ssh://git:secret@git.example/x",
		"https:/secret@git.example/x", "bot:secret@git.example/x", "HTTPS:secret@git.example/x",
		"https://git.example:secret/x", "file://bot:secret@/x", "//bot:secret@git.example/x",
		"git@git.example:team/../other", "git@git.example:", "git@git.example:/", "ssh://git@git.example/../x",
		"ssh://git@git.example/%2e%2e/x",
		"relative/path", "./x", "../x", ".", "", "file://elsewhere/x", "file:///x/../y", "http://git.example/x",
		"ext::sh -c x", "-x", "/a\nb",
	} {
		l, err := Locate(repo)
		if strings.HasPrefix(repo, "//") { // Locate accepts this text: it is an absolute path, which need not exist
			continue
		}
		if !errors.Is(err, &belay.Error{Code: belay.CodeInvalid}) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %+v, %v", repo, l, err)
		}
	}
}

// Rule: a pattern with a * matches the repositories below the directory in the pattern, and only on
// the host in the pattern.
func TestPatterns(t *testing.T) {
	for text, c := range map[string]struct{ yes, no []string }{
		"https://git.example/team/*": {
			[]string{
				"https://git.example/team/a", "https://GIT.example:443/team/a/b.git", "https://git.example//team//a",
			},
			[]string{
				"https://git.example/team", "https://git.example/team.git", "https://git.example/teams/a",
				"https://git.example.evil/team/a", "https://git.example:8443/team/a",
				"https://evil/git.example/team/a", "ssh://git.example/team/a", "git.example:team/a",
				"https://git.example/Team/a", "/team/a",
			},
		},
		"HTTPS://Git.Example:443/*": {
			[]string{"https://git.example/a"}, []string{"https://git.example2/a", "https://git.example.org/a"},
		},
		"https://git.example/team-*": {[]string{"https://git.example/team-a", "https://git.example/team-a/x"},
			[]string{"https://git.example/team", "https://git.example/x/team-a"}},
		"https://git.example/team/app.*": {[]string{
			"https://git.example/team/app.git", "https://git.example/team/app",
		}, []string{"https://git.example/team/apps"}},
		"https://git.example/team/app.git": {[]string{
			"https://git.example/team/app", "https://git.example/team/app.git/",
		}, []string{"https://git.example/team/app/x"}},
		"git@git.example:team/*": {[]string{"git@git.example:team/a"}, []string{
			"root@git.example:team/a", "git.example:team/a", "ssh://git@git.example/team/a", "git@git.example:teams/a",
		}},
		"git@git.example:*": {
			[]string{"git@git.example:a", "git@git.example:a/b"}, []string{"git@git.example:/a", "git@git.example2:a"},
		},
		"ssh://git@git.example/*": {[]string{
			"ssh://git@git.example:22/a", "git@git.example:/a",
		}, []string{"ssh://git@git.example:2222/a", "ssh://other@git.example/a"}},
		"/srv/repos/*": {[]string{
			"/srv/repos/a", "file:///srv/repos/a/b",
		}, []string{"/srv/repos", "/srv/repos2/a", "/srv/repos/../a", "https://srv/repos/a"}},
		"/*": {[]string{"/srv"}, []string{"https://srv/x"}},
	} {
		p, err := ParsePattern(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, repo := range append(c.yes, c.no...) {
			l, err := Locate(repo)
			if err != nil {
				t.Errorf("%s: %v", repo, err)
			}
			if want := slices.Contains(c.yes, repo); p.Matches(l) != want {
				t.Errorf("%s matches %s: %v", text, repo, !want)
			}
		}
	}
	for _, text := range []string{
		"*", "", "https://*", "https://git.*", "https://git.example*", "https://*.example/x", "https://git.example/*/x",
		"https://bot:secret@git.example/*", "https://git.example/../*",
		"https://git.example/%2e%2e/*", "git@git.example*", "relative/*", "https://git.example/a%2f*",
		"https://git.example/．*", "ext::*", "https:*", "https:/*",
	} {
		if p, err := ParsePattern(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q was taken for %+v, %v", text, p, err)
		}
	}
}

// Rule: a pattern does not match a symbolic link that leads out of the pattern's directory.
// Symbolic links in the path of the directory itself are followed.
func TestPatternsAndLinks(t *testing.T) {
	src := repo(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"allowed/out": src, "alias": filepath.Join(root, "allowed")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, link)), 0o700),
			os.Symlink(to, filepath.Join(root, link))); err != nil {
			t.Fatal(err)
		}
	}
	run(t, root, "clone", "-q", src, filepath.Join(root, "allowed", "in"))
	at := func(text string) Location {
		t.Helper()
		l, err := Locate(text)
		if err == nil {
			l, err = l.Resolve()
		}
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, dir := range []string{"allowed", "alias"} {
		p, err := ParsePattern(filepath.Join(root, dir) + "/*")
		if err != nil {
			t.Fatal(err)
		}
		p = p.Resolve()
		if !p.Matches(at(filepath.Join(root, "allowed/in"))) || !p.Matches(at(filepath.Join(root, "alias/in"))) ||
			p.Matches(at(filepath.Join(root, "allowed/out"))) {
			t.Errorf("%s/* does not match a repository in it, or matches one outside", dir)
		}
	}
	for _, none := range []string{filepath.Join(root, "nothing"), root, filepath.Join(src, "dir")} {
		if l, err := (Location{Scheme: "file", Path: none}).Resolve(); err == nil ||
			strings.Contains(err.Error(), root) {
			t.Errorf("%s: %+v, %v", none, l, err)
		}
	}
}

// Rule: Locate returns the same Location for the text of a Location. No Location has segments "."
// or "..". A pattern matches no location on another host, however the location is spelt.
func FuzzLocate(f *testing.F) {
	for _, repo := range []string{
		"https://git.example/team/app.git", "https://git.example/team/%2e%2e/x", "git@git.example:team/app",
		"ssh://git@h:22/~/x", "/srv/x/../y", "file:///srv/x",
		"https://git.example.evil/team/x", "https://git.example@evil/team/x", "https://git.example/team/..;/x",
		"https://GIT.example./team//x", "https://[::1]:443/x", "h:x@y/z",
		"https://git.example\\@evil/team/x", "https://git.example:443@evil/team/x", "https://git.example/team%2f..%2fx",
		"https://git.example/team/.\u200b./x",
	} {
		f.Add(repo)
	}
	team, err := ParsePattern("https://git.example/team/*")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, repo string) {
		l, err := Locate(repo)
		if err != nil {
			if !errors.Is(err, &belay.Error{Code: belay.CodeInvalid}) {
				t.Fatalf("%q: %v", repo, err)
			}
			return
		}
		text := l.String()
		if l.Local() {
			text = l.Path // a path may contain characters that are not allowed in a URL
		}
		again, err := Locate(text)
		if err != nil || again != l {
			t.Errorf("%q is %+v; read again %+v, %v", repo, l, again, err)
		}
		if strings.Contains(l.Path+"/", "/../") || strings.Contains(l.Path+"/", "/./") ||
			!strings.HasPrefix(l.Path, "/") {
			t.Errorf("%q leads to %q", repo, l.Path)
		}
		if team.Matches(l) && (l.Host != "git.example" || l.Scheme != "https" || !strings.HasPrefix(l.Path, "/team/")) {
			t.Errorf("%q matches as %+v", repo, l)
		}
		// If CheckRepo accepts the location, git gets a URL with the same host.
		s, err := parseSource(repo)
		if err != nil || l.Scheme != "https" {
			return
		}
		u, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		if plainHost("https", u.Host) != l.Host || s.user+s.password != "" {
			t.Errorf("%q is %+v, and git gets %q", repo, l, s.url)
		}
	})
}
