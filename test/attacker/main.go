//go:build linux

// Command attacker runs as a job, and tries to escape the sandbox. It reads a spec as JSON from its
// standard input and writes two JSON lines for each attack, before and after it:
//
//	{"attack":"ptrace","outcome":"trying"}
//	{"attack":"ptrace","outcome":"closed","detail":"operation not permitted"}
//
// If the last line of an attack is "trying", the attack ended the job. No attack destroys anything:
// a process that could be killed gets a harmless signal, and a file that could be overwritten is
// opened and closed again. The exceptions are the job's own supervisor, and the memory, processes
// and disk that a job may use.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"
)

// spec lists the attacks to try and their targets.
type spec struct {
	Try []string `json:"try"`
	// a word in the arguments of processes that an attack leaves behind, and in texts that an
	// attack sends
	Token string `json:"token"`

	Belay  []int             `json:"belay"` // processes of the server and of its worker
	Files  map[string]string `json:"files"` // files that only the server's user may read, by the name of the attack
	Port   string            `json:"port"`
	Socket string            `json:"socket"`
	Base   string            `json:"base"`   // the directory of the base clones
	Engine string            `json:"engine"` // a socket like that of a container engine
	Bus    string            `json:"bus"`    // a socket of a service that checks the user of its callers
	SetUID string            `json:"setuid"` // a set-user-id program of root that prints its user

	VictimPID    int    `json:"victim_pid"`
	VictimDir    string `json:"victim_dir"`
	VictimTmp    string `json:"victim_tmp"`
	VictimSocket string `json:"victim_socket"`

	Outside []string `json:"outside"` // files that must not be created
	TCP     string   `json:"tcp"`
	UDP     string   `json:"udp"`

	Private string   `json:"private"` // a git repository that only the server's user may read
	Witness string   `json:"witness"` // a program that writes a note when it runs
	Halves  []string `json:"halves"`  // the two halves of a credential
	Length  int      `json:"length"`  // the length of the secret

	Processes int   `json:"processes"`
	Memory    int64 `json:"memory"`
	Disk      int64 `json:"disk"`
	Inodes    int   `json:"inodes"`
}

// line is one line of output about an attack.
type line struct {
	Attack  string `json:"attack"`
	Outcome string `json:"outcome"` // trying, open or closed
	Detail  string `json:"detail,omitempty"`
}

// attack tries one attack. It returns how the attack succeeded, or the error that prevented it.
type attack func(s *spec) (string, error)

var attacks = map[string]attack{
	"database": readFile("database"), "secret": readFile("secret"), "config": readFile("config"),
	"ssh": readFile("ssh"), "rotated": readRotated,
	"environ": environ, "peek": peek, "descriptors": descriptors, "ptrace": ptrace, "signal": signalBelay,
	"port": port, "socket": socket, "engine": engine, "bus": bus,
	"victim-files": victimFiles, "victim-tmp": victimTmp, "victim-process": victimProcess, "abstract": abstract,
	"mount": mount, "userns": userNamespace, "outside": outside, "base": base, "setuid": setUID,
	"tcp": tcp, "udp": udp,
	"processes": processes, "memory": memory, "disk": disk, "inodes": inodes,
	"daemon": daemon, "supervisor": supervisor,
	"victim": victim, "work": work,
	"swap-repo": swapRepo, "loot": loot, "lend": lend, "borrow": borrow, "credential": credential, "sparse": sparse,
}

// roles are the other functions of this program. The program starts itself again to run one of them
// in a process of its own.
var roles = map[string]func(args []string) error{
	"nap": nap, "hog": hog, "detach": detach, "mount": mountInside, "euid": euid,
}

func main() {
	var err error
	if len(os.Args) > 1 {
		role := roles[os.Args[1]]
		if role == nil {
			fmt.Fprintln(os.Stderr, "attacker: no role", os.Args[1])
			os.Exit(2)
		}
		err = role(os.Args[2:])
	} else {
		err = try()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

func try() error {
	var s spec
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return err
	}
	say := json.NewEncoder(os.Stdout)
	for _, name := range s.Try {
		a := attacks[name]
		if a == nil {
			return fmt.Errorf("there is no attack %q", name)
		}
		if err := say.Encode(line{Attack: name, Outcome: "trying"}); err != nil {
			return err
		}
		l := line{Attack: name, Outcome: "open"}
		var err error
		if l.Detail, err = a(&s); err != nil {
			l.Outcome, l.Detail = "closed", err.Error()
		}
		if err := say.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// errNothing means that there was no target.
var errNothing = errors.New("no target of this kind is visible")

// again returns a command that starts this program in another role.
func again(args ...string) *exec.Cmd {
	return exec.Command("/proc/self/exe", args...) //nolint:noctx // the job's end must end the process
}

// most is the time after which a process that an attack leaves behind ends by itself.
const most = 10 * time.Minute

// nap sleeps for the duration of the constant most.
func nap([]string) error {
	time.Sleep(most)
	return nil
}

// euid prints the effective user id of its process.
func euid([]string) error {
	_, err := fmt.Fprintln(os.Stdout, os.Geteuid())
	return err
}

// victim is not an attack: it is the job that the other jobs attack, and it waits until the test
// cancels it.
func victim(s *spec) (string, error) {
	if err := os.WriteFile("mine.txt", []byte("mine\n"), 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(os.Getenv("TMPDIR")+"/mine.txt", []byte("mine\n"), 0o600); err != nil {
		return "", err
	}
	if _, err := listenAbstract(s.VictimSocket); err != nil {
		return "", err
	}
	child := again("nap", s.Token)
	child.Env = []string{canary + "=victim"}
	if err := child.Start(); err != nil {
		return "", err
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	// The test reads this line while the job runs.
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"dir": dir, "tmp": os.Getenv("TMPDIR")}); err != nil {
		return "", err
	}
	return "", child.Wait()
}

// work is not an attack: it runs git in a repository, as ordinary jobs do.
func work(*spec) (string, error) {
	for _, args := range [][]string{
		{"status"}, {"log", "-1"}, {"config", "user.email", "job@example.org"}, {"config", "user.name", "job"},
		{"commit", "--allow-empty", "-qm", "work"}, {"stash"}, {"tag", "here"}, {"gc", "-q"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil { //nolint:noctx // a short command
			return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return "git worked", os.WriteFile("new.txt", []byte("new\n"), 0o600)
}

// canary is an environment variable that the server and other processes have, and the attacker does
// not have.
const canary = "BELAY_WALLS_CANARY"

// isBelay reports whether a pid belongs to a Belay process, and not to another process that has the
// same number in this PID namespace.
func isBelay(pid int) bool {
	args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	return slices.ContainsFunc([]string{"serve", "worker"}, func(word string) bool { return containsWord(args, word) })
}

// belays returns the pids of the Belay processes that /proc shows.
func (s *spec) belays() (seen []int) {
	for _, pid := range s.Belay {
		if isBelay(pid) {
			seen = append(seen, pid)
		}
	}
	return seen
}
