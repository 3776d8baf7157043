package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Rule: neither package fmt, nor an encoder, nor a log shows the password of the options.
func TestThePasswordOfOptionsIsNotShown(t *testing.T) {
	const password = "s3cr3t-hunter2"
	o := Options{URL: "amqp://jo:" + password + "@mq.example.org:5672/belay"}
	var out bytes.Buffer
	for _, x := range []any{o, &o, []Options{o}, struct{ Broker Options }{o}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
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
	shows := out.String()
	if strings.Contains(shows, password) || strings.Contains(shows, fmt.Sprintf("%x", password)) {
		t.Errorf("the password shows in\n%s", shows)
	}
	if !strings.Contains(out.String(), "mq.example.org") {
		t.Errorf("the host does not show in\n%s", &out)
	}
}
