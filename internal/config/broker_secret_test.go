package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/config"
)

// Rule: neither package fmt, nor an encoder, nor a log shows a password of a configuration.
func TestPasswordsOfTheConfigurationAreNotShown(t *testing.T) {
	const password = "s3cr3t-hunter2"
	c, err := config.Load(config.Sources{Environ: []string{
		"BELAY_BROKER_URL=amqp://jo:" + password + "@mq.example.org:5672/belay",
		"BELAY_AGENT_REPO=https://jo:" + password + "@git.example.org/x.git",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.Broker.URL, password) || len(c.Agent.Logins) != 1 {
		t.Fatal("the configuration has no password")
	}
	var out bytes.Buffer
	for _, x := range []any{c, *c, c.Broker, &c.Broker, c.Agent, c.Agent.Logins} {
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
