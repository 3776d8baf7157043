package workspace

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckRef refuses what cannot be the name of a branch, tag or commit. Empty is
// the source's HEAD. The error is a [belay.Error] with CodeInvalid.
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
			return invalid("ref %q: it must not hold %q; %s", ref, bad, what)
		}
	}
	if i := strings.IndexAny(ref, " ~^:?*[\\\x7f"); i >= 0 {
		return invalid("ref %q: it must not hold %q; %s", ref, ref[i:i+1], what)
	}
	for _, bad := range []string{"/", ".", ".lock"} {
		if strings.HasSuffix(ref, bad) {
			return invalid("ref %q: it must not end with %q; %s", ref, bad, what)
		}
	}
	if strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, ".") || ref == "@" {
		return invalid("ref %q: it must not start like that; %s", ref, what)
	}
	return nil
}

// checkBranch tells whether git would let a branch have this name, by the bytes
// that a hostile repository may have put there: no UTF-8 is asked for.
func checkBranch(name string) bool {
	if name == "" || name == "HEAD" || len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) {
		return false
	}
	return CheckRef(strings.ToValidUTF8(name, "x")) == nil
}

// isObject tells whether s is the whole name of an object.
func isObject(s string) bool { return (len(s) == 40 || len(s) == 64) && isHex(s) }

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}

// checkID refuses a name that could not be a directory's.
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
