package test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay/internal/screen"
)

// hostileText contains characters that manipulate a terminal: they change the direction of text,
// hide or colour it, set the title and move the cursor.
const hostileText = "evil\u202egnp.exe\u202c\u2066x\u2069\u200b\u200f\ufeff\u00ad\u2028\u061c"

// hostileBytes also contains bytes that are not allowed in names.
const hostileBytes = hostileText + "\x1b[31mred\x1b]0;title\x07\u009b2J\x9b2J\b\b\x7f\r\x1b[2K\x1b[1A"

// harmless fails if a text contains characters that must not reach a screen.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		if screen.Hostile(r) && r != '\n' && r != '\t' {
			t.Errorf("%s passes on %U: …%q…", what, r, text[max(0, i-60):min(len(text), i+60)])
			return
		}
	}
}

// Rule: no command writes control characters from names, labels, messages or output to a screen:
// neither in its text output nor in its JSON nor in its errors. With --raw, belay logs prints the
// bytes unchanged.
func TestNoControlCharactersReachAScreen(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve("--log-format", "json")
	text, bytes := jsonText(hostileText), jsonText(hostileBytes)

	repo := p.path("repo-" + hostileText)
	if err := os.Rename(p.repository(), repo); err != nil {
		t.Fatal(err)
	}
	submitted := a.want(http.StatusCreated, "POST", "/v1/executions",
		`{"workflow":`+text+`,"dispatch":"external","queue":`+text+`,"idempotency_key":`+text+`,"labels":{"command":`+
			text+`,`+text+`:`+text+`},"input":{`+bytes+`:`+bytes+`}}`)
	id := submitted.string("id")
	lock := a.want(http.StatusCreated, "POST", "/v1/executions/"+id+"/lock", `{"owner":`+text+`}`)
	lease := []string{"Lease-Id", lock.header.Get("Lease-Id"), "Lease-Token", lock.header.Get("Lease-Token")}
	ops, err := json.Marshal(map[string]any{"ops": []any{map[string]any{"append": map[string]any{
		"lease": map[string]any{
			"execution": id, "token": lock.at("lease", "token"), "lease_id": lock.header.Get("Lease-Id"),
		}, "name": "output", "n": 0, "data": base64.StdEncoding.EncodeToString([]byte(hostileBytes + "\nline\n")),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.want(http.StatusOK, "POST", "/v1/batch", string(ops)); strings.Contains(got.text, "error") {
		t.Fatalf("%s", got.text)
	}
	a.want(http.StatusOK, "PUT", "/v1/executions/"+id+"/checkpoint", checkpointWithSteps(bytes), lease...)
	a.want(http.StatusAccepted, "POST", "/v1/executions/"+id+"/signal", `{"name":`+text+`,"payload":`+bytes+`}`)
	a.want(http.StatusOK, "POST", "/v1/executions/"+id+"/lock/"+strings.TrimPrefix(lock.header.Get("Location"),
		"/v1/executions/"+id+"/lock/")+"/release",
		`{"outcome":"fail","output":{`+bytes+`:`+bytes+`},"error":{"message":`+bytes+`,"stack":`+bytes+
			`,"class":"permanent"}}`, lease...)
	a.want(http.StatusCreated, "POST", "/v1/workers", `{"name":`+text+`,"version":`+text+`,"queues":[`+text+
		`],"workflows":[{"workflow":`+text+`}],"capacity":1}`)
	p.belay("keys", "create", "--name", hostileText, "--scope", "admin").want(0)
	ran := p.run("--repo", repo, "--key", hostileText+"2", "--", "sh", "-c", "echo new >> notes.txt; echo "+hostileText)

	var e struct{ Output map[string]string }
	if r := p.belay("get", id, "-o", "json").want(0); json.Unmarshal([]byte(r.out), &e) != nil ||
		!strings.Contains(e.Output[strings.ToValidUTF8(hostileBytes, "\uFFFD")], "\x1b[31mred") {
		t.Errorf("JSON does not say what is stored: %s", r.out)
	}
	covered := make(map[string]bool)
	see := func(r result) {
		t.Helper()
		harmless(t, r.line+": standard output", r.out)
		harmless(t, r.line+": standard error", r.err)
	}
	ask := func(args ...string) {
		t.Helper()
		covered[args[0]] = true
		see(p.belay(args...))
		see(p.belay(append(args, "-o", "json")...))
	}
	run := idOf(t, ran.err).String()
	file := p.path("hostile.yaml")
	must(t, os.WriteFile(file, []byte(`{"name": "hostile", "description": `+bytes+`, "tasks": [{"id": "t", "uses": "command",
		"description": `+bytes+`, "with": {"run": ["sh", "-c", "cat hostile; exit 3"], "capture": "text"}}]}`), 0o600))
	must(t, os.WriteFile(filepath.Join(p.cwd, "hostile"), []byte(hostileBytes), 0o600))
	document := idOf(t, p.run(file, "--key", hostileText+"3").want(1).err).String()
	ask("ls")
	ask("run", file, "--key", hostileText+"3")
	ask("get", document)
	ask("logs", document)
	for _, x := range []string{id, run, document, hostileText} {
		ask("tasks", x)
		ask("tasks", x, hostileText, "--state", hostileText)
		ask("retry", x, "--skip", "t="+hostileText)
	}
	ask("ls", "--label", hostileText+"="+hostileText, "--workflow", hostileText)
	for _, x := range []string{id, run, hostileText, hostileBytes} {
		ask("get", x)
		ask("watch", x)
		ask("explain", x)
		ask("logs", x)
		ask("workspaces", "salvage", x, "--to", p.cwd)
	}
	ask("logs", id, "--name", hostileText)
	for _, line := range []string{"top", "top --once", "workers ls", "workers ls --all", "keys ls --all",
		"workspaces ls", "audit", "usage"} {
		ask(strings.Fields(line)...)
	}
	ask("workers", "drain", hostileText)
	ask("keys", "revoke", hostileText)
	ask("workspaces", "gc", "--dry-run")
	ask("workspaces", "restore", run, p.path("again-"+hostileText))
	ask("doctor")
	ask("rm", hostileText, id, "--reason", hostileText) // rm is refused, since the dead letter of the execution is open
	ask("dead", "note", id, strings.ReplaceAll(hostileText, "\x1b", ""))
	ask("dead", "note", id, hostileText)
	ask("dead", "ls", "--text", hostileText)
	ask("dead", "ls", "--resolution", "all")
	ask("dead", "groups")
	ask("dead", "get", id)
	ask("dead", "requeue", hostileText, "--input", hostileText)
	ask("dead", "requeue", id, "--patch", hostileText)
	ask("dead", "discard", id, "--note", hostileText)
	ask("dead", "fix", id)
	ask("bulk", "discard", "--text", hostileText, "--note", hostileText, "--dry-run")
	ask("bulk", "cancel", "--label", "a="+hostileText, "--yes")
	ask("runs", "ls")
	ask("runs", "ls", "--worker", hostileText, "--outcome", hostileText)
	ask("preempt", id, "--reason", hostileText)
	ask("budget", id, "--cost", hostileText, "--reason", hostileText)
	ask("budget", id, "--cost", "20", "--reason", hostileText)
	ask("quarantine", hostileText, "--reason", hostileText)
	ask("cancel", id, "--reason", hostileText)
	ask("retry", id, "--from", hostileText)
	ask("retry", id, "--from", strings.ReplaceAll(hostileText, "\x1b", ""))
	ask("fork", id, "--at", hostileText)
	ask("pause", hostileText)
	ask("resume", hostileText)
	ask("pause", "--queue", hostileText, "--reason", hostileText)
	ask("gates", "ls")
	ask("gates", "get", "queue:"+hostileText)
	ask("limits", "set", hostileText, "5", "--reason", hostileText)
	ask("rates", "set", hostileText, hostileText)
	ask("breakers", "open", hostileText)
	ask("breakers", "ls")
	ask("resources", "set", hostileText, "--swap-workflow", hostileText)
	ask("resources", "ls")
	ask("registry", "exec", "--name", hostileText, "--recipe", hostileText, "--", "true")
	ask("registry", "ls")
	ask("swap", "--to", hostileText, "--", "true")
	malformed := p.path("document-" + hostileText + ".yaml")
	must(t, os.WriteFile(malformed, []byte("name: "+hostileText+"\ntasks: ["+hostileText), 0o600))
	ask("workflows", "validate", malformed)
	ask("workflows", "validate", hostileText)
	ask("workflows", "graph", malformed)
	ask("workflows", "graph", file)
	for _, name := range []string{"hostile", hostileText} {
		ask("workflows", "apply", file, "--reason", hostileText)
		ask("workflows", "ls")
		ask("workflows", "get", name)
		ask("workflows", "deprecate", name+"@1", "--reason", hostileText)
	}
	ask("schedules", "set", hostileText, "--every", "1h", hostileText)
	ask("schedules", "set", "hostile", "--cron", hostileText, hostileText)
	ask("schedules", "set", "hostile", "--cron", "@daily", "--time-zone", hostileText, hostileText)
	ask("schedules", "set", "hostile", "--every", "1h", "--reason", hostileText, "--input", bytes, hostileText)
	ask("schedules", "ls")
	for _, name := range []string{"hostile", hostileText} {
		ask("schedules", "pause", name, "--reason", hostileText)
		ask("schedules", "run", name, "--reason", hostileText)
		ask("schedules", "backfill", name, "--from", hostileText)
		ask("schedules", "get", name)
	}
	askWebhooks(ask, text, bytes)
	askTargets(ask)
	askAgents(ask, id)
	ask("signal", id, hostileText, "--payload", bytes)
	ask("lock", "steal", id, "--reason", hostileText)
	ask("lock", "exec", id, "--owner", hostileText, "--", "true")
	ask("submit", hostileText, "--label", "a="+hostileText)
	ask("submit", hostileBytes)
	ask("serve", "--listen", hostileText)
	ask("serve", "--check-config", "--agent-repo", hostileText, "--hosts", hostileText)
	ask("worker", "--check-config", "--agent-workspace-dir", hostileText)
	ask("backup", p.path("backup-"+hostileText))
	ask("restore", "--verify", p.path("backup-"+hostileText))
	ask("migrate", "--data", p.path("none-"+hostileText))
	ask("demo", "--repo", hostileText)
	ask("version")
	ask("run", "--isolated", "--repo", "none", "--", "printf", strings.ReplaceAll(hostileBytes, "%", "%%"))
	ask("run", "--repo", hostileText, "--", "true")
	ask("no-" + hostileText)
	ask("help", hostileText)
	ask("completion", "bash")
	see(p.belay("__complete", "get", ""))
	see(p.belay("__complete", "gates", "get", ""))
	see(p.belay("__complete", "dead", "get", ""))
	see(p.belay("__complete", "retry", id, "--from", ""))
	see(p.belay("__complete", "fork", id, "--at", ""))
	see(p.belay("__complete", "workers", "drain", ""))
	see(p.belay("__complete", "keys", "revoke", ""))
	see(p.belay("__complete", "schedules", "get", ""))
	see(p.belay("__complete", "webhooks", "get", ""))
	see(p.belay("__complete", "webhooks", "delivery", "hostile", ""))
	see(p.belay("__complete", "notify", "get", ""))
	help := p.belay("--help").want(0).out
	for _, line := range regexp.MustCompile(`(?m)^  ([a-z]+)  `).FindAllStringSubmatch(help, -1) {
		if !covered[line[1]] {
			t.Errorf("the test does not run belay %s", line[1])
		}
	}

	if r := p.belay("logs", id, "--raw").want(0); r.out != hostileBytes+"\nline\n" {
		t.Errorf("--raw does not print the bytes: %q", r.out)
	}
	if r := p.belay("logs", id).want(0); !strings.Contains(r.out, "line\n") || !strings.Contains(r.out, "evil") {
		t.Errorf("too much is removed: %q", r.out)
	}
	if r := p.start(p.command("run", "--repo", "none", "--", "printf",
		`\033[31mred\n`)).wait(patience).want(0); r.out != "\x1b[31mred\n" {
		t.Errorf("the output of the user's own command was changed: %q", r.out)
	}
	server.signal(syscall.SIGTERM)
	see(server.wait(patience).want(0))
}

// checkpointWithSteps is a checkpoint that reports a failed try; text is its name and error as JSON.
func checkpointWithSteps(text string) string {
	return `{"key":"k","steps":[{"kind":"step","name":` + text + `,"ago_ms":1,"over":true,"error":` + text + `}]}`
}

// askWebhooks runs the commands for webhooks; text and bytes are the hostile texts as JSON.
func askWebhooks(ask func(...string), text, bytes string) {
	for _, scheme := range []string{hostileText, "github"} {
		ask("webhooks", "set", "hostile", "--scheme", scheme, "--secret", hostileText, hostileText)
		ask("webhooks", "set", "hostile", "--scheme", scheme, "--secret", "HOOK", "--label",
			hostileText+"="+hostileText, "--input", bytes, "--filter", "event.id != "+text, hostileText)
	}
	ask("webhooks", "set", "hostile", "--scheme", "hmac", "--secret", "HOOK", "--filter", hostileText,
		"--hmac-header", hostileText, hostileText)
	ask("submit", "hostile", "--notify", hostileText, "--notify-on", hostileText)
	ask("submit", "hostile", "--notify", "https://example.org/", "--notify-secret", hostileText)
	ask("webhooks", "set", "events", "--scheme", "cloudevents", "--label", "a="+hostileText, hostileText)
	ask("webhooks", "set", "queue", "--scheme", "amqp", "--amqp-queue", hostileText, "w")
	ask("webhooks", "set", "queue", "--scheme", "amqp", "--amqp-queue", strings.ReplaceAll(hostileText, "\x1b", ""),
		"--amqp-without-id", hostileText, "w")
	ask("publish", "--type", hostileText, "--source", hostileText, "--id", hostileText, "--body", bytes)
	ask("publish", "--type", "t", "--source", "/s", "--extension", hostileText+"="+hostileText)
	ask("publish", "--file", hostileText)
	ask("webhooks", "ls")
	for _, name := range []string{"hostile", hostileText} {
		ask("webhooks", "test", name, "--id", "hostile", "--type", hostileText, "--body", bytes, "--header",
			hostileText+"="+hostileText)
		ask("webhooks", "test", name, "--id", hostileText, "--header", hostileText)
		ask("webhooks", "pause", name, "--reason", hostileText)
		ask("webhooks", "get", name)
		ask("webhooks", "deliveries", name)
		ask("webhooks", "deliveries", name, "--outcome", hostileText)
		ask("webhooks", "replay", name, "hostile")
		for _, delivery := range []string{"hostile", hostileText} {
			ask("webhooks", "delivery", name, delivery)
		}
		ask("webhooks", "resume", name, "--reason", hostileText)
	}
}

// askAgents runs the commands for agents, and the command that repeats a job, with hostile texts.
func askAgents(ask func(...string), id string) {
	ask("agent", hostileText, "--repo", hostileText)
	ask("agent", "reply", id, hostileText)
	ask("agent", "answer", id, hostileText)
	ask("agent", "ask", hostileText)
	ask("mcp")
	ask("retry", hostileText)
}

// askTargets runs the commands for targets of notifications.
func askTargets(ask func(...string)) {
	for _, url := range []string{hostileText, "https://example.org/" + hostileText, "https://" + hostileText} {
		ask("notify", "set", "hostile", "--url", url, "--workflow", hostileText, "--queue", hostileText, "--label",
			hostileText+"="+hostileText, "--reason", hostileText)
	}
	for _, flag := range []string{"--slack", "--secret", "--format", "--on", "--alert", "--label"} {
		ask("notify", "set", "hostile", "--url", "https://example.org/", flag, hostileText)
	}
	ask("notify", "set", hostileText, "--url", "https://example.org/")
	ask("notify", "ls")
	for _, name := range []string{"hostile", hostileText} {
		ask("notify", "pause", name, "--reason", hostileText)
		ask("notify", "test", name)
		ask("notify", "get", name)
		ask("notify", "ls")
		ask("notify", "resume", name, "--reason", hostileText)
		ask("notify", "rm", name, "--reason", hostileText)
	}
}
