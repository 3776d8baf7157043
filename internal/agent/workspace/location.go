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

// Location is a repository in canonical form, for comparisons: two spellings of one repository have
// the same Location, and different repositories have different Locations.
type Location struct {
	// Scheme is https, ssh or file.
	Scheme string
	// User is the user in an ssh location; empty for https.
	User string
	// Host is in lower case, without the default port of the scheme; "" for file.
	Host string
	// Path begins with a slash. It is decoded, and has no empty segments and no segments "." and
	// "..". A trailing .git is removed, except from a local path, because the directories x and
	// x.git may both exist. An ssh path relative to a home directory begins with /~/.
	Path string
}

// String returns the location as a URL.
func (l Location) String() string {
	u := url.URL{Scheme: l.Scheme, Host: l.Host, Path: l.Path}
	if l.User != "" {
		u.User = url.User(l.User)
	}
	return u.String()
}

// Local reports whether the location is a path on this machine.
func (l Location) Local() bool { return l.Scheme == "file" }

// Locate parses the name of a repository. It accepts the same names as [CheckRepo], except relative
// paths, and opens no file. The error is a [belay.Error] with CodeInvalid, and does not contain
// credentials.
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
		return Location{}, invalid("repository: the %s:// URL has no valid host", scheme)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return Location{}, invalid("repository: a URL with a ? or # is not allowed; %s", allowed)
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
			return Location{}, invalid("repository: the ssh:// URL has no valid user")
		}
	}
	return l, nil
}

// errCredentials is the error for a URL with credentials. Such a URL is refused, because it would
// be stored with the request.
var errCredentials = &belay.Error{Code: belay.CodeInvalid,
	Message: "repository: the URL contains credentials, and requests are stored: " +
		"name the repository without them; the operator of the server or worker puts credentials into the file that " +
		"agent.git_credentials names"}

func hasPassword(u *url.URL) bool {
	_, has := u.User.Password()
	return has
}

// schemes are names of URL schemes. Locate does not accept them as the host in host:path.
var schemes = []string{"http", "https", "ssh", "git", "file", "ftp", "ftps"}

// locateSCP parses host:path. A path that is not absolute is relative to a home directory.
func locateSCP(host, path string) (Location, error) {
	if !scpForm.MatchString(host) || strings.HasPrefix(path, "-") || slices.Contains(schemes, strings.ToLower(host)) {
		return Location{}, invalid("repository: as host:path it names no repository; %s", allowed)
	}
	if first, _, _ := strings.Cut(strings.TrimLeft(path, "/"), "/"); strings.Contains(first, "@") {
		return Location{}, errCredentials // the form user:password@host/path
	}
	segments, err := plainSegments(strings.Split(path, "/"))
	if err != nil {
		return Location{}, err
	}
	if len(segments) == 0 {
		return Location{}, invalid("repository: as host:path it names no repository; %s", allowed)
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

// plainHost returns a host in canonical form: in lower case, without the scheme's default port and
// without a dot at the end of the name.
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

// segmentsOf splits the path of a URL into segments and decodes each once.
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

// looksLike lists characters that some servers interpret as a dot, a slash or a percent sign.
const looksLike = "․‥…﹒．。｡⁄∕⧸／﹨＼⧵％﹪"

// plainSegments removes empty segments of a path. It refuses a segment that a server might decode a
// second time, or might interpret as a slash or as dots, because the server would then use another
// repository than the repository that was allowed.
func plainSegments(all []string) ([]string, error) {
	var kept []string
	for _, s := range all {
		name, _, _ := strings.Cut(s, ";") // some servers ignore the part after a semicolon
		switch {
		case name == "." || name == "..":
			return nil, invalid("repository: a path with . or .. in it is not allowed; resolve it first")
		case strings.ContainsAny(s, `/\%`):
			return nil, invalid("repository: the path must not contain an encoded slash, " +
				"a backslash or a percent sign")
		case strings.ContainsAny(s, looksLike) || strings.ContainsFunc(s, func(r rune) bool {
			return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
		}):
			return nil, invalid("repository: the path contains a character that looks like another")
		case s != "":
			kept = append(kept, s)
		}
	}
	return kept, nil
}

// withoutGit removes the suffix .git from a path, because git itself finds the repository without
// the suffix.
func withoutGit(p string) string {
	if name := path.Base(p); name != ".git" {
		return strings.TrimSuffix(p, ".git")
	}
	return p
}

// Resolve follows the symbolic links of a local path; it returns other locations unchanged. The
// error says only that there is no repository, so that it reveals nothing about the file system.
func (l Location) Resolve() (Location, error) {
	if !l.Local() {
		return l, nil
	}
	real, err := filepath.EvalSymlinks(l.Path)
	if err != nil || !isRepository(real) {
		return Location{}, notFound("repository: not found")
	}
	return Location{Scheme: "file", Path: real}, nil
}
