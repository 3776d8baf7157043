package secretref

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"
)

// forms returns a secret, and the other forms in which a program that echoes the secret may write
// it: escaped in JSON (and once more, in JSON in a text in JSON), in a URL, or as a part of a text in
// Base64.
func forms(value string) []string {
	all := []string{value}
	for range 2 {
		for _, text := range all {
			all = append(all, inJSON(text)...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
	}
	for _, text := range all {
		escaped := url.QueryEscape(text)
		all = append(all, escaped, lowerHex(escaped), url.PathEscape(text), lowerHex(url.PathEscape(text)))
		for offset := range 3 {
			for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				if inner := inBase64(e, text, offset); len(inner) >= 2*minSize {
					all = append(all, inner)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// inJSON returns the forms that a text has between the quotes of JSON: with as few escapes as
// possible, with escapes for HTML too, and in ASCII.
func inJSON(text string) []string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	html, err := json.Marshal(text)
	if err := errors.Join(err, e.Encode(text)); err != nil {
		return nil
	}
	few := unquoted(b.String())
	var ascii strings.Builder
	for _, r := range few {
		switch {
		case r < 0x80:
			ascii.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&ascii, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&ascii, `\u%04x`, r)
		}
	}
	return []string{few, unquoted(string(html)), ascii.String(), strings.ReplaceAll(few, "/", `\/`)}
}

// unquoted returns a JSON string without its quotes.
func unquoted(text string) string {
	text = strings.TrimSpace(text)
	return text[1 : len(text)-1]
}

// lowerHex returns a text of url.QueryEscape with the hexadecimal digits in lower case.
func lowerHex(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			b.WriteString(strings.ToLower(text[i : i+3]))
			i += 2
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// inBase64 returns the characters of a text in Base64 that depend on the value alone, if the value
// begins offset bytes (modulo 3) after the beginning of the text.
func inBase64(e *base64.Encoding, value string, offset int) string {
	text := e.EncodeToString(append(make([]byte, offset), value...))
	from := (offset*8 + 5) / 6
	to := (offset + len(value)) * 8 / 6
	if from >= to {
		return ""
	}
	return text[from:to]
}
