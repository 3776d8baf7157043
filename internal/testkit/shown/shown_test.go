package shown

import (
	"fmt"
	"testing"
)

// recorder counts the failures of a test.
type recorder struct {
	testing.TB
	failures int
}

func (*recorder) Helper()                 {}
func (r *recorder) Errorf(string, ...any) { r.failures++ }

// Each way of writing a secret is found.
func TestASecretIsFound(t *testing.T) {
	const secret = "Hunter2"
	for _, text := range []string{
		Text(t, secret), Text(t, struct{ S string }{secret}), fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret),
		fmt.Sprintf("%d", []byte(secret)),
	} {
		r := &recorder{TB: t}
		if Hidden(r, text, secret); r.failures == 0 {
			t.Errorf("not found in %q", text)
		}
	}
	r := &recorder{TB: t}
	if Hidden(r, Text(t, "***"), secret); r.failures > 0 {
		t.Error("found where it is not")
	}
}
