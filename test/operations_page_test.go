package test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Rule: every command, flag and metric in docs/operations.md exists.
func TestTheOperationsPage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	page := read(t, "../docs/operations.md")
	flags := make(map[string][]string)
	lines := 0
	commands := regexp.MustCompile("(?:`|(?m:^)|/)belay ([a-z]+(?: (?:open|close|auto|set|rm|cordon|uncordon|requeue|discard)\\b)?)" +
		"((?: [^`\n#]*)?)")
	for _, m := range commands.FindAllStringSubmatch(page, -1) {
		command := m[1]
		if flags[command] == nil {
			flags[command] = p.flagsOf(strings.Fields(command)...)
		}
		for _, f := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(flags[command], f[1]) {
				t.Errorf("belay %s has no flag --%s", command, f[1])
			}
		}
		lines++
	}
	if lines < 15 {
		t.Errorf("only %d command lines were found", lines)
	}
	told := read(t, "../docs/configuration.md")
	metrics := regexp.MustCompile(`\bbelay_[a-z_]+`).FindAllString(page, -1)
	for _, name := range metrics {
		if name = regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(name, ""); !strings.Contains(told, "`"+name+"`") {
			t.Errorf("there is no metric %s", name)
		}
	}
	if len(metrics) < 8 {
		t.Errorf("only %d metrics were found", len(metrics))
	}
}
