package workspace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: CheckRepo refuses, with CodeInvalid, every name that git could interpret as an option, a
// program or another path. So git never gets such a name.
func TestHostileRepositories(t *testing.T) {
	for _, repo := range []string{
		"", "-", "--upload-pack=touch x", "-u./x", "ext::sh -c 'touch x'", "fd::17", "EXT::x", "a+b::x", "::x",
		" ext::x", "%65xt::x",
		"http://example.com/x", "git://example.com/x", "ftp://example.com/x", "git+ssh://example.com/x",
		"javascript://x", "rsync://h/x",
		"https://", "https:///x", "https://example.com", "https://example.com/", "https://-oProxyCommand=x/y",
		"ssh://-oProxyCommand=x/y",
		"ssh://-u@host/x", "ssh://user@-host/x", "ssh://$(x)/y", "ssh://ho st/x", "ssh://host/",
		"https://exa%00mple.com/x", "https://example.com/%0a",
		"https://example.com/x#frag", "https://[::1", "ssh://host:port/x", "https://u:%0a@example.com/x",
		"-host:x", "git@-host:x", "-git@host:x", "git@host:", "git@host:-x", "git@ho st:x", "$(x)@host:y", ":x",
		"a b:x", "git@host:///",
		"file://example.com/x", "file://", "file:///x?y", "file://u@/x", "file:///\x01", "file:///x%00",
		"a\nb", "a\x00b", "/tmp/\x1b[31m", "\xff\xfe", "/\u0085", strings.Repeat("x", 5000),
	} {
		if err := CheckRepo(repo); !errors.Is(err, &belay.Error{Code: belay.CodeInvalid}) {
			t.Errorf("%.40q: error %v, want %s", repo, err, belay.CodeInvalid)
		}
	}
}

// Rule: parseSource returns the same canonical source, without credentials, for all allowed
// spellings of a repository.
func TestRepositories(t *testing.T) {
	for _, tt := range []struct{ repo, url, user, password string }{
		{"https://example.com/x/y.git", "https://example.com/x/y.git", "", ""},
		{"HTTPS://Example.COM/x/y.git/", "https://example.com/x/y.git", "", ""},
		{"https://jo:s%40cret@example.com:8443/x", "https://example.com:8443/x", "jo", "s@cret"},
		{"https://token@example.com/x", "https://example.com/x", "token", ""},
		{"https://[::1]:443/x?y=z", "https://[::1]:443/x?y=z", "", ""},
		{"ssh://git@example.com:22/x", "ssh://git@example.com:22/x", "", ""},
		{"ssh://git:secret@example.com/x", "ssh://git@example.com/x", "", "secret"},
		{"ssh://example.com/~jo/x", "ssh://example.com/~jo/x", "", ""},
		{"git@example.com:org/x.git", "git@example.com:org/x.git", "", ""},
		{"alias:x", "alias:x", "", ""},
	} {
		got, err := parseSource(tt.repo)
		if err != nil {
			t.Errorf("%s: %v", tt.repo, err)
			continue
		}
		if want := (source{url: tt.url, user: tt.user, password: tt.password}); got != want {
			t.Errorf("%s: %+v, want %+v", tt.repo, got, want)
		}
	}
	src := repo(t)
	t.Chdir(filepath.Dir(src))
	for _, spelling := range []string{src, src + "/", src + "/../source", "source", "./source/dir/..", "file://" + src,
		"file://localhost" + src, "FILE://" + src} {
		got, err := parseSource(spelling)
		if want := (source{url: src, local: true, owner: uint32(os.Geteuid())}); err != nil || got != want {
			t.Errorf("%s: %+v, %v", spelling, got, err)
		}
	}
}

