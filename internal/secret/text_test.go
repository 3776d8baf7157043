package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Rule: nothing prints a secret: no verb of package fmt, no encoder, and no log.
func TestATextIsNotShown(t *testing.T) {
	const value = "hunter2hunter2"
	type login struct{ User, Password Text }
	is := login{"jo-" + value, value}
	var out bytes.Buffer
	for _, x := range []any{is.Password, is, &is, []login{is}, map[string]login{"a": is}, Hidden{"NAME", value}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+"\n", x)
		}
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		if text, err = yaml.Marshal(x); err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "x", x)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "x", x)
	}
	shows := strings.ToLower(out.String())
	numbers := fmt.Sprint([]byte(value)) //nolint:staticcheck // how %v prints its bytes
	for _, form := range []string{value, fmt.Sprintf("%x", value), numbers} {
		if strings.Contains(shows, form) {
			t.Errorf("%q shows in\n%s", form, out.String())
		}
	}
	if is.Password.Reveal() != value {
		t.Error("the secret is lost")
	}
}
