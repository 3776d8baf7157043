package broker

import (
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/testkit/shown"
)

// Rule: neither package fmt, nor an encoder, nor a log shows the password of the options.
func TestThePasswordOfOptionsIsNotShown(t *testing.T) {
	const password = "s3cr3t-hunter2"
	o := Options{URL: "amqp://jo:" + password + "@mq.example.org:5672/belay"}
	text := shown.Text(t, o, &o, []Options{o}, struct{ Broker Options }{o})
	shown.Hidden(t, text, password)
	if !strings.Contains(text, "mq.example.org") {
		t.Errorf("the host does not show in\n%s", text)
	}
}
