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

// pauses is how often a job waits for its model.
const pauses = 4

// None is the prompt of a job that does nothing.
const None = "none"

// Agent returns the command of all agents. The prompt that takes the place of {{prompt}} is the
// number of a job, or None. A job waits for its model for the duration think in total. The command
// contains the script itself and not the path of a file in /tmp, because a job sees only its own
// files in /tmp.
func Agent(think time.Duration) []string {
	return []string{"sh", "-ec", script, "agent", fmt.Sprintf("%.3f", (think / pauses).Seconds()), "{{prompt}}"}
}

// Settings describes, for the report, how long a job waits.
func Settings(think time.Duration) string {
	return fmt.Sprintf("each job waits %d × %s for its model", pauses, think/pauses)
}

// changed are the files that every job edits, in addition to a file of its own.
var changed = []string{"bufio/bufio.go", "fmt/print.go", "os/file.go", "shared.txt", "strings/strings.go"}

// agentOutput is the parsed output of an agent.
type agentOutput struct {
	failed int    // git commands that failed
	locked int    // git commands that failed because of a lock
	first  string // the first git command that failed, with the reason
	rest   string // all other lines: the text that the job has read
}

const failing = "failed: "

// parseOutput parses the output of an agent.
func parseOutput(said string) (t agentOutput) {
	for line := range strings.Lines(said) {
		if why, ok := strings.CutPrefix(line, failing); ok {
			t.count(why)
			continue
		}
		t.rest += line
	}
	return t
}

func (t *agentOutput) count(why string) {
	if t.failed++; t.failed == 1 {
		t.first = strings.TrimSpace(why)
	}
	if strings.Contains(why, "lock") {
		t.locked++
	}
}

// marks matches the texts in which the script writes the number of a job.
var marks = regexp.MustCompile(`\b(?:job|again|of) (\d+)\b|\bown-(\d+)\.txt`)

// foreign reports whether the text, which belongs to the i-th job, contains the number of another
// job.
func foreign(i int, text string) bool {
	for _, m := range marks.FindAllStringSubmatch(text, -1) {
		if m[1]+m[2] != strconv.Itoa(i) {
			return true
		}
	}
	return false
}
