package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay/internal/config"
)

// Rule: Load moves the credentials in the URL of a repository from the URL to Agent.Logins, from
// which Belay uses them. No value that Belay shows contains credentials.
func TestCredentialsOfRepositoriesAreNotShown(t *testing.T) {
	const text = "agent:\n  repo: https://bot:hunter2@git.example/app.git\n" +
		"  repos: ['https://hunter2@git.example/one', 'https://git.example/*', 'ssh://git:hunter2@git.example/x', " +
		"'git@git.example:y', '/srv/z']\n"
	env := []string{
		"BELAY_AGENT_REPO=https://bot:hunter2@git.example/app.git",
		`BELAY_AGENT_REPOS=["https://hunter2@git.example/one","https://git.example/*","ssh://git:hunter2@git.example/x","git@git.example:y","/srv/z"]`,
	}
	for name, s := range map[string]config.Sources{"file": {File: write(t, text)}, "environment": {Environ: env}} {
		c, err := config.Load(s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := []string{
			"https://git.example/one", "https://git.example/*", "ssh://git@git.example/x", "git@git.example:y",
			"/srv/z",
		}
		if diff := cmp.Diff(want, c.Agent.Repos); diff != "" || c.Agent.Repo != "https://git.example/app.git" {
			t.Errorf("%s: %q, %s", name, c.Agent.Repo, diff)
		}
		logins := map[string]config.Login{
			"https://git.example/app.git": {User: "bot", Password: secret}, "https://git.example/one": {User: secret},
		}
		if diff := cmp.Diff(logins, c.Agent.Logins); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if text := fmt.Sprint(c.Values()); strings.Contains(text, secret) {
			t.Errorf("%s: the values show the credentials: %s", name, text)
		}
	}
}

// Rule: Load refuses credentials in a pattern of repositories, in a URL that cannot be parsed and
// in a flag, and the error does not show the credentials.
func TestRefusedCredentialsOfRepositoriesAreNotShown(t *testing.T) {
	for _, s := range []config.Sources{
		{Environ: []string{`BELAY_AGENT_REPOS=["https://bot:hunter2@git.example/*"]`}},
		{Environ: []string{`BELAY_AGENT_REPOS=https://hunter2@git.example/*`}},
		{Environ: []string{`BELAY_AGENT_REPO=https://bot:hunter2%zz@git.example/x`}},
		{File: write(t, "agent: {repos: ['https://hunter2@git.example/*']}\n")},
		{File: write(t, "agent: {repo: 'https://hunter2%zz@git.example/x'}\n")},
		{Flags: map[string]string{"agent.repo": "https://bot:hunter2@git.example/x"}},
		{Flags: map[string]string{"agent.repo": "https://hunter2@git.example/x"}},
		{Flags: map[string]string{"agent.repos": `["https://hunter2@git.example/x"]`}},
	} {
		_, err := config.Load(s)
		if err == nil || strings.Contains(err.Error(), secret) ||
			!strings.Contains(err.Error(), "agent.git_credentials") && !strings.Contains(err.Error(), "a path or URL") {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, repo := range []string{"git@git.example:x", "ssh://git@git.example/x", "https://git.example/x", "/srv/x"} {
		if _, err := config.Load(config.Sources{Flags: map[string]string{"agent.repo": repo}}); err != nil {
			t.Errorf("%s: %v", repo, err)
		}
	}
}

// Rule: the value of agent.hidden is a list of absolute paths below /. The value of agent.egress is
// a list of names and addresses, or the word none alone. Other values are refused.
func TestPathsAndPlacesOfTheNetworkAreChecked(t *testing.T) {
	for key, values := range map[string]map[string]bool{
		"agent.hidden": {`["/a/","/b/../c"]`: true, "/a /b": true, "/": false, "a": false, `["/a","b"]`: false,
			"": false},
		"agent.egress": {"none": true, "a,b:1": true, "none,a": false, "a,none": false, "a b": false, "a,,b": false},
	} {
		for text, good := range values {
			c, err := config.Load(config.Sources{Flags: map[string]string{key: text}})
			if (err == nil) != good {
				t.Errorf("%s=%q: %v", key, text, err)
			}
			if good && key == "agent.hidden" && text[0] == '[' && !cmp.Equal(c.Agent.Hidden, []string{"/a", "/c"}) {
				t.Errorf("hidden: %q", c.Agent.Hidden)
			}
		}
	}
	c, err := config.Load(config.Sources{File: write(t, "agent: {egress: none}\n")})
	if err != nil || !cmp.Equal(c.Agent.Egress, []string{"none"}) {
		t.Errorf("%+v, %v", c, err)
	}
}
