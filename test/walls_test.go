package test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write the table of walls in docs/agents.md as it was found")

// mode is a way in which jobs are sandboxed, and a column of the table.
type mode struct {
	name, title string
	config      string // the lines of the configuration below agent:
	user        bool   // the server runs as a user other than root
	bare        bool   // the server runs where no process can make a user namespace
	// texts in the log by which a test recognizes the mode; the log contains one of them if the
	// machine has the mode
	says []string
}

var modes = []mode{
	{name: "users", title: "root, own users", says: []string{"user 18"}},
	{name: "none", title: "root, `agent.users: none`", config: "  users: none\n", says: []string{"pid namespace"}},
	{name: "userns", title: "another user", user: true, says: []string{"user and pid namespace"}},
	{name: "bare", title: "another user, no user namespaces", user: true, bare: true, says: []string{"subreaper"}},
}

// wall is an attack that the sandbox prevents, and a row of the table.
type wall struct {
	attack string
	doc    string
	judge  string // the name of the check in judges; if it is empty, the last line that the attacker printed decides
	// a setting with which the test tries the attack separately; the table omits this row if the
	// version of belay lacks the setting
	config string
}

// there reports whether this version of belay has the wall's setting.
func (w wall) there(t *testing.T) bool {
	key, _, _ := strings.Cut(w.config, ":")
	return w.config == "" || has(t, "agent."+key)
}

// walls are the rows in the order of the table.
var walls = []wall{
	{attack: "database", doc: "read the database"},
	{attack: "secret", doc: "read a file that only the server's user may read, such as a secret"},
	{attack: "rotated", doc: "read the credential of a repository, which is replaced while the job runs"},
	{attack: "config", doc: "read the configuration (mode 0600)"},
	{attack: "ssh", doc: "read `~/.ssh` of the server's user"},
	{attack: "environ", doc: "read the environment of the server"},
	{attack: "peek", doc: "read the memory of the server"},
	{attack: "descriptors", doc: "take open files of the server"},
	{attack: "ptrace", doc: "trace the server"},
	{attack: "signal", doc: "kill the server"},
	{attack: "supervisor", doc: "kill its own supervisor", judge: "ended"},
	{attack: "daemon", doc: "leave a process behind", judge: "left behind"},
	{attack: "port", doc: "be administrator on the server's port, without a key"},
	{attack: "socket", doc: "be administrator on `belay.sock`"},
	{attack: "engine", doc: "reach the socket of a container engine that the server's user may use", judge: "engine"},
	{attack: "bus", doc: "pass for the server's user at a service in `/run`, such as D-Bus or PostgreSQL",
		judge: "bus"},
	{attack: "victim-files", doc: "read or write the workspace of another job"},
	{attack: "victim-tmp", doc: "read the temporary files of another job"},
	{attack: "victim-process", doc: "see or signal the processes of another job"},
	{attack: "abstract", doc: "reach an abstract socket of another job"},
	{attack: "outside", doc: "write outside of its workspace", judge: "outside"},
	{attack: "base", doc: "change the objects from which other jobs are made"},
	{attack: "mount", doc: "mount, or make writable what is read-only"},
	{attack: "userns", doc: "make a user namespace, and be root in it"},
	{attack: "setuid", doc: "become root by a set-user-id program"},
	{attack: "processes", doc: "have more processes than `agent.max_processes`"},
	{attack: "memory", doc: "take more than `agent.max_memory` in several processes"},
	{attack: "disk", doc: "take more than `agent.max_disk` in files without a name"},
	{attack: "inodes", doc: "make any number of files"},
	{attack: "tcp", doc: "reach a TCP port of this machine", judge: "tcp"},
	{attack: "udp", doc: "reach a UDP port of this machine", judge: "udp"},
	{attack: "tcp", doc: "reach a TCP port with `agent.egress: none`", judge: "tcp", config: "egress: none"},
	{attack: "udp", doc: "reach a UDP port with `agent.egress: none`", judge: "udp", config: "egress: none"},
	{attack: "port", doc: "reach the server's port with `agent.egress: none`", config: "egress: none"},
}

// Rule: docs/agents.md says for each wall, in each mode, whether a job gets through the wall, and a
// job that tries gets the same result. This command writes the table again:
//
//	go test ./test -run TestWalls -args -update
//
// On a machine that does not have a mode, the test does not check the column of that mode. On
// another kind of machine than the machine on which the table was made, every wall that the docs
// call closed has to be closed; a wall that is open in the docs and closed on the machine is no
// fault.
func TestWalls(t *testing.T) {
	found := findings{through: map[string]map[string]map[string]bool{}, held: map[string]string{}}
	var mu sync.Mutex
	t.Run("storm", func(t *testing.T) {
		for _, m := range modes {
			for _, kind := range []string{"serve", "worker"} {
				t.Run(m.name+"-"+kind, func(t *testing.T) {
					t.Parallel()
					open, held := attackAll(t, m, kind)
					mu.Lock()
					defer mu.Unlock()
					found.held[m.name] = held
					for attack, through := range open {
						found.note(m.name, attack, kind, through)
					}
				})
			}
		}
	})
	if t.Failed() {
		return
	}
	path := filepath.Join("..", "docs", "agents.md")
	page := readAll(t, path)
	before, rest, ok := strings.Cut(page, tableBegin)
	old, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %s and %s", path, tableBegin, tableEnd)
	}
	table := found.table(t, old)
	if *update {
		if err := os.WriteFile(path, []byte(before+tableBegin+"\n"+table+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	faults, others := compare(old, table)
	for _, fault := range faults {
		t.Error(fault)
	}
	for _, other := range others {
		t.Log(other)
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
