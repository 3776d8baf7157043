// Package shown finds out whether a type hides its secret.
package shown

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Text returns what the verbs of package fmt, encoding/json and the handlers of log/slog write for the values.
func Text(t testing.TB, values ...any) string {
	t.Helper()
	var out bytes.Buffer
	for _, x := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+"\n", x)
		}
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "x", x)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "x", x)
	}
	return out.String()
}

// Hidden fails the test if a text contains a secret: as it is, in hexadecimal digits, or as the numbers of its bytes.
func Hidden(t testing.TB, text, secret string) {
	t.Helper()
	numbers := fmt.Sprint([]byte(secret)) //nolint:staticcheck // how %v prints bytes
	for _, form := range []string{secret, fmt.Sprintf("%x", secret), numbers} {
		if strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
			t.Errorf("%q shows in\n%s", form, text)
		}
	}
}
