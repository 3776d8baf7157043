package workspace

import (
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/belaydev/belay"
)

// Location is a repository in the one form in which repositories are compared: however
// it is spelt, what git would fetch has one Location, and what has another is another.
type Location struct {
	// Scheme is https, ssh or file.
	Scheme string
	// User is whom ssh names; of https there is none.
	User string
	// Host is in lower case, without the port that the scheme has anyway; "" for file.
	Host string
	// Path begins with a slash, is decoded, and has neither empty nor dotted segments.
	// It has no .git at its end but on this machine, where that is another directory.
	// What ssh reads from a home directory begins with /~/.
	Path string
}

// String writes the location as a URL.
func (l Location) String() string {
	u := url.URL{Scheme: l.Scheme, Host: l.Host, Path: l.Path}
	if l.User != "" {
		u.User = url.User(l.User)
	}
	return u.String()
}

// Local reports whether it is a path on this machine.
func (l Location) Local() bool { return l.Scheme == "file" }

// Locate reads a repository as [CheckRepo] does, and looks at no file: a path must be
// absolute. The error is a [belay.Error] with CodeInvalid; it does not show credentials.
func Locate(repo string) (Location, error) {
	if err := checkText("repository", repo); err != nil {
		return Location{}, err
	}
	if scheme, rest, ok := strings.Cut(repo, "://"); ok && isScheme(scheme) {
		return locateURL(strings.ToLower(scheme), rest)
	}
	if helper, _, ok := strings.Cut(repo, "::"); ok && !strings.Contains(helper, "/") {
		return Location{}, invalid("repository: a transport of the form name:: can run programs and is not allowed; %s",
			allowed)
	}
	if host, path, ok := strings.Cut(repo, ":"); ok && !strings.Contains(host, "/") {
		return locateSCP(host, path)
	}
	if !filepath.IsAbs(repo) {
		return Location{}, invalid("repository: a path is absolute here; %s", allowed)
	}
	return Location{Scheme: "file", Path: filepath.Clean(repo)}, nil
}

func locateURL(scheme, rest string) (Location, error) {
	u, err := url.Parse(scheme + "://" + rest)
	switch {
	case scheme != "https" && scheme != "ssh" && scheme != "file":
		return Location{}, invalid("repository: %s:// is not allowed; %s", scheme, allowed)
	case err != nil:
		return Location{}, invalid("repository: the %s:// URL cannot be read; %s", scheme, allowed)
	case scheme == "https" && u.User != nil, hasPassword(u):
		return Location{}, errCredentials
	case scheme == "file" && (u.User != nil || u.Host != "" && u.Host != "localhost"):
		return Location{}, invalid("repository: a file:// URL names a path on this machine, as in file:///srv/repo")
	case scheme != "file" && !hostForm.MatchString(u.Host):
		return Location{}, invalid("repository: the %s:// URL names no host that could be one", scheme)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return Location{}, invalid("repository: a URL with a ? or # is not taken; %s", allowed)
	}
	segments, err := segmentsOf(u.EscapedPath())
	if err != nil {
		return Location{}, err
	}
	if len(segments) == 0 {
		return Location{}, invalid("repository: the %s:// URL names no repository", scheme)
	}
	l := Location{Scheme: scheme, Path: "/" + strings.Join(segments, "/")}
	if scheme != "file" {
		l.Host, l.Path = plainHost(scheme, u.Host), withoutGit(l.Path)
	}
	if u.User != nil {
		if l.User = u.User.Username(); !userForm.MatchString(l.User) {
			return Location{}, invalid("repository: the ssh:// URL names no user that could be one")
		}
	}
	return l, nil
}

// errCredentials refuses what would be stored with the request.
var errCredentials = &belay.Error{Code: belay.CodeInvalid,
	Message: "repository: the URL holds credentials, and what is asked for is stored: " +
		"name the repository without them; who runs the server or worker keeps them in the file that " +
		"agent.git_credentials names"}

func hasPassword(u *url.URL) bool {
	_, has := u.User.Password()
	return has
}

