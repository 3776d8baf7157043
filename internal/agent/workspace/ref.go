package workspace

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckRef returns an error for a string that cannot be the name of a branch, tag or commit. An
// empty string is valid and means the source's HEAD. The error is a [belay.Error] with CodeInvalid.
func CheckRef(ref string) error {
	if ref == "" {
		return nil
	}
	const what = "a ref is the name of a branch or tag, or a commit"
	if err := checkText("ref", ref); err != nil {
		return err
	}
	for _, bad := range []string{"..", "@{", "//", "/.", ".lock/"} {
		if strings.Contains(ref, bad) {
			return invalid("ref %q: it must not contain %q; %s", ref, bad, what)
		}
	}
	if i := strings.IndexAny(ref, " ~^:?*[\\\x7f"); i >= 0 {
		return invalid("ref %q: it must not contain %q; %s", ref, ref[i:i+1], what)
	}
	for _, bad := range []string{"/", ".", ".lock"} {
		if strings.HasSuffix(ref, bad) {
			return invalid("ref %q: it must not end with %q; %s", ref, bad, what)
		}
	}
	if strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, ".") || ref == "@" {
		return invalid("ref %q: it must not start with / or . and must not be @; %s", ref, what)
	}
	return nil
}

// checkBranch reports whether git allows this name for a branch. The name comes from a repository,
// so an attacker may have chosen it; it need not be UTF-8.
func checkBranch(name string) bool {
	if name == "" || name == "HEAD" || len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) {
		return false
	}
	return CheckRef(strings.ToValidUTF8(name, "x")) == nil
}

// isObject reports whether s is the full name of an object.
func isObject(s string) bool { return (len(s) == 40 || len(s) == 64) && isHex(s) }

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}

// checkID returns an error for an id that cannot be the name of a directory.
func checkID(id string) error {
	ok := id != "" && len(id) <= 200 && id[0] != '.' && id[0] != '-' && utf8.ValidString(id)
	for _, c := range id {
		ok = ok && (c == '_' || c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' &&
			c <= 'Z')
	}
	if !ok {
		return invalid("workspace id %q: it must have 1 to 200 letters, digits, _, - or . and start with none of "+
			". and -", id)
	}
	return nil
}
