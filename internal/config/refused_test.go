package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/config"
)

// refusals lists the contents of files that Load refuses, each with the exact text of the error.
var refusals = []struct{ name, file, says string }{
	{"unknown key", "listen: :1\nlisten_on: :2\n",
		`F:2: listen_on: there is no such key; did you mean listen?`},
	{"nothing like it", "colour: blue\n",
		`F:1: colour: there is no such key; there are listen, store, data, tls_cert, tls_key, insecure_no_auth, hosts, origins, retention, dead_letter_retention, grace, concurrency, timeout_check_interval, health_check_interval, health_check_allow, worker, defaults, log, limits, broker, agent, http, secrets`},
	{"unknown in a section", "log:\n  lvel: info\n",
		`F:2: log.lvel: there is no such key; did you mean level?`},
	{"in the wrong place", "idle_timeout: 3s\n",
		`F:1: idle_timeout: there is no such key here; did you mean limits.idle_timeout?`},
	{"a dotted name", "log.level: info\n",
		`F:1: log.level: there is no such key here; did you mean log.level?`},
	{"given twice", "grace: 1s\n\ngrace: 2s\n",
		`F:3: grace: given twice; it is given in line 1 already`},
	{"given twice in a section", "limits:\n  rate: 1\n  rate: 1\n",
		`F:3: limits.rate: given twice; it is given in line 2 already`},
	{"a number for text", "data: 7\n",
		`F:1: data: the number "7", where text should be; write a directory, such as /var/lib/belay`},
	{"a number for an address", "listen: 7420\n",
		`F:1: listen: the number "7420", where an address should be; write HOST:PORT, such as 127.0.0.1:7420 or [::1]:7420, or :7420 for every address of the machine`},
	{"text for a number", "concurrency: many\n",
		`F:1: concurrency: the text "many", where a number should be; write a whole number from 0 to 10000`},
	{"text for a bool", "insecure_no_auth: yes\n",
		`F:1: insecure_no_auth: the text "yes", where a bool should be; write true or false`},
	{"a list for text", "listen: [a, b]\n",
		`F:1: listen: a list, where an address should be; write HOST:PORT, such as 127.0.0.1:7420 or [::1]:7420, or :7420 for every address of the machine`},
	{"every origin", "origins: ['*']\n", `F:1: origins: "*" is not valid` + originsAre},
	{"no origin", "origins: ['null']\n", `F:1: origins: "null" is not valid` + originsAre},
	{"a page", "origins: ['https://a.example/x']\n", `F:1: origins: "https://a.example/x" is not valid` + originsAre},
	{"a slash", "origins: ['https://a.example/']\n", `F:1: origins: "https://a.example/" is not valid` + originsAre},
	{"a wildcard", "origins: ['https://*.example']\n", `F:1: origins: "https://*.example" is not valid` + originsAre},
	{"the port of https", "origins: ['https://a.example:443']\n", `F:1: origins: "https://a.example:443" is not valid` + originsAre},
	{"capitals", "origins: ['https://A.example']\n", `F:1: origins: "https://A.example" is not valid` + originsAre},
	{"a user", "origins: ['https://u@a.example']\n", `F:1: origins: "https://u@a.example" is not valid` + originsAre},
	{"a file", "origins: ['file://']\n", `F:1: origins: "file://" is not valid` + originsAre},
	{"no scheme", "origins: [a.example]\n", `F:1: origins: "a.example" is not valid` + originsAre},
	{"text for a list", "hosts: a.example\n",
		`F:1: hosts: the text "a.example", where a list should be; write names, such as belay.example.org`},
	{"a number in a list", "hosts:\n- a.example\n- 7\n",
		`F:3: hosts: the number "7" in the list, where text should be`},
	{"an empty list of what may be reached", "agent:\n  egress: []\n",
		`F:2: agent.egress: an empty list could mean nothing or everything; write names or addresses, such as api.example.org or git.example.org:443, or none, or leave the key out`},
	{"an empty list of repositories", "agent:\n  repos: []\n",
		`F:2: agent.repos: an empty list could mean nothing or everything; write repositories, such as ["https://example.org/*"]; those that end with * without credentials, which belong in the file of agent.git_credentials, or leave the key out`},
	{"a value for a section", "log: info\n",
		`F:1: log: the text "info", where keys and values should be, such as level: info`},
	{"nothing for a value", "listen:\ngrace: 1s\n",
		`F:1: listen: nothing, where an address should be; write HOST:PORT, such as 127.0.0.1:7420 or [::1]:7420, or :7420 for every address of the machine`},
	{"bad duration", "grace: soon\n",
		`F:1: grace: "soon" is not valid; write a duration such as "90s" or "15m", or seconds such as 90, from 0s to 1h`},
	{"duration out of range", "grace: 25h\n",
		`F:1: grace: "25h" is not valid; write a duration such as "90s" or "15m", or seconds such as 90, from 0s to 1h`},
	{"negative duration", "retention: -1\n",
		`F:1: retention: "-1" is not valid; write a duration such as "90s" or "15m", or seconds such as 90, from 0s to 2400000h`},
	{"a duration that is neither 0 nor long enough", "health_check_interval: 500ms\n",
		`F:1: health_check_interval: "500ms" is not valid; write a duration such as "90s" or "15m", or seconds such as 90, from 1s to 1h, or 0`},
	{"a network with bits of a host", "health_check_allow: [10.0.0.1/8]\n",
		`F:1: health_check_allow: "10.0.0.1/8" is not valid; write networks or addresses, such as 10.20.0.0/16, fd00:1::/32 or 192.0.2.7`},
	{"a name for a network", "health_check_allow: [example.org]\n",
		`F:1: health_check_allow: "example.org" is not valid; write networks or addresses, such as 10.20.0.0/16, fd00:1::/32 or 192.0.2.7`},
	{"bad size", "limits: {headers: 10MB}\n",
		`F:1: limits.headers: "10MB" is not valid; write a size such as 16MiB or 512KiB, or bytes such as 65536, from 4KiB to 1MiB`},
	{"size that overflows", "limits: {headers: 9223372036854775807GiB}\n",
		`F:1: limits.headers: "9223372036854775807GiB" is not valid; write a size such as 16MiB or 512KiB, or bytes such as 65536, from 4KiB to 1MiB`},
	{"number out of range", "limits:\n  connections: 0\n",
		`F:2: limits.connections: "0" is not valid; write a whole number from 1 to 1000000`},
	{"bad choice", "log: {format: xml}\n",
		`F:1: log.format: "xml" is not valid; write text or json`},
	{"bad store", "store: ./data\n",
		`F:1: store: "./data" is not valid; write sqlite:DIR, such as sqlite:/var/lib/belay, or postgres://USER@HOST/DATABASE`},
	{"bad address", "listen: localhost\n",
		`F:1: listen: "localhost" is not valid; write HOST:PORT, such as 127.0.0.1:7420 or [::1]:7420, or :7420 for every address of the machine`},
	{"a certificate alone", "tls_cert: c.pem\n",
		`F:1: tls_cert: a certificate needs its private key; set tls_key too`},
	{"a private key alone", "\ntls_key: k.pem\n",
		`F:2: tls_key: a private key needs its certificate; set tls_cert too`},
	{"an alias", "log: &a {level: info}\nlimits: *a\n",
		`F:1: log: anchors and aliases (& and *) are not supported; write the value out
F:2: limits: anchors and aliases (& and *) are not supported; write the value out`},
	{"a merge", "<<: {listen: x}\n",
		`F:1: <<: there is no such key; there are listen, store, data, tls_cert, tls_key, insecure_no_auth, hosts, origins, retention, dead_letter_retention, grace, concurrency, timeout_check_interval, health_check_interval, health_check_allow, worker, defaults, log, limits, broker, agent, http, secrets`},
	{"a key that is a list", "[a]: b\n",
		`F:1: a list, where the name of a key should be`},
	{"two documents", "listen: :1\n---\nlisten: :2\n",
		`F:2: a second YAML document; a configuration is a single one`},
	{"a list", "- listen\n",
		`F:1: a list, where keys and values should be, such as listen: 127.0.0.1:7420`},
	{"no YAML", "listen: [\n",
		`F:1: this is not YAML: did not find expected node content`},
	{"a tab", "log:\n\tlevel: info\n",
		`F:2: this is not YAML: found character that cannot start any token`},
	{"another type", "listen: !!binary aGk=\n",
		`F:1: listen: a value of type !!binary, where an address should be; write HOST:PORT, such as 127.0.0.1:7420 or [::1]:7420, or :7420 for every address of the machine`},
	{"all at once", "listn: x\ngrace: soon\nlimits:\n  headers: 1\n",
		`F:1: listn: there is no such key; did you mean listen?
F:2: grace: "soon" is not valid; write a duration such as "90s" or "15m", or seconds such as 90, from 0s to 1h
F:4: limits.headers: "1" is not valid; write a size such as 16MiB or 512KiB, or bytes such as 65536, from 4KiB to 1MiB`},
}