// schemes are words that nobody means as the name of a host.
var schemes = []string{"http", "https", "ssh", "git", "file", "ftp", "ftps"}

// locateSCP reads host:path. A path that is not absolute is read from a home directory.
func locateSCP(host, path string) (Location, error) {
	if !scpForm.MatchString(host) || strings.HasPrefix(path, "-") || slices.Contains(schemes, strings.ToLower(host)) {
		return Location{}, invalid("repository: read as host:path it names none; %s", allowed)
	}
	if first, _, _ := strings.Cut(strings.TrimLeft(path, "/"), "/"); strings.Contains(first, "@") {
		return Location{}, errCredentials // user:password@host/path
	}
	segments, err := plainSegments(strings.Split(path, "/"))
	if err != nil {
		return Location{}, err
	}
	if len(segments) == 0 {
		return Location{}, invalid("repository: read as host:path it names none; %s", allowed)
	}
	l := Location{Scheme: "ssh", Path: strings.Join(segments, "/")}
	if l.User, l.Host, _ = strings.Cut(host, "@"); l.Host == "" {
		l.User, l.Host = "", host
	}
	switch {
	case strings.HasPrefix(path, "/"), strings.HasPrefix(l.Path, "~"):
		l.Path = "/" + l.Path
	default:
		l.Path = "/~/" + l.Path
	}
	l.Host, l.Path = plainHost("ssh", l.Host), withoutGit(l.Path)
	return l, nil
}

// plainHost is a host as others are compared with it. The port of the scheme is left
// out, and the dot that may end a name.
func plainHost(scheme, host string) string {
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, port = host[:i], host[i+1:]
	}
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(n)
	}
	if port == map[string]string{"https": "443", "ssh": "22"}[scheme] {
		port = ""
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if a, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil && a.Is6() {
		name = "[" + a.String() + "]"
	}
	if port != "" {
		name += ":" + port
	}
	return name
}

// segmentsOf are those of the path of a URL, decoded once.
func segmentsOf(escaped string) ([]string, error) {
	var all []string
	for raw := range strings.SplitSeq(escaped, "/") {
		s, err := url.PathUnescape(raw)
		if err != nil {
			return nil, invalid("repository: the path of the URL cannot be decoded; %s", allowed)
		}
		all = append(all, s)
	}
	return plainSegments(all)
}

// looksLike are characters that some servers take for dots, slashes and percent signs.
const looksLike = "․‥…﹒．。｡⁄∕⧸／﹨＼⧵％﹪"

// plainSegments leaves out the empty ones. What a server might decode again, or take for
// a slash or for dots, is refused: it would lead to another place than the one that was
// judged.
func plainSegments(all []string) ([]string, error) {
	var kept []string
	for _, s := range all {
		name, _, _ := strings.Cut(s, ";") // which some servers leave out
		switch {
		case name == "." || name == "..":
			return nil, invalid("repository: a path with . or .. in it is not taken; write the way out")
		case strings.ContainsAny(s, `/\%`):
			return nil, invalid("repository: an encoded slash, a backslash or a percent sign in the path is not taken")
		case strings.ContainsAny(s, looksLike) || strings.ContainsFunc(s, func(r rune) bool {
			return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
		}):
			return nil, invalid("repository: the path holds a character that can be taken for another")
		case s != "":
			kept = append(kept, s)
		}
	}
	return kept, nil
}

// withoutGit leaves out the ending that git adds by itself where it is needed.
func withoutGit(p string) string {
	if name := path.Base(p); name != ".git" {
		return strings.TrimSuffix(p, ".git")
	}
	return p
}

// Resolve follows the links of a path on this machine; of another location it changes
// nothing. The error says no more than that there is no repository.
func (l Location) Resolve() (Location, error) {
	if !l.Local() {
		return l, nil
	}
	real, err := filepath.EvalSymlinks(l.Path)
	if err != nil || !isRepository(real) {
		return Location{}, notFound("repository: there is none")
	}
	return Location{Scheme: "file", Path: real}, nil
}
