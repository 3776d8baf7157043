package test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table in docs/agents.md stands between these lines.
const (
	tableBegin = "<!-- walls: begin -->"
	tableEnd   = "<!-- walls: end -->"
)

// findings are the results of the attacks in all modes of the sandbox.
type findings struct {
	// through says whether an attack succeeded, by mode, attack, and command (serve or worker).
	through map[string]map[string]map[string]bool
	held    map[string]string // the description of the sandbox in the log, by mode
}

func (f findings) note(mode, attack, kind string, through bool) {
	if f.through[mode] == nil {
		f.through[mode] = map[string]map[string]bool{}
	}
	if f.through[mode][attack] == nil {
		f.through[mode][attack] = map[string]bool{}
	}
	f.through[mode][attack][kind] = through
}

// machine returns a description of the machine on which the test runs.
func machine() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	version := strings.SplitN(string(release), ".", 3)
	groups := "1"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		groups = "2"
	}
	who := "another user"
	if os.Geteuid() == 0 {
		who = "root"
	}
	return fmt.Sprintf("Found by %s on Linux %s with cgroups of version %s.", who,
		strings.Join(version[:min(2, len(version))], "."), groups)
}

// cell returns the text of a cell: "closed"; or "open", with the command if the attack succeeded
// under serve or worker only; or "" if the attack was not tried under both commands.
func (f findings) cell(mode, attack string) string {
	kinds, both := f.through[mode][attack], []string{"serve", "worker"}
	var open []string
	for _, kind := range both {
		if kinds[kind] {
			open = append(open, kind)
		}
	}
	switch {
	case len(kinds) < len(both):
		return ""
	case len(open) == 0:
		return "closed"
	case len(open) == len(kinds):
		return "**open**"
	}
	return "**open** (" + open[0] + ")"
}

// table renders the table and the list of sandboxes below it. Where this run has no result, it
// keeps the text of the old table.
func (f findings) table(t *testing.T, old string) string {
	t.Helper()
	had := cells(old)
	var b strings.Builder
	b.WriteString("| a job that tries to …")
	for _, m := range modes {
		b.WriteString(" | " + m.title)
	}
	b.WriteString(" |\n|---" + strings.Repeat("|---", len(modes)) + "|\n")
	for _, w := range walls {
		if !w.there(t) {
			continue
		}
		b.WriteString("| " + w.doc)
		for _, m := range modes {
			cell := f.cell(m.name, w.attack+w.config)
			if cell == "" {
				cell = had[w.doc][m.title]
			}
			if cell == "" {
				cell = "not tried"
			}
			b.WriteString(" | " + cell)
		}
		b.WriteString(" |\n")
	}
	fmt.Fprintf(&b, "\n%s Jobs ran in these sandboxes:\n\n", machine())
	for _, m := range modes {
		line := "* " + m.title + ": "
		by := f.held[m.name]
		if by == "" {
			_, by, _ = strings.Cut(old, line)
			by, _, _ = strings.Cut(by, "\n")
		}
		b.WriteString(line + by + "\n")
	}
	return b.String()
}

// cells parses a table: by row, then by column.
func cells(table string) map[string]map[string]string {
	all := map[string]map[string]string{}
	var titles []string
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		fields := strings.Split(strings.Trim(line, "| "), " | ")
		if titles == nil {
			titles = fields[1:]
			continue
		}
		row := map[string]string{}
		for i, cell := range fields[1:] {
			if i < len(titles) {
				row[titles[i]] = cell
			}
		}
		all[fields[0]] = row
	}
	return all
}

// compare compares have, the table in the docs, with found, the table that the test made. If both
// tables come from the same kind of machine, all differences are faults. Otherwise only an attack
// that succeeds although the docs say that it does not is a fault; the list others then has all
// other differences.
func compare(have, found string) (faults, others []string) {
	const again = "; write it anew: go test ./test -run TestWalls -args -update"
	before, now := cells(have), cells(found)
	for _, w := range walls {
		for _, m := range modes {
			says, is := before[w.doc][m.title], now[w.doc][m.title]
			switch {
			case says == is:
			case strings.Contains(is, "open") && says == "closed":
				faults = append(faults, fmt.Sprintf(
					"docs/agents.md says that %q is closed as %s, and a job got through: %s", w.doc, m.title, is))
			default:
				others = append(others, fmt.Sprintf("docs/agents.md says %q of %q as %s, and the test found %q%s", says,
					w.doc, m.title, is, again))
			}
		}
	}
	if len(faults)+len(others) == 0 && strings.TrimSpace(have) != strings.TrimSpace(found) {
		others = append(others, "the part of docs/agents.md between the marks of the walls differs in its rows, or "+
			"in the sandboxes of jobs"+again)
	}
	if strings.Contains(have, machine()) || !strings.Contains(have, "Found by ") {
		return append(faults, others...), nil
	}
	return faults, others
}

// Rule: compare finds an attack that succeeds although the docs call its wall closed, an attack
// that fails although the docs call its wall open, and a missing row. It ignores attacks that were
// not tried. If the docs' table comes from another kind of machine, only an attack of the first
// kind is a fault.
func TestTheTableOfWallsIsCompared(t *testing.T) {
	all := func(through bool) findings {
		f := findings{through: map[string]map[string]map[string]bool{}, held: map[string]string{}}
		for _, m := range modes {
			f.held[m.name] = "a wall"
			for _, w := range walls {
				f.note(m.name, w.attack+w.config, "serve", through)
				f.note(m.name, w.attack+w.config, "worker", through)
			}
		}
		return f
	}
	closed, open := all(false).table(t, ""), all(true).table(t, "")
	rows := strings.Count(closed, " closed | closed |") / 2
	worse := all(false)
	worse.note("bare", "ptrace", "worker", true)
	partly := all(false)
	delete(partly.through, "users")
	delete(partly.held, "users")
	elsewhere := func(table string) string {
		return strings.Replace(table, "Found by ", "Found by another user, not ", 1)
	}
	for name, tt := range map[string]struct {
		have, found    string
		faults, others int
		says           string
	}{
		"the same":        {"\n" + closed, closed, 0, 0, ""},
		"nothing yet":     {"", closed, len(modes) * rows, 0, "-update"},
		"another row":     {closed + "| fly | closed |\n", closed, 1, 0, "differs in its rows"},
		"another sandbox": {strings.Replace(closed, "a wall", "a fence", 1), closed, 1, 0, "the sandboxes of jobs"},
		"worse": {
			closed, worse.table(t, closed), 1, 0,
			"is closed as another user, no user namespaces, and a job got through: **open** (worker)",
		},
		"better":             {worse.table(t, ""), closed, 1, 0, "-update"},
		"partly":             {open, partly.table(t, open), 3 * rows, 0, "-update"},
		"worse elsewhere":    {elsewhere(closed), worse.table(t, closed), 1, 0, "a job got through"},
		"better elsewhere":   {elsewhere(worse.table(t, "")), closed, 0, 1, ""},
		"the same elsewhere": {elsewhere(closed), closed, 0, 1, ""},
	} {
		faults, others := compare(tt.have, tt.found)
		if len(faults) != tt.faults || len(others) != tt.others || !strings.Contains(strings.Join(faults, "\n"),
			tt.says) {
			t.Errorf("%s: %d faults, %d others:\n%s\n%s", name, len(faults), len(others), strings.Join(faults, "\n"),
				strings.Join(others, "\n"))
		}
	}
}
