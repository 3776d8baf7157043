package process

import (
	"fmt"
	"slices"
	"strings"
)

// Wall is one restriction that isolates a run; the package documentation describes the walls. If a
// Command insists on a wall that is not available, the command is not started.
type Wall string

// The names of the walls (restrictions of the sandbox).
const (
	// WallUser: the run has its own user, which is neither root nor this process's user.
	WallUser Wall = "own user"
	// WallSeal: the run can write only in Writable and Tmp.
	WallSeal Wall = "seal"
	// WallHidden: the run cannot read any file in Hidden.
	WallHidden Wall = "hidden"
	// WallNetwork: the run can reach only the Network that the command sets, and cannot connect to
	// abstract sockets of other processes.
	WallNetwork Wall = "network"
	// WallLimits: this machine enforces every limit in Limits.
	WallLimits Wall = "limits"
	// WallApart: the run can neither signal nor read a process outside the run, such as its
	// supervisor or this process.
	WallApart Wall = "apart"
)

var allWalls = []Wall{WallUser, WallSeal, WallHidden, WallNetwork, WallLimits, WallApart}

// WallError means that this machine cannot provide a wall (a restriction of the sandbox) on which a
// command insists. The command was not started.
type WallError struct {
	Wall      Wall
	Isolation Isolation
	Reason    string
}

func (e *WallError) Error() string {
	return fmt.Sprintf("the wall %q is not available with %s: %s", e.Wall, e.Isolation, e.Reason)
}

// The names of the means that enforce a wall (a restriction of the sandbox).
const (
	byMounts    = "mounts"
	byLandlock  = "landlock"
	byNamespace = "namespace"
	byFilter    = "filter"
	byUser      = "user"
)

// Walls lists the walls (restrictions) that isolate a run, each with the means that enforce it:
// "mounts" (in a mount namespace), "landlock", "namespace" (of processes or of the network),
// "filter" (of system calls) or "user". Several means are joined by "+". A missing wall has an
// empty string.
type Walls struct {
	Isolation Isolation `json:"isolation"`
	// User is the id of the user that the run runs as. OwnUser says that no other run has that
	// user.
	User    uint32 `json:"user"`
	OwnUser bool   `json:"own_user"`
	Seal    string `json:"seal,omitempty"`
	Hidden  string `json:"hidden,omitempty"`
	// Replaceable lists the secrets that are hidden only until someone replaces them.
	Replaceable []string `json:"replaceable,omitempty"`
	// Network is the network that the command requested. Closed names the means that restrict the
	// run to that network.
	Network Network `json:"network"`
	Closed  string  `json:"closed,omitempty"`
	// Apart names the means that protect processes outside the run from signals and debuggers of
	// the run. Sockets names the means that prevent connections of the run to abstract unix sockets
	// of other processes.
	Apart   string `json:"apart,omitempty"`
	Sockets string `json:"sockets,omitempty"`
	// Landlock is the version of the kernel's Landlock interface that the run uses; 0 for none.
	// Covers lists the accesses that Landlock restricts: "files", "tcp", "signals", "sockets".
	Landlock int      `json:"landlock"`
	Covers   string   `json:"covers,omitempty"`
	Limits   Enforced `json:"limits"`
}

// Open lists in words the accesses that the run still has and that a reader may not expect.
func (w *Walls) Open() (open []string) {
	say := func(yes bool, format string, args ...any) {
		if yes {
			open = append(open, fmt.Sprintf(format, args...))
		}
	}
	who := fmt.Sprintf("user %d", w.User)
	say(w.Seal == "", "files that %s may write", who)
	say(w.Seal == byLandlock, "modes, owners and times of the files of %s", who)
	say(w.Hidden == "", "files that %s may read", who)
	say(len(w.Replaceable) > 0, "new files in place of hidden ones, if %s may read them: %s", who,
		strings.Join(w.Replaceable, ", "))
	say(w.Hidden == byLandlock, "sizes and times of hidden files whose names are known, and unix sockets among them")
	say(w.Network == HostNetwork, "the network of the machine")
	say(w.Network == ProxiedNetwork && !strings.Contains(w.Closed, byNamespace),
		"the TCP port of the proxy on other machines")
	say(w.Apart == "", "signals to the processes of %s, and their memory where they are dumpable", who)
	say(w.Apart == byLandlock, "the priority and the processors of the processes of %s", who)
	say(w.Sockets == "", "abstract unix sockets")
	say(w.Limits.Memory == byRlimit, "memory: each process has its own limit, and files in memory have none")
	say(true, "unix sockets in directories that are not hidden, where their owners let %s", who)
	return open
}

// has reports whether a wall (a restriction of the sandbox) was applied.
func (w *Walls) has(wall Wall, l Limits) bool {
	switch wall {
	case WallUser:
		return w.OwnUser
	case WallSeal:
		return w.Seal != ""
	case WallHidden:
		return w.Hidden != ""
	case WallNetwork:
		return w.Network != HostNetwork && w.Closed != "" && w.Sockets != ""
	case WallLimits:
		return l != (Limits{}) && !slices.Contains([]string{
			w.Limits.Pids, w.Limits.Memory, w.Limits.CPU, w.Limits.FileSize,
		}, Unenforced)
	case WallApart:
		return w.Apart != ""
	}
	return false
}

// describe describes in one line the isolation of a run.
func (w *Walls) describe() string {
	parts := []string{string(w.Isolation), "no new privileges"}
	if w.OwnUser {
		parts = append(parts, fmt.Sprintf("user %d", w.User))
	}
	switch {
	case w.Closed == "":
	case w.Network == NoNetwork:
		parts = append(parts, "no network by "+w.Closed)
	default:
		parts = append(parts, "a proxied network by "+w.Closed)
	}
	if w.Hidden != "" {
		parts = append(parts, "hidden by "+w.Hidden)
	}
	switch w.Seal {
	case "":
	case byLandlock:
		parts = append(parts, "read-only but for its own directories by Landlock alone")
	default:
		parts = append(parts, "read-only but for its own directories")
	}
	return strings.Join(parts, "; ")
}

// landlocked describes in words the restrictions of Landlock.
func (w *Walls) landlocked() string {
	if w.Landlock == 0 {
		return "no Landlock"
	}
	return fmt.Sprintf("Landlock %d (%s)", w.Landlock, strings.ReplaceAll(w.Covers, "+", ", "))
}
