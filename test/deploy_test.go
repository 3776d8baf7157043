package test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	holding "github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/config"
)

// deployed is a belay process that one of the files below deploy/ starts.
type deployed struct {
	what  string
	args  []string
	env   map[string]string
	grace time.Duration // from the request to stop until the process is killed
	ports []string      // the ports on which the process listens, according to the file
}

func deployFile(t *testing.T, name string) string {
	t.Helper()
	return read(t, filepath.Join("..", "deploy", name))
}

// decodeStrict decodes each document of a YAML file. It passes the document's kind to the function
// each, and decodes the document into the value that this function returns. An unknown key is an
// error.
func decodeStrict(t *testing.T, name string, each func(kind string) any) {
	t.Helper()
	text := deployFile(t, name)
	kinds := yaml.NewDecoder(strings.NewReader(text))
	whole := yaml.NewDecoder(strings.NewReader(text))
	whole.KnownFields(true)
	for {
		var head struct {
			Kind string `yaml:"kind"`
		}
		if err := kinds.Decode(&head); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		into := each(head.Kind)
		if err := whole.Decode(into); err != nil {
			t.Fatalf("%s, %T: %v", name, into, err)
		}
	}
}

// flagsOf returns the flags of a command, as its help lists them.
func (p *place) flagsOf(command ...string) []string {
	p.t.Helper()
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`).FindAllStringSubmatch(
		p.belay(append(slices.Clone(command), "--help")...).want(0).out, -1) {
		names = append(names, m[1])
	}
	if len(names) < 5 {
		p.t.Fatalf("belay %s --help lists %q", command, names)
	}
	return names
}

// known are the variables that belay reads in addition to those of its configuration.
var known = []string{"BELAY_SERVER", "BELAY_KEY", "BELAY_KEY_FILE", "BELAY_DATA", "BELAY_CONFIG"}

// check checks that the binary knows each flag and variable of a command line and its environment.
func (d *deployed) check(p *place) {
	t := p.t
	t.Helper()
	flags := p.flagsOf(d.args[0])
	for _, a := range d.args[1:] {
		if name, ok := strings.CutPrefix(a, "--"); ok {
			if name, _, _ = strings.Cut(name, "="); !slices.Contains(flags, name) {
				t.Errorf("%s: belay %s has no flag --%s", d.what, d.args[0], name)
			}
		}
	}
	cmd := p.command(append(slices.Clone(d.args), "--check-config", "-o", "json")...)
	for _, name := range slices.Sorted(maps.Keys(d.env)) {
		isKey := slices.ContainsFunc(config.Keys(), func(k config.Key) bool { return k.Env() == name })
		if strings.HasPrefix(name, "BELAY_") && !slices.Contains(known, name) && !isKey {
			t.Errorf("%s: belay %s does not read %s", d.what, d.args[0], name)
		}
		value := d.env[name]
		if name == "BELAY_KEY_FILE" || name == "BELAY_BROKER_PASSWORD_FILE" {
			value = p.path("secret") // the path is on the machine of the process
			if err := os.WriteFile(value, []byte("bly_key\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	r := p.start(cmd).wait(patience).want(0)
	grace := 30 * time.Second
	if d.args[0] == "serve" {
		grace = d.config(p, r.out)
	} else if i := slices.Index(d.args, "--grace"); i > 0 {
		grace, _ = time.ParseDuration(d.args[i+1])
	}
	if d.grace < grace+10*time.Second {
		t.Errorf("%s is killed after %s; it has a grace period of %s, and releases its executions after that", d.what,
			d.grace,
			grace)
	}
}

// config checks the effective configuration of a server, and returns its grace period.
func (d *deployed) config(p *place, text string) time.Duration {
	t := p.t
	t.Helper()
	var values []config.Value
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		t.Fatalf("%s: %v in %s", d.what, err, text)
	}
	of := make(map[string]string)
	for _, v := range values {
		of[v.Key] = v.Text
	}
	_, port, _ := strings.Cut(of["listen"], ":")
	for _, said := range d.ports {
		if said != port {
			t.Errorf("%s listens on %s, and the file says %s", d.what, of["listen"], said)
		}
	}
	grace, err := time.ParseDuration(of["grace"])
	if err != nil {
		t.Fatalf("%s: a grace period of %q", d.what, of["grace"])
	}
	return grace
}

// Rule: the files below deploy/ use only flags, variables, ports and times that the binary knows.
func TestDeployUsesKnownFlagsAndVariables(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	all := slices.Concat(composed(t), withBroker(t, composed(t)), kubernetes(t), units(t))
	if len(all) != 8 {
		t.Errorf("%d deployments are checked, want 8", len(all))
	}
	for _, d := range all {
		d.check(p)
	}
}

// compose has the fields of compose.yaml that the file uses.
type compose struct {
	Name     string
	Services map[string]service
	Secrets  map[string]struct{ File string }
	Volumes  map[string]struct{}
}

type service struct {
	Image, Restart  string
	Hostname        string
	Build           struct{ Context, Dockerfile, Target string }
	Init            bool
	StopGracePeriod string `yaml:"stop_grace_period"`
	ShmSize         string `yaml:"shm_size"`
	Deploy          struct{ Replicas int }
	Environment     map[string]string
	Command         []string
	Secrets         []string
	Volumes         []string
	Ports           []string
	ReadOnly        bool `yaml:"read_only"`
	Tmpfs           []string
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	DependsOn       any      `yaml:"depends_on"`
	Healthcheck     struct {
		Test              []string
		Interval, Timeout string
		Retries           int
	}
}

func composed(t *testing.T) (all []*deployed) {
	t.Helper()
	var c compose
	decodeStrict(t, "compose.yaml", func(string) any { return &c })
	for name, s := range c.Services {
		for _, secret := range s.Secrets {
			if c.Secrets[secret].File == "" {
				t.Errorf("compose.yaml: %s wants the secret %s, which does not exist", name, secret)
			}
		}
		for key, value := range s.Environment {
			if secret, ok := strings.CutPrefix(value, "/run/secrets/"); ok && !slices.Contains(s.Secrets, secret) {
				t.Errorf("compose.yaml: %s of %s is a secret that it does not have", key, name)
			}
			if strings.Contains(strings.ToLower(key), "password") && !strings.HasSuffix(key, "_FILE") {
				t.Errorf("compose.yaml: %s has a password in its environment", name)
			}
		}
		grace, err := time.ParseDuration(s.StopGracePeriod)
		if err != nil || grace != 45*time.Second {
			t.Errorf("compose.yaml: %s has a stop_grace_period of %q, want 45s", name, s.StopGracePeriod)
		}
		if s.Build.Target == "" {
			continue
		}
		if !strings.Contains(deployFile(t, filepath.Base(s.Build.Dockerfile)), " AS "+s.Build.Target) {
			t.Errorf("compose.yaml: the Dockerfile has no target %s", s.Build.Target)
		}
		d := &deployed{what: "compose.yaml, " + name, args: s.Command, env: s.Environment, grace: grace}
		for _, published := range s.Ports {
			d.ports = append(d.ports, published[strings.LastIndexByte(published, ':')+1:])
		}
		all = append(all, d)
	}
	if n := c.Services["server"].Deploy.Replicas; n != 3 {
		t.Errorf("compose.yaml: %d servers", n)
	}
	return all
}

// withBroker returns the deployments of compose.yaml with the changes in compose.rabbitmq.yaml.
func withBroker(t *testing.T, all []*deployed) []*deployed {
	t.Helper()
	var c compose
	decodeStrict(t, "compose.rabbitmq.yaml", func(string) any { return &c })
	for _, d := range all {
		_, name, _ := strings.Cut(d.what, ", ")
		s := c.Services[name]
		if len(s.Environment) == 0 {
			t.Errorf("compose.rabbitmq.yaml does not change %s", name)
		}
		maps.Copy(d.env, s.Environment)
		d.what = "compose.rabbitmq.yaml, " + name
		for key, value := range s.Environment {
			if secret, ok := strings.CutPrefix(value, "/run/secrets/"); ok && !slices.Contains(s.Secrets, secret) {
				t.Errorf("%s: %s is a secret that it does not have", d.what, key)
			}
		}
	}
	if r := c.Services["rabbitmq"]; !slices.Contains(r.Secrets, filepath.Base(r.Environment["RABBITMQ_CONFIG_FILE"])) {
		t.Error("compose.rabbitmq.yaml: RabbitMQ has no configuration")
	}
	return all
}

var setting = regexp.MustCompile(`(?m)^(\w+)=(.*)$`)

// units returns the systemd units. If a unit sets a name more than once, the last line counts,
// except for the environment, where all lines count.
func units(t *testing.T) (all []*deployed) {
	t.Helper()
	for _, name := range []string{"belay.service", "belay-worker.service"} {
		d := &deployed{what: name, env: make(map[string]string)}
		for _, m := range setting.FindAllStringSubmatch(deployFile(t, name), -1) {
			switch m[1] {
			case "ExecStart":
				d.args = strings.Fields(m[2])[1:]
			case "Environment":
				for _, pair := range strings.Fields(m[2]) {
					key, value, _ := strings.Cut(pair, "=")
					d.env[key] = value
				}
			case "TimeoutStopSec":
				seconds, err := strconv.Atoi(m[2])
				if err != nil {
					t.Fatal(err)
				}
				d.grace = time.Duration(seconds) * time.Second
			}
		}
		all = append(all, d)
	}
	return all
}

// Rule: a worker's unit allows the worker to sandbox jobs: the unit delegates a cgroup with the
// subgroup in which the worker expects to be, and does not restrict the parts of /proc and of the
// cgroups that the kernel requires for namespaces.
func TestTheWorkersUnitAllowsSandboxes(t *testing.T) {
	t.Parallel()
	has := make(map[string]string)
	for _, m := range setting.FindAllStringSubmatch(deployFile(t, "belay-worker.service"), -1) {
		has[m[1]] = m[2]
	}
	if has["Delegate"] != "yes" || has["DelegateSubgroup"] != holding.ServiceGroup {
		t.Errorf("the unit sets the group %q, %q; the worker looks for %q", has["Delegate"], has["DelegateSubgroup"],
			holding.ServiceGroup)
	}
	for _, name := range []string{"ProtectControlGroups", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc",
		"RestrictNamespaces"} {
		if has[name] != "" {
			t.Errorf("%s=%s prevents the sandbox of jobs", name, has[name])
		}
	}
}

// Rule: if belay runs as root with no capabilities except those in belay-worker.isolated.conf, it
// gives each job its own user and a read-only file system, and can read the files that the job has
// left.
func TestTheRightsOfAnIsolatedWorker(t *testing.T) {
	t.Parallel()
	bin, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("only root has capabilities to drop, with setpriv")
	}
	m := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.+)$`).FindStringSubmatch(deployFile(t,
		"belay-worker.isolated.conf"))
	if m == nil {
		t.Fatal("belay-worker.isolated.conf leaves root all capabilities")
	}
	rights := strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(m[1], "CAP_", "+"), " ", ","))
	p := newPlace(t)
	cmd := p.command("run", "--isolated", "--repo", p.repository(), "--", "sh", "-c",
		"id -u; echo work >> notes.txt; mkdir -p deep; chmod 0 deep; exec 3>&-; sleep 600 &")
	cmd.Args = append([]string{bin, "--bounding-set", "-all," + rights, "--no-new-privs", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = bin
	r := p.start(cmd).wait(patience).want(0).saying("isolated by: pid namespace; no new privileges; user ",
		"read-only but for its own directories", "changed 1 file")
	if strings.HasPrefix(r.out, "0\n") {
		t.Errorf("%s", r)
	}
	p.clean()
}

// Rule: systemd accepts the units as they are, and rates their exposure as low.
func TestSystemdAcceptsTheUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here; the units' flags and times are checked without it")
	}
	dir := t.TempDir()
	for name, most := range map[string]float64{"belay.service": 2, "belay-worker.service": 7.5,
		"isolated/belay-worker.service": 7} {
		path := filepath.Join(dir, name)
		text := strings.ReplaceAll(deployFile(t, filepath.Base(name)), "ExecStart=/usr/local/bin/belay",
			"ExecStart="+binary(t))
		files := map[string]string{path: text}
		if filepath.Base(name) != name {
			files[path+".d/isolated.conf"] = deployFile(t, "belay-worker.isolated.conf")
		}
		for path, text := range files {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text),
				0o600)); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput()
		// An older systemd that does not know DelegateSubgroup ignores this key; the comment in the
		// unit says so.
		out = regexp.MustCompile(`(?m)^.*Unknown key (name )?'DelegateSubgroup'.*\n?`).ReplaceAll(out, nil)
		if err != nil || strings.Contains(string(out), filepath.Base(name)) {
			t.Errorf("systemd-analyze verify %s: %v\n%s", name, err, out)
		}
		out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", path).CombinedOutput()
		m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if err != nil || m == nil {
			t.Logf("systemd-analyze security is too old here: %v", err)
			continue
		}
		if level, err := strconv.ParseFloat(string(m[1]), 64); err != nil || level > most {
			t.Errorf("%s has an exposure of %s, want at most %.1f", name, m[1], most)
		}
	}
}
