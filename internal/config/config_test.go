package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/config"
)

// write makes a configuration file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "belay.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Rule: without any settings the server listens on loopback and has its data directory in the
// working directory.
func TestTheDefaultsNeedNoSettings(t *testing.T) {
	c, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:7420" || c.StoreURL() != "sqlite:belay-data" || c.DataDir() != "belay-data" || c.TLS() ||
		c.InsecureNoAuth || c.Concurrency != 0 {
		t.Errorf("got %+v", c)
	}
	for _, v := range c.Values() {
		if v.From != "default" {
			t.Errorf("%+v", v)
		}
	}
}

// Rule: flags outweigh the environment, the environment outweighs the file, and the file outweighs
// the defaults.
func TestFlagsOutweighEnvironmentOutweighsFile(t *testing.T) {
	path := write(t, "listen: 127.0.0.1:1\ngrace: 1s\nretention: 1h\nlog:\n  level: debug\n")
	c, err := config.Load(config.Sources{
		File:    path,
		Environ: []string{"BELAY_LISTEN=127.0.0.1:2", "BELAY_GRACE=2", "BELAY_LOG_FORMAT=", "OTHER=x"},
		Flags:   map[string]string{"listen": "127.0.0.1:3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range c.Values() {
		if v.From != "default" {
			got[v.Key] = v.Text + " from " + strings.Replace(v.From, path, "FILE", 1)
		}
	}
	want := map[string]string{
		"listen": "127.0.0.1:3 from --listen", "grace": "2s from BELAY_GRACE", "retention": "1h from FILE:3",
		"log.level": "debug from FILE:5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Rule: every key can be set by the file, by the environment and by a flag. The value that Belay
// shows for a key is a valid value of that key.
func TestEveryKeyCanBeSetByFileEnvironmentAndFlag(t *testing.T) {
	other := map[string]string{
		"listen": "localhost:1", "store": "sqlite:x", "data": "d", "tls_cert": "c.pem", "tls_key": "k.pem",
		"insecure_no_auth": "true",
		"hosts":            "a.example,b.example", "retention": "36h",
		"dead_letter_retention": "72h", "grace": "1.5s", "concurrency": "3",
		"origins":        "https://app.example.org,http://localhost:3000",
		"log.level":      "warn",
		"log.format":     "json",
		"limits.headers": "8KiB", "limits.rate": "7", "limits.burst": "8", "limits.connections": "9",
		"agent.command": `["sh","-c","echo 'a, b' $1","sh","{{prompt}}"]`, "agent.preset": "claude",
		"agent.permissions":    "edits",
		"agent.resume_command": `["agent","--resume","{{session}}"]`,
		"agent.reply_command":  `["agent","--resume","{{session}}","{{prompt}}"]`, "agent.output": "plain",
		"agent.repo": "https://example.org/a.git", "agent.repos": `["https://example.org/*","/srv/b"]`,
		"agent.env":     "A,B",
		"agent.timeout": "1m", "agent.grace": "2s", "agent.chat_timeout": "3m", "agent.max_concurrency": "4",
		"agent.max_queue_depth": "5",
		"agent.job_ttl":         "6s", "agent.fetch_debounce": "0s", "agent.workspace_dir": "/workspace",
		"agent.max_attempts": "2",
		"agent.dead_letters": "true", "agent.on_lost": "fail", "agent.local": "false", "agent.save_every": "5m",
		"agent.prices": "m:1:2", "agent.max_cost_tokens": "1000", "agent.max_cost_usd": "3",
		"agent.keep_home": "false", "agent.users": "70000-70009", "agent.seal": "false", "agent.git_crypt_key": "k",
		"agent.max_processes": "16",
		"agent.max_cpu":       "2", "agent.max_memory": "1GiB", "agent.max_disk": "2GiB", "agent.max_files": "77",
		"agent.git_credentials": "g", "agent.prepare_timeout": "8m", "agent.hidden": `["/srv/a b","/srv/c"]`,
		"agent.readable": `["/opt/x"]`,
		"agent.push":     "true", "agent.push_branches": "agents/*,fix", "agent.push_credentials": "w",
		"agent.push_open": `["open","{{branch}}"]`, "agent.push_env": "T",
		"agent.egress":     "api.example.org,10.20.0.0/16:5432",
		"http.concurrency": "5", "http.egress": "public,127.0.0.1:9000", "http.proxy": "http://proxy.example.org:3128",
		"secrets.allow":  `["A for http to api.example.org,b.example.org","B from file:/etc/b for *"]`,
		"limits.streams": "11", "limits.waiting": "12", "limits.header_timeout": "3s", "limits.read_timeout": "4s",
		"limits.idle_timeout": "5s", "timeout_check_interval": "45s", "defaults.max_attempts": "5",
		"defaults.backoff_base": "2s", "defaults.backoff_cap": "40s", "defaults.start_timeout": "5m",
		"health_check_interval": "10s", "health_check_allow": "10.20.0.0/16,fd00:1::/32", "worker.ttl": "1m",
		"worker.heartbeat":           "20s",
		"defaults.scheduled_timeout": "4m", "defaults.on_no_worker": "fail",
		"broker.url": "amqp://mq.example.org/belay", "broker.queues": "default,emails",
		"broker.password_file": "p", "broker.prefix": "site",
		"broker.worker_queue_ttl": "2m",
	}
	for _, k := range config.Keys() {
		text, ok := other[k.Name]
		if !ok {
			t.Errorf("%s: add a value for it to this test", k.Name)
			continue
		}
		inFile := text
		if k.Type() == "list" && !strings.HasPrefix(text, "[") {
			inFile = "[" + text + "]"
		}
		section, key, nested := strings.Cut(k.Name, ".")
		line := k.Name + ": " + inFile
		if nested {
			line = section + ": {" + key + ": " + inFile + "}"
		}
		for _, s := range []config.Sources{
			{File: write(t, line)}, {Environ: []string{k.Env() + "=" + text}}, {Flags: map[string]string{k.Name: text}},
		} {
			for _, pair := range []string{"tls_cert", "tls_key"} { // the certificate and its key need each other
				if k.Name != pair && strings.HasPrefix(k.Name, "tls_") {
					s.Environ = append(s.Environ, "BELAY_"+strings.ToUpper(pair)+"=x.pem")
				}
			}
			c, err := config.Load(s)
			if err != nil {
				t.Errorf("%s: %v", k.Name, err)
				continue
			}
			for _, v := range c.Values() {
				if v.Key == k.Name && (v.Text != text || v.From == "default") {
					t.Errorf("%s: %+v, want %s", k.Name, v, text)
				}
			}
		}
		if k.Default() == text {
			t.Errorf("%s: the test sets it to its default", k.Name)
		}
	}
}

// Rule: a duration has the form of Go, or is a number of seconds; a size has a unit, or is a number
// of bytes.
func TestDurationsAndSizesAreRead(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "90": 90 * time.Second,
		"1.5": 1500 * time.Millisecond, "1h30m": 90 * time.Minute, "0": 0} {
		c, err := config.Load(config.Sources{File: write(t, "retention: "+text)})
		if err != nil || c.Retention != want {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
	for text, want := range map[string]int64{"65536": 65536, "64KiB": 65536, "1 MiB": 1 << 20, "70000B": 70000} {
		c, err := config.Load(config.Sources{File: write(t, "limits: {headers: "+text+"}")})
		if err != nil || c.Limits.Headers != want {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
}

// Rule: if the setting `store` is sqlite:DIR, DIR is the data directory. It is then an error if the
// setting `data` names another directory.
func TestTheStoreIsTheDataDirectory(t *testing.T) {
	c, err := config.Load(config.Sources{Flags: map[string]string{"store": "sqlite:here"}})
	if err != nil || c.DataDir() != "here" || c.StoreURL() != "sqlite:here" {
		t.Errorf("%v, %v", c, err)
	}
	c, err = config.Load(config.Sources{Flags: map[string]string{"data": "there"}})
	if err != nil || c.DataDir() != "there" || c.StoreURL() != "sqlite:there" {
		t.Errorf("%v, %v", c, err)
	}
	_, err = config.Load(config.Sources{
		Flags: map[string]string{"store": "sqlite:here"}, Environ: []string{"BELAY_DATA=there"},
	})
	want := "--store: store: sqlite:here is the data directory here, and data (BELAY_DATA) is there; leave one of " +
		"the two out"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Rule: a variable of the environment whose name is similar to the variable of a key causes a
// warning. Variables of other programs that begin with BELAY_ cause no warning.
func TestMisspeltVariablesGetAWarning(t *testing.T) {
	got := config.Misspelt([]string{
		"BELAY_LISTEN=x", "BELAY_LISTN=x", "BELAY_SERVICE_HOST=10.0.0.1", "BELAY_PORT=tcp://10.0.0.1:80", "BELAY_KEY=k",
		"HOME=/", "BELAY_LIMIT_HEADERS=1",
	})
	want := []string{
		"BELAY_LIMIT_HEADERS is not a setting; did you mean BELAY_LIMITS_HEADERS?",
		"BELAY_LISTN is not a setting; did you mean BELAY_LISTEN?",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Rule: Load returns CodeNotFound for a file that does not exist, CodeInvalid for a file that is
// larger than 1 MiB, and an error for a directory.
func TestUnreadableFilesAreRefused(t *testing.T) {
	_, err := config.Load(config.Sources{File: filepath.Join(t.TempDir(), "none.yaml")})
	if belay.CodeOf(err) != belay.CodeNotFound {
		t.Errorf("no file: %v", err)
	}
	_, err = config.Load(config.Sources{File: write(t, "# "+strings.Repeat("x", 1<<20))})
	if belay.CodeOf(err) != belay.CodeInvalid || !strings.Contains(err.Error(), "larger than 1MiB") {
		t.Errorf("too large: %v", err)
	}
	_, err = config.Load(config.Sources{File: t.TempDir()})
	if err == nil {
		t.Error("a directory was read")
	}
}
