package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// allowed describes the valid forms of a repository, for error messages.
const allowed = "a repository is a path, an https://, ssh:// or file:// URL, or user@host:path"

// maxName is the maximum size of the name of a repository or ref, in bytes.
const maxName = 4096

// source is the place from which a repository is fetched.
type source struct {
	url   string // the name that git gets: an absolute path, or a URL without a password
	local bool
	// owner is the owner of a local repository. git runs with the rights of this user, because git
	// does what the repository's configuration says.
	owner uint32
	// user and password are passed to git separately from the URL, so that they appear in no
	// process list, error or checkout.
	user, password string
}

// host returns the scheme and host of an https URL. git sends the credentials only to this host.
func (s source) host() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return "https://invalid"
	}
	return u.Scheme + "://" + u.Host
}

// key returns the name of the base (the cached clone) of this source. All spellings of a URL have the
// same key. Different credentials and different owners have different keys, so that a base serves
// only callers who could fetch the repository themselves.
func (s source) key() string {
	name := s.url
	if s.local {
		name += fmt.Sprintf("\x00%d", s.owner)
	}
	if s.user+s.password != "" {
		name += "\x00" + s.user + "\x00" + s.password
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// String returns the source for messages, without credentials.
func (s source) String() string { return s.url }

// CheckRepo returns an error for a string that cannot name a repository. It opens no connection, so
// it also accepts the URL of a repository that does not exist. The error is a [belay.Error] with
// CodeInvalid, or with CodeNotFound for a path that does not exist or is not a repository.
func CheckRepo(repo string) error {
	_, err := parseSource(repo)
	return err
}

// parseSource parses repo into canonical form.
func parseSource(repo string) (source, error) {
	if repo == "" {
		return source{}, invalid("repository: empty; %s", allowed)
	}
	if err := checkText("repository", repo); err != nil {
		return source{}, err
	}
	if scheme, rest, ok := strings.Cut(repo, "://"); ok && isScheme(scheme) {
		return parseURL(strings.ToLower(scheme), rest)
	}
	if helper, _, ok := strings.Cut(repo, "::"); ok && !strings.Contains(helper, "/") {
		return source{}, invalid("repository: a transport of the form name:: can run programs and is not allowed; %s",
			allowed)
	}
	if host, path, ok := strings.Cut(repo, ":"); ok && !strings.Contains(host, "/") {
		return parseSCP(host, path)
	}
	return parsePath(repo)
}

// checkText returns an error for a string that is unsafe to pass to a program.
func checkText(what, s string) error {
	switch {
	case len(s) > maxName:
		return invalid("%s: %d bytes; the limit is %d", what, len(s), maxName)
	case !utf8.ValidString(s):
		return invalid("%s: not valid UTF-8", what)
	case strings.ContainsFunc(s, unicode.IsControl):
		return invalid("%s: it contains a control character", what)
	case strings.HasPrefix(s, "-"):
		return invalid("%s: it must not start with a dash, which would make it an option", what)
	}
	return nil
}

var schemeForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+.-]*$`)

func isScheme(s string) bool { return schemeForm.MatchString(s) }

func parseURL(scheme, rest string) (source, error) {
	if scheme != "https" && scheme != "ssh" && scheme != "file" {
		return source{}, invalid("repository: %s:// is not allowed; %s", scheme, allowed)
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		// err is not reported, because it contains the credentials
		return source{}, invalid("repository: the %s:// URL cannot be read; %s", scheme, allowed)
	}
	if scheme == "file" {
		if u.Host != "" && u.Host != "localhost" {
			return source{}, invalid("repository: a file:// URL names a path on this machine, as in file:///srv/repo")
		}
		if u.Path == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return source{}, invalid("repository: a file:// URL is a path and nothing else")
		}
		if err := checkText("repository", u.Path); err != nil {
			return source{}, err
		}
		return parsePath(u.Path)
	}
	if !hostForm.MatchString(u.Host) {
		return source{}, invalid("repository: the %s:// URL has no valid host", scheme)
	}
	if strings.Trim(u.Path, "/") == "" || u.Fragment != "" || strings.ContainsFunc(u.Path, unicode.IsControl) {
		return source{}, invalid("repository: the %s:// URL names no repository on %s", scheme, u.Host)
	}
	return withoutCredentials(u)
}

var (
	hostForm = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
	userForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+@-]*$`)
)

// withoutCredentials removes the credentials from the URL, but keeps the user name of ssh.
func withoutCredentials(u *url.URL) (source, error) {
	var s source
	if u.User != nil {
		s.user = u.User.Username()
		s.password, _ = u.User.Password()
	}
	if strings.ContainsFunc(s.user+s.password, unicode.IsControl) {
		return source{}, invalid("repository: the credentials in the URL contain a control character")
	}
	u.User = nil
	if u.Scheme == "ssh" && s.user != "" {
		if !userForm.MatchString(s.user) {
			return source{}, invalid("repository: the ssh:// URL has no valid user")
		}
		u.User, s.user = url.User(s.user), ""
	}
	u.Host = strings.ToLower(u.Host)
	segments, err := segmentsOf(u.EscapedPath())
	if err != nil {
		return source{}, err
	}
	u.Path, u.RawPath = "/"+strings.Join(segments, "/"), ""
	s.url = u.String()
	return s, nil
}

var scpForm = regexp.MustCompile(`^(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

func parseSCP(host, path string) (source, error) {
	path = strings.TrimRight(path, "/")
	if !scpForm.MatchString(host) || path == "" || strings.HasPrefix(path, "-") {
		return source{}, invalid("repository: as host:path it names no repository (a path with a colon is written "+
			"./like:this); %s", allowed)
	}
	return source{url: host + ":" + path}, nil
}

func parsePath(path string) (source, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return source{}, fmt.Errorf("repository %s: %w", path, err)
	}
	target, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return source{}, notFound("repository %s does not exist", abs)
	}
	if err != nil {
		return source{}, invalid("repository %s cannot be read: %v", abs, err)
	}
	if strings.ContainsFunc(target, unicode.IsControl) {
		return source{}, invalid("repository %s leads to a path with a control character", abs)
	}
	if info, err := os.Stat(target); err != nil || !info.IsDir() {
		return source{}, notFound("%s is not a directory, so it is no git repository", abs)
	}
	if isRepository(target) {
		return source{url: target, local: true, owner: ownerOf(target)}, nil
	}
	for up := filepath.Dir(target); ; up = filepath.Dir(up) {
		if isRepository(up) {
			return source{}, notFound("%s is not itself a git repository, but lies in one: name %s", abs, up)
		}
		if up == filepath.Dir(up) {
			return source{}, notFound("%s is not a git repository", abs)
		}
	}
}

// isRepository reports whether dir has the files of a repository; it does not run git.
func isRepository(dir string) bool {
	exists := func(name ...string) bool {
		_, err := os.Lstat(filepath.Join(append([]string{dir}, name...)...))
		return err == nil
	}
	if exists(".git", "HEAD") {
		return true
	}
	if info, err := os.Stat(filepath.Join(dir, ".git")); err == nil && info.Mode().IsRegular() {
		return true // dir is a linked work tree or a submodule
	}
	return exists("HEAD") && exists("objects") && exists("refs")
}

// ownerOf returns the owner of dir/.git, which may be a directory, a file or a symbolic link.
// Without a .git it returns the owner of dir.
func ownerOf(dir string) uint32 {
	info, err := os.Lstat(filepath.Join(dir, ".git"))
	if err != nil {
		info, err = os.Lstat(dir)
	}
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Uid
}

func invalid(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeNotFound, Message: fmt.Sprintf(format, args...)}
}
