package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

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
			var info struct{ Slots map[belay.ScheduleOutcome]int64 }
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