// Rule: CheckRef refuses a ref that git could interpret as an option, or that is not a valid name.
func TestHostileRefs(t *testing.T) {
	for _, ref := range []string{
		"-", "-x", "--upload-pack=x", "a..b", "..", "a@{1}", "@{-1}", "@", "a~1", "a^", "a^{}", "a:b", ":/x", "a?",
		"a*", "a[b", "a\\b", "a b", " a",
		"a.lock", "a/b.lock", "a.lock/b", "a/", "/a", "a//b", ".a", "a/.b", "a.", ".", "a\nb", "a\x00b", "a\x7f",
		"\x1b[0m", "\xff", strings.Repeat("x", 5000),
	} {
		if err := CheckRef(ref); !errors.Is(err, &belay.Error{Code: belay.CodeInvalid}) {
			t.Errorf("%.40q: error %v, want %s", ref, err, belay.CodeInvalid)
		}
	}
	for _, ref := range []string{"", "main", "HEAD", "feature/x", "v1.0", "refs/heads/main", "0123abcd", "a-b", "a.b",
		"a@b", "ü", "a{b}", "x'\"$(y)", "a.locked"} {
		if err := CheckRef(ref); err != nil {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// Rule: git accepts every ref that CheckRef accepts as the name of a branch.
func FuzzCheckRef(f *testing.F) {
	for _, ref := range []string{"main", "-x", "a..b", "a.lock", "a/b", "@", "a@{b", "ü\x80", "HEAD", "refs/heads/x",
		"a/.b", "a.", "\u0085"} {
		f.Add(ref)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		if CheckRef(ref) != nil || ref == "" {
			return
		}
		if strings.HasPrefix(ref, "-") || strings.ContainsAny(ref, "\x00\n") {
			t.Fatalf("%q is accepted", ref)
		}
		if err := exec.Command("git", "check-ref-format", "refs/heads/"+ref).Run(); err != nil {
			t.Errorf("git refuses %q", ref)
		}
	})
}

// Rule: a repository that CheckRepo accepts has an allowed transport, cannot be an option, and
// contains no credentials. If its canonical form is parsed again, the result is the same canonical
// form.
func FuzzCheckRepo(f *testing.F) {
	for _, repo := range []string{
		"https://u:p@example.com/x", "ssh://git@h/x", "git@h:x", "ext::sh -c x", "file:///tmp", "/tmp", "-x", "a::b",
		"https://[::1]:1/x", "h:x:y", "https://h//x%2f/",
	} {
		f.Add(repo)
	}
	f.Fuzz(func(t *testing.T, repo string) {
		s, err := parseSource(repo)
		if err != nil {
			var e *belay.Error
			if !errors.As(err, &e) {
				t.Errorf("%q: %v is no belay.Error", repo, err)
			}
			return
		}
		switch {
		case s.local:
			if !filepath.IsAbs(s.url) {
				t.Errorf("%q: %q", repo, s.url)
			}
		case strings.HasPrefix(s.url, "https://"), strings.HasPrefix(s.url, "ssh://"):
			if s.password != "" && len(s.password) > 8 && strings.Contains(s.url, s.password) {
				t.Errorf("%q: the password is in %q", repo, s.url)
			}
		default:
			if host, _, ok := strings.Cut(s.url, ":"); !ok || strings.ContainsAny(host, "/ \\'\"$") ||
				strings.HasPrefix(host, "-") {
				t.Errorf("%q: %q", repo, s.url)
			}
		}
		if strings.HasPrefix(s.url, "-") || strings.ContainsAny(s.url, "\x00\n\r\x1b") ||
			strings.Contains(strings.SplitN(s.url, "/", 2)[0], "::") {
			t.Errorf("%q: %q", repo, s.url)
		}
		again, err := parseSource(s.url)
		if err != nil || again.url != s.url {
			t.Errorf("%q: %q read again is %q, %v", repo, s.url, again.url, err)
		}
	})
}

// Rule: the text of a git error is the end of the error output of git, joined to one printable
// line, without credentials.
func TestGitErrorsAreOneCleanLine(t *testing.T) {
	var e tail
	for _, part := range []string{
		strings.Repeat("noise\n", 10_000),
		"fatal: \x1b[31munable\x07 to access 'https://jo:s3cret@example.com/x': \r\n", "second: s3cret \xff\n\n",
		"third https://a:b@c/\n",
	} {
		_, _ = e.Write([]byte(part))
	}
	const want = "fatal: [31munable to access 'https://example.com/x':; second: … ?; third https://c/"
	if got := e.text(&source{user: "jo", password: "s3cret"}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Rule: the error for an unreachable repository contains the repository's URL without the password.
func TestUnreachable(t *testing.T) {
	m := open(t)
	_, err := m.Prepare(t.Context(), Spec{ID: "run_1", Repo: "https://jo:s3cret@127.0.0.1:1/x.git"})
	text := wantCode(t, err, belay.CodeUnavailable)
	if strings.Contains(text, "s3cret") || !strings.Contains(text, "https://127.0.0.1:1/x.git") {
		t.Error(text)
	}
}
