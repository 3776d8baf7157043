package secret_test

import (
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/belaydev/belay/internal/secret"
	"github.com/belaydev/belay/internal/testkit/shown"
)

// Rule: nothing prints a secret: no verb of package fmt, no encoder, and no log.
func TestATextIsNotShown(t *testing.T) {
	const value = "hunter2hunter2"
	type login struct{ User, Password secret.Text }
	is := login{"jo-" + value, value}
	hidden := secret.Hidden{Name: "NAME", Value: value}
	for _, x := range []any{is.Password, is, &is, []login{is}, map[string]login{"a": is}, hidden} {
		text, err := yaml.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		shown.Hidden(t, string(text)+shown.Text(t, x), value)
	}
	if is.Password.Reveal() != value {
		t.Error("the secret is lost")
	}
}
