package secretref

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// forms returns a secret, and the other forms in which a program that echoes the secret may write
// it: escaped in a URL or in JSON, or as a part of a text in Base64.
func forms(value string) []string {
	all := []string{value, url.QueryEscape(value), url.PathEscape(value), lowerHex(url.QueryEscape(value))}
	if quoted, err := json.Marshal(value); err == nil {
		all = append(all, strings.Trim(string(quoted), `"`))
	}
	for offset := range 3 {
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if inner := inBase64(e, value, offset); len(inner) >= 2*minSize {
				all = append(all, inner)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
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
