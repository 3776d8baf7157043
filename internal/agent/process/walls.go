package process

import (
	"fmt"
	"slices"
	"strings"
)

// Wall is something that keeps a run apart, on which a Command can insist.
type Wall string

// The walls.
const (
	// WallUser: the run has a user of its own, who is neither root nor this process's.
	WallUser Wall = "own user"
	// WallSeal: it writes nowhere but in Writable and Tmp.
	WallSeal Wall = "seal"
	// WallHidden: it reads nothing of what is Hidden.
	WallHidden Wall = "hidden"
	// WallNetwork: it reaches what Network says, and no abstract socket of others.
	WallNetwork Wall = "network"
	// WallLimits: each of its Limits is kept.
	WallLimits Wall = "limits"
	// WallApart: it can neither signal nor read a process outside of the run, its
	// supervisor and this process among them.
	WallApart Wall = "apart"
)

var allWalls = []Wall{WallUser, WallSeal, WallHidden, WallNetwork, WallLimits, WallApart}

// WallError means that a command was not started because a wall on which it insists is
// not to be had here.
type WallError struct {
	Wall      Wall
	Isolation Isolation
	Reason    string
}

func (e *WallError) Error() string {
	return fmt.Sprintf("the wall %q is not to be had with %s: %s", e.Wall, e.Isolation, e.Reason)
}

// The means of a wall.
const (
	byMounts    = "mounts"
	byLandlock  = "landlock"
	byNamespace = "namespace"
	byFilter    = "filter"
	byUser      = "user"
)

// Walls says what keeps a run apart, and by which means: "mounts" (in a mount
// namespace), "landlock", "namespace" (of processes or of the network), "filter" (of
// system calls) or "user", several of them joined by "+". A wall that is not there has
// no means.
type Walls struct {
	Isolation Isolation `json:"isolation"`
	// User is whom the run runs as, and OwnUser tells that nobody else does.
	User    uint32 `json:"user"`
	OwnUser bool   `json:"own_user"`
	Seal    string `json:"seal,omitempty"`
	Hidden  string `json:"hidden,omitempty"`
	// Network is what was asked for, and Closed what keeps it.
	Network Network `json:"network"`
	Closed  string  `json:"closed,omitempty"`
	// Apart keeps processes outside of the run from its signals and its debuggers, and
	// Sockets the abstract unix sockets of others from its connections.
	Apart   string `json:"apart,omitempty"`
	Sockets string `json:"sockets,omitempty"`
	// Landlock is the version of the kernel's interface that is made use of, 0 for none,
	// and Covers what it restricts: "files", "tcp", "signals", "sockets".
	Landlock int      `json:"landlock"`
	Covers   string   `json:"covers,omitempty"`
	Limits   Enforced `json:"limits"`
}

// Open says in words what is open to the run that one might take for closed.
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

// has reports whether a wall stands.
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

// describe says in one line what holds a run.
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

// landlocked says in words what Landlock does.
func (w *Walls) landlocked() string {
	if w.Landlock == 0 {
		return "no Landlock"
	}
	return fmt.Sprintf("Landlock %d (%s)", w.Landlock, strings.ReplaceAll(w.Covers, "+", ", "))
}
