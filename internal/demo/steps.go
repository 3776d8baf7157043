package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/screen"
)

// victim is the step during which the demo kills the worker.
const victim = "review"

// Environment variables that the demo sets for its workers, which pass them on to the steps.
const (
	ledgerEnv = "DEMO_LEDGER" // the ledger: the file in which steps record that they run
	workerEnv = "DEMO_WORKER" // the worker's name
)

// scripts are the five steps. Each step reads files that earlier steps have left in the workspace,
// even if another worker has run the earlier steps.
var scripts = []struct{ name, script string }{
	{"survey", `
		mkdir -p belay-demo
		git ls-files | wc -l | tr -d ' ' > belay-demo/files
		echo "$(cat belay-demo/files) files counted"`},
	{"history", `
		git rev-list --count HEAD > belay-demo/commits
		echo "$(cat belay-demo/commits) commits counted"`},
	{victim, `
		for n in 1 2 3 4 5; do
			file=$(git ls-files | sed -n "${n}p")
			echo "looks at ${file:-nothing more}"
			sleep 0.4
		done
		echo reviewed >> belay-demo/review
		echo "five files looked at"`},
	{"check", `
		test -s belay-demo/files
		test -s belay-demo/commits
		test "$(cat belay-demo/review)" = reviewed
		echo "the files of steps 1, 2 and 3 are there, once"`},
	{"report", `
		git add --force belay-demo
		git commit -q -m "demo: report"
		echo "committed as $(git rev-parse --short HEAD)"`},
}

// demoJob makes the job of the demo: five steps on a clone of a repository. Each step records in
// the ledger when it begins and when it has ended.
func demoJob(ctx context.Context, source, work string) (*agent.Job, error) {
	var err error
	if source == "" {
		source, err = smallRepository(ctx, filepath.Join(work, "repository"))
	}
	if err == nil {
		err = workspace.CheckRepo(source)
	}
	if bare, _, rerr := workspace.Reveal(source); err == nil && (rerr != nil || bare != source) {
		err = &belay.Error{
			Code: belay.CodeMalformed, Message: "the demo cannot clone a repository that needs credentials",
		}
	}
	if err != nil {
		return nil, err
	}
	j := &agent.Job{Repo: source, Env: []string{ledgerEnv, workerEnv}}
	for _, s := range scripts {
		note := func(what string) string {
			return fmt.Sprintf("echo %s %s $BELAY_TOKEN $%s >> \"$%s\"\n", what, s.name, workerEnv, ledgerEnv)
		}
		script := "set -e\n" + note("begin") + strings.ReplaceAll(s.script, "\n\t\t", "\n") + "\n" + note("end")
		j.Steps = append(j.Steps, agent.Step{Name: s.name, Argv: []string{"sh", "-c", script}})
	}
	if err := j.Check(); err != nil {
		return nil, err
	}
	return j, nil
}

// smallRepository makes a new repository for a demo without Options.Repo.
func smallRepository(ctx context.Context, dir string) (string, error) {
	const script = `
		git init -q .
		for n in one two three four five; do
			echo "$n" > "$n.txt"
			git add "$n.txt"
			git -c user.name=demo -c user.email=demo@localhost commit -q -m "$n"
		done`
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "sh", "-ec", script)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return "", &belay.Error{
			Code: belay.CodeUnavailable, Message: "make a small repository: " +
				screen.Brief(strings.TrimSpace(string(out)), 300), Err: err,
		}
	}
	return dir, nil
}

// stepNames lists the steps of a job for people.
func stepNames(j *agent.Job) string {
	names := make([]string, len(j.Steps))
	for i, s := range j.Steps {
		names[i] = s.Name
	}
	return strings.Join(names, ", then ")
}

// stepNumber is the number of a step in the demo, from 1.
func stepNumber(name string) int {
	return 1 + slices.IndexFunc(scripts, func(s struct{ name, script string }) bool { return s.name == name })
}

// stepTitle is the beginning of a line about a step.
func stepTitle(name string) string { return fmt.Sprintf("step %d, %s, ", stepNumber(name), name) }

// stepKey is the name under which a job saves a step's result.
func stepKey(name string) string { return "run[" + name + "]" }

// ledgerLine is a line that a step has written into the ledger, outside the store.
type ledgerLine struct {
	What   string      `json:"what"` // begin or end
	Step   string      `json:"step"`
	Token  belay.Token `json:"token"`
	Worker string      `json:"worker"`
}

func readLedger(name string) ([]ledgerLine, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var lines []ledgerLine
	for text := range strings.Lines(string(data)) {
		var l ledgerLine
		if _, err := fmt.Sscanf(text, "%s %s %d %s\n", &l.What, &l.Step, &l.Token, &l.Worker); err != nil {
			return nil, fmt.Errorf("read the ledger of the steps: %q: %w", text, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}
