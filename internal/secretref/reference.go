package secretref

import (
	"regexp"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

const (
	open    = "${{"
	end     = "}}"
	escaped = "$" + open // in a text, stands for ${{ itself
	prefix  = "secrets."
)

// name matches the names of secrets.
var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// piece is a part of a text: literal text, or the name of a secret.
type piece struct{ text, secret string }

// pieces splits a text at its references.
func pieces(text string) ([]piece, error) {
	var all []piece
	var literal strings.Builder
	for {
		before, rest, found := strings.Cut(text, open)
		literal.WriteString(before)
		if !found {
			break
		}
		if strings.HasSuffix(before, "$") { // the escape $${{
			plain := strings.TrimSuffix(literal.String(), "$") + open
			literal.Reset()
			literal.WriteString(plain)
			text = rest
			continue
		}
		inner, after, closed := strings.Cut(rest, end)
		secret, ok := strings.CutPrefix(strings.TrimSpace(inner), prefix)
		if !closed || !ok || !name.MatchString(secret) {
			return nil, errReference
		}
		if literal.Len() > 0 {
			all = append(all, piece{text: literal.String()})
			literal.Reset()
		}
		all = append(all, piece{secret: secret})
		text = after
	}
	if literal.Len() > 0 {
		all = append(all, piece{text: literal.String()})
	}
	return all, nil
}

var errReference = &belay.Error{Code: belay.CodeInvalid, Message: "after ${{ the name of a secret must follow, as in " +
	"${{ secrets.API_TOKEN }}; write $${{ for the text ${{ itself"}

// Check returns an error for a text with an invalid reference.
func Check(text string) error {
	_, err := pieces(text)
	return err
}

// Names returns the names of the secrets to which a text refers, each once. An invalid text refers to
// none.
func Names(text string) (names []string) {
	all, err := pieces(text)
	if err != nil {
		return nil
	}
	for _, p := range all {
		if p.secret != "" && !slices.Contains(names, p.secret) {
			names = append(names, p.secret)
		}
	}
	return names
}

// Escape returns a text that stands for the given text in a field in which references are resolved.
// A program that puts data of other people into such a field must call Escape, because the data may
// contain references.
func Escape(text string) string { return strings.ReplaceAll(text, open, escaped) }

// Plain returns a text with a fixed word in the place of each secret, for checks of the text before
// the secrets are known. first reports whether the text begins with a secret.
func Plain(text string) (plain string, first bool, err error) {
	all, err := pieces(text)
	if err != nil {
		return "", false, err
	}
	var b strings.Builder
	for _, p := range all {
		b.WriteString(p.text)
		if p.secret != "" {
			b.WriteString("secret")
		}
	}
	return b.String(), len(all) > 0 && all[0].secret != "", nil
}

// Shown returns a text with [NAME] in the place of each secret, for messages.
func Shown(text string) string {
	all, err := pieces(text)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range all {
		b.WriteString(p.text)
		if p.secret != "" {
			b.WriteString("[" + p.secret + "]")
		}
	}
	return b.String()
}

// reference matches a reference anywhere in a text, with the dollar sign of an escape before it.
var reference = regexp.MustCompile(`\$?\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]{0,99})\s*\}\}`)

// References returns the names of the secrets to which any part of a text refers, each once. Unlike
// Names, it accepts a text with other uses of ${{.
func References(text string) (names []string) {
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[0], "$$") && !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// ResolveOnly returns a text with the references to the given secrets resolved. It leaves all other
// text as it is, including references to other secrets; so data that refers to another secret does
// not get it. The escape $${{ works before the given names only. See Resolve for the error.
func (c *Scope) ResolveOnly(text string, names []string) (string, error) {
	var err error
	out := reference.ReplaceAllStringFunc(text, func(found string) string {
		secret := reference.FindStringSubmatch(found)[1]
		switch {
		case err != nil || !slices.Contains(names, secret):
			return found
		case strings.HasPrefix(found, "$$"):
			return found[1:]
		}
		var value string
		value, err = c.Value(secret)
		return value
	})
	if err != nil {
		return "", err
	}
	return out, nil
}
