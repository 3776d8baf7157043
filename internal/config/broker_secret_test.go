package config_test

import (
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/testkit/shown"
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
	text := shown.Text(t, c, *c, c.Broker, &c.Broker, c.Agent, c.Agent.Logins)
	shown.Hidden(t, text, password)
	if !strings.Contains(text, "mq.example.org") {
		t.Errorf("the host does not show in\n%s", text)
	}
}
