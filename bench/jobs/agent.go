package jobs

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

//go:embed job.sh
var script string

// pauses is how often a job waits.
const pauses = 4

// None is the prompt of a job that does nothing.
const None = "none"

// Agent is the command of all agents. The job's number or None takes the place of the
// prompt; a job waits for think in all. The script is in the command, since jobs do not
// see the files of others in /tmp.
func Agent(think time.Duration) []string {
	return []string{"sh", "-ec", script, "agent", fmt.Sprintf("%.3f", (think / pauses).Seconds()), "{{prompt}}"}
}

// Settings says what a job is.
func Settings(think time.Duration) string {
	return fmt.Sprintf("each job waits %d × %s for its model", pauses, think/pauses)
}

// changed is what each job edits beside a file of its own.
var changed = []string{"bufio/bufio.go", "fmt/print.go", "os/file.go", "shared.txt", "strings/strings.go"}

// talk is what an agent has said of its gits.
type talk struct {
	failed int    // times that a git failed
	locked int    // of these, because of a lock
	first  string // which of them, and why
	rest   string // what it has read of its work
}

const failing = "failed: "

// hear takes apart what an agent has said.
func hear(said string) (t talk) {
	for line := range strings.Lines(said) {
		if why, ok := strings.CutPrefix(line, failing); ok {
			t.count(why)
			continue
		}
		t.rest += line
	}
	return t
}

func (t *talk) count(why string) {
	if t.failed++; t.failed == 1 {
		t.first = strings.TrimSpace(why)
	}
	if strings.Contains(why, "lock") {
		t.locked++
	}
}

// marks are the places where a job's number stands.
var marks = regexp.MustCompile(`\b(?:job|again|of) (\d+)\b|\bown-(\d+)\.txt`)

// foreign tells whether there is a mark of another job in what belongs to the i-th.
func foreign(i int, text string) bool {
	for _, m := range marks.FindAllStringSubmatch(text, -1) {
		if m[1]+m[2] != strconv.Itoa(i) {
			return true
		}
	}
	return false
}
