package test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: a stored document starts by itself at the times that it defines, on a server that is killed meanwhile, and
// stops doing so with a version that does not define them. Each command says what it has changed.
func TestADocumentStartsByItself(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := append([]string{"--concurrency", "2"}, bare...)
	s, a := p.serve(args...)
	file := filepath.Join(p.cwd, "tick.yaml")
	const tasks = "tasks:\n  - {id: a, uses: command, with: {run: 'true'}}\n"
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte("name: tick\n"+text+tasks), 0o600))
	}
	const each = "on:\n  schedules:\n    each: {every: 1s, overlap: allow_all}\n"
	belayOn := func(args ...string) result { return p.belay(append([]string{"--server", a.url}, args...)...) }
	write(each + "  webhooks:\n    push: {scheme: github, secrets: ['${{ secrets.HOOK }}']}\n")
	belayOn("workflows", "apply", "--dry-run", file).want(0).showing("schedule tick.each would be created",
		"webhook tick.push would be created")
	belayOn("schedules", "ls").want(0).showing("no schedules")
	belayOn("workflows", "apply", file).want(0).showing("tick@1 stored", "schedule tick.each created",
		"webhook tick.push created")
	belayOn("workflows", "apply", "--dry-run", file).want(0).showing("tick@1 is unchanged")
	started := func(more int64) {
		t.Helper()
		count := func() int64 {
			var info struct {
				Slots map[belay.ScheduleOutcome]int64
			}
			out := belayOn("schedules", "get", "tick.each", "-o", "json").want(0)
			must(t, json.Unmarshal([]byte(out.out), &info))
			return info.Slots[belay.SlotStarted]
		}
		n := count()
		until(t, "slots start", func() bool { return count() >= n+more })
	}
	started(2)
	s.kill()
	_, a = p.serve(args...)
	started(2)
	belayOn("schedules", "get", "tick.each").want(0).showing("defined by the document tick")
	belayOn("webhooks", "get", "tick.push").want(0).showing("defined by the document tick")
	belayOn("workflows", "ls", "tick").want(0).showing("defines the schedule tick.each",
		"defines the webhook tick.push")
	belayOn("schedules", "rm", "tick.each").want(belay.CodeConflict.Exit()).saying("change the document")
	belayOn("schedules", "set", "tick.each", "--every", "1h", "w").want(belay.CodeConflict.Exit()).
		saying("change the document")
	belayOn("schedules", "pause", "tick.each").want(0)
	belayOn("schedules", "resume", "tick.each").want(0)
	write(each)
	belayOn("workflows", "apply", file).want(0).showing("tick@2 stored", "webhook tick.push removed")
	started(1)
	write("")
	belayOn("workflows", "apply", "--dry-run", file).want(0).showing("schedule tick.each would be removed")
	belayOn("workflows", "apply", file).want(0).showing("tick@3 stored", "schedule tick.each removed")
	belayOn("schedules", "get", "tick.each").want(belay.CodeNotFound.Exit())
	belayOn("schedules", "set", "tick.each", "--every", "1h", "w").want(0)
	write(each)
	for _, flag := range []string{"--dry-run", "--new=false"} {
		belayOn("workflows", "apply", flag, file).want(belay.CodeConflict.Exit()).
			saying("there is a schedule tick.each that the document does not define")
	}
	write("on: {schedules: {each: {cron: 0 3 * *}}}\n")
	const problem = "tick.yaml:2:18: schedule tick.each: "
	belayOn("workflows", "apply", file).want(belay.CodeInvalid.Exit()).saying(problem)
	p.belay("workflows", "validate", file).want(belay.CodeInvalid.Exit()).showing(problem)
	write(each)
	p.belay("run", file).want(0) // which ignores the schedule
}

// Rule: a document reacts to signed deliveries as soon as it is stored, with a secret that the configuration allows to
// the name of its webhook, and reports the ends of its executions, also those of submissions and of belay run.
func TestADocumentIsTriggeredAndReportsItsEnd(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ends := make(chan belay.NotificationEvent, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var ev belay.NotificationEvent
		if err := json.NewDecoder(r.Body).Decode(&ev); err != nil {
			t.Error(err)
		}
		ends <- ev
	}))
	defer receiver.Close()
	const secret = "push-of-the-blackbox"
	key := p.path("secret")
	must(t, os.WriteFile(key, []byte(secret+"\n"), 0o600))
	_, a := p.serve("--concurrency", "2", "--http-egress", receiver.Listener.Addr().String(), "--secrets-allow",
		`["HOOK from file:`+key+` for webhook:build.push"]`)
	file := p.path("build.yaml")
	document := func(notify string) string {
		return "name: build\ninput: {type: object}\non:\n  webhooks:\n" +
			"    push: {scheme: github, secrets: ['${{ secrets.HOOK }}'], input: {after: '${{ event.data.after }}'}}\n" +
			"notify:\n  - {url: '" + notify + "', on: [succeeded, failed]}\n" +
			"tasks:\n  - {id: a, uses: command, with: {run: [test, '${{ input.after }}', '=', good]}}\n"
	}
	apply := func(notify string) result {
		must(t, os.WriteFile(file, []byte(document(notify)), 0o600))
		return p.belay("--server", a.url, "workflows", "apply", file)
	}
	apply("https://me:pw@ci.example.org/").want(belay.CodeInvalid.Exit()).saying("build.yaml:7:11: ")
	p.belay("--server", a.url, "webhooks", "get", "build.push").want(belay.CodeNotFound.Exit())
	apply(receiver.URL).want(0).showing("webhook build.push created")

	deliver := func(id, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/hooks/build.push",
			strings.NewReader(body))
		must(t, err)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		r.Header.Set("X-Github-Delivery", id)
		r.Header.Set("X-Github-Event", "push")
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK ||
			!strings.Contains(string(text), "started") {
			t.Fatalf("the delivery: %d %s, %v", answer.StatusCode, text, err)
		}
	}
	reported := func(what, want string) {
		t.Helper()
		select {
		case ev := <-ends:
			if ev.Type != want || ev.Data.Workflow != "document" {
				t.Errorf("%s: the report is %+v, want %s", what, ev, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s: no report", what)
		}
	}
	deliver("1", `{"after": "good"}`)
	reported("the first delivery", "execution.succeeded")
	deliver("2", `{"after": "bad"}`)
	reported("the second delivery", "execution.failed")
	p.belay("--server", a.url, "submit", "--document", "build", "--input", `{"after": "good"}`).want(0)
	reported("a submission", "execution.succeeded")
	p.belay("run", file, "--input", `{"after": "good"}`).want(0)
	reported("belay run", "execution.succeeded")
}