// Rule: each error in a file names the file, the line, the key and a correct value.
func TestErrorsNameFileLineAndKey(t *testing.T) {
	for _, r := range refusals {
		path := write(t, r.file)
		_, err := config.Load(config.Sources{File: path})
		if err == nil {
			t.Errorf("%s: no error", r.name)
			continue
		}
		if belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("%s: %s", r.name, belay.CodeOf(err))
		}
		if diff := cmp.Diff(r.says, strings.ReplaceAll(err.Error(), path, "F")); diff != "" {
			t.Errorf("%s:\n%s", r.name, diff)
		}
	}
}

// Rule: an error in a variable or flag names the variable or flag.
func TestErrorsNameTheVariableOrFlag(t *testing.T) {
	_, err := config.Load(config.Sources{
		Environ: []string{
			"BELAY_LIMITS_RATE=fast", "BELAY_INSECURE_NO_AUTH=1",
		}, Flags: map[string]string{"log.level": "loud"},
	})
	want := `BELAY_INSECURE_NO_AUTH: "1" is not valid; write true or false
BELAY_LIMITS_RATE: "fast" is not valid; write a whole number from 0 to 1000000
--log-level: "loud" is not valid; write debug, info, warn or error`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Rule: unusual files without an error are accepted: an empty file, a file that has only comments,
// a section that has only comments, carriage returns, a byte order mark.
func TestUnusualFilesAreAccepted(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "log:\n  # level: info\n",
		"listen: 127.0.0.1:1\r\ngrace: 1s\r\n", "\ufefflisten: 127.0.0.1:1\n", "hosts: []\n", "{}\n"} {
		if _, err := config.Load(config.Sources{File: write(t, text)}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// For any content of a file, Load neither panics nor takes long, and the error about a refused file
// begins with the path of the file.
func FuzzFile(f *testing.F) {
	for _, r := range refusals {
		f.Add(r.file)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := write(t, text)
		if _, err := config.Load(config.Sources{File: path}); err != nil && !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%q: %v does not name the file", text, err)
		}
	})
}

// originsAre is the end of the error about an invalid origin.
const originsAre = "; write origins as browsers write them, such as https://app.example.org or " +
	"http://localhost:3000, and no *"
