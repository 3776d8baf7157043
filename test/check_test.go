package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rule: --check-config refuses every configuration that serve or worker refuses, with the same exit
// code and a message that says what to do, and starts nothing; serve and worker accept every
// configuration that --check-config accepts.
func TestCheckConfigAgreesWithTheStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	file := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := p.path(name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dir := func(name string, mode os.FileMode) string {
		t.Helper()
		path := p.path(name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open, broken := file("open", "https://bot:"+token+"@git.example\n", 0o644),
		file("broken", "\nbot:"+token+"@git.example\n", 0o600)
	writable := file("writable.yaml", "grace: 3s\n", 0o666)
	agent := []string{"--agent-command", "cat"}
	for name, c := range map[string]struct {
		args   []string
		says   string
		server bool // the options exist only for belay serve
	}{
		"a shell that reads the prompt": {[]string{
			"--agent-command", `sh -c "echo {{prompt}}"`,
		}, "a shell would read the prompt", false},
		"no repository":               {append(agent, "--agent-repo", p.path("none")), "does not exist", false},
		"too many repositories":       {append(agent, "--agent-repos", "https://*"), "agent.repos", false},
		"credentials that are open":   {append(agent, "--agent-git-credentials", open), "chmod 600 " + open, false},
		"credentials that are broken": {append(agent, "--agent-git-credentials", broken), "line 2", false},
		"a crypt key that does not exist": {append(agent, "--agent-git-crypt-key", p.path("none")),
			"agent.git_crypt_key",
			false},
		"users that others have":     {append(agent, "--agent-users", "65000-66000"), "65000-66000", false},
		"a configuration for all":    {[]string{"--config", writable}, "chmod go-w " + writable, false},
		"a data directory for all":   {[]string{"--data", dir("all", 0o777)}, "chmod 700", false},
		"a key that is open":         {[]string{"--tls-cert", open, "--tls-key", open}, "chmod 600 " + open, true},
		"a certificate that is none": {[]string{"--tls-cert", broken, "--tls-key", broken}, "certificate", true},
		"an address for all":         {[]string{"--listen", "0.0.0.0:0"}, "belay keys create", true},
		"an address that is none": {
			[]string{"--listen", "no-such-host.invalid:7420"}, "there is no such address", true,
		},
		"an egress that is a page": {append(agent, "--agent-egress", "good.example,https://git.example/app"),
			`agent.egress: "https://git.example/app": `, false},
		"an egress that is all": {
			append(agent, "--agent-egress", "good.example,*"), `agent.egress: "*": it would allow every host`, false,
		},
		"an egress of an odd address": {
			append(agent, "--agent-egress", "127.1:80"), "did you mean 127.0.0.1:80?", false,
		},
		"an egress that is nothing": {[]string{
			"--config", file("empty.yaml", "agent:\n  command: [cat]\n  egress: []\n", 0o600),
		}, "empty.yaml:3: agent.egress: an empty list", false},
	} {
		for _, command := range []string{"serve", "worker"} {
			if c.server && command == "worker" {
				continue
			}
			args := append([]string{command}, c.args...)
			checked, started := p.belay(append(args, "--check-config")...), p.belay(args...)
			if checked.code == 0 || !strings.Contains(checked.err, c.says) ||
				strings.Contains(checked.err+checked.out+started.err, token) {
				t.Errorf("%s: %s", name, checked)
			}
			if started.code != checked.code || !strings.Contains(started.err, c.says) ||
				strings.Contains(started.err, "belay serves") || strings.Contains(started.err, "takes work") {
				t.Errorf("%s: the check ended with %d, and the start with: %s", name, checked.code, started)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(p.data, "*")); len(left) > 0 {
		t.Errorf("the checks made %q", left)
	}
	p.belay("serve", "--check-config", "--agent-command", "cat", "--agent-repo", p.repository()).want(0)
	p.belay("keys", "create", "--name", "me", "--scope", "admin").want(0)
	p.belay("serve", "--check-config", "--listen", "0.0.0.0:0").want(0)
}
