package process

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// walled reports whether the run has at least one wall (a restriction of its sandbox). A command
// without walls has all rights of the caller; this package then only keeps the processes of the run
// together.
func (o *order) walled() bool {
	return len(o.Writable) > 0 || len(o.Hidden) > 0 || o.Network != HostNetwork || o.User != nil
}

// uid returns the id of the user that the command runs as.
func (o *order) uid() int {
	if o.User != nil {
		return int(o.User.UID)
	}
	return os.Geteuid()
}

// ownUser reports whether the command runs as another user than its supervisor, and not as root.
func (o *order) ownUser() bool {
	return o.User != nil && o.User.UID != 0 && int(o.User.UID) != os.Geteuid()
}

// exposed returns a hidden path that Landlock cannot hide because the run may write in a directory
// above that path: in Landlock a right over a directory applies to everything in the directory.
func (o *order) exposed() string {
	for _, path := range o.Hidden {
		for _, dir := range o.Writable {
			if strings.HasPrefix(path, dir+"/") {
				return path
			}
		}
	}
	return ""
}

// facts records which means of isolation were applied to a run.
type facts struct {
	sealed     bool // mounts make the file system read-only
	landlock   landlocked
	filtered   bool  // the thread has a filter of system calls
	unfiltered error // the reason why the thread has no filter
	limits     Enforced
}

// survey lists the walls (restrictions of the sandbox) of a run. If the command insists on a wall
// that is missing, survey also returns a report that names the wall.
func survey(o *order, f facts) (Walls, *report) {
	lock := f.landlock
	w := Walls{
		Isolation: o.Isolation, User: uint32(o.uid()), OwnUser: o.ownUser(),
		Network: o.Network, Landlock: lock.abi, Covers: lock.covers(), Limits: f.limits,
	}
	if w.Covers == "" {
		w.Landlock = 0
	}
	contained, closed, hides := o.Isolation != Subreaper, o.Network != HostNetwork, len(o.Hidden) > 0
	w.Seal = joinMeans(mean{f.sealed, byMounts}, mean{
		lock.files&unix.LANDLOCK_ACCESS_FS_TRUNCATE != 0 && len(o.Writable) > 0, byLandlock,
	})
	w.Hidden = joinMeans(mean{hides && contained, byMounts}, mean{
		(hides && !contained && o.exposed() == "" || len(o.loose) > 0) && lock.files != 0, byLandlock,
	})
	if w.Replaceable = o.exempt; lock.files == 0 {
		w.Replaceable = slices.Concat(o.exempt, o.loose)
	}
	w.Apart = joinMeans(mean{contained, byNamespace}, mean{w.OwnUser, byUser}, mean{lock.signals, byLandlock})
	w.Sockets = joinMeans(mean{contained && closed, byNamespace}, mean{lock.sockets, byLandlock})
	// Landlock alone does not close the network, because it does not restrict TCP Fast Open and
	// Multipath TCP.
	if closed && (contained || f.filtered && (o.Network == NoNetwork || lock.tcp)) {
		w.Closed = joinMeans(mean{contained, byNamespace}, mean{f.filtered, byFilter}, mean{lock.tcp, byLandlock})
	}
	lack := missing(o, &w, f)
	return w, lack
}

// mean is a means that can enforce a wall (a restriction of the sandbox), such as mounts. applied
// says whether it enforces the wall in this run.
type mean struct {
	applied bool
	name    string
}

// joinMeans joins the names of the means that were applied.
func joinMeans(all ...mean) string {
	var names []string
	for _, m := range all {
		if m.applied {
			names = append(names, m.name)
		}
	}
	return strings.Join(names, "+")
}

// missing returns a report on the first required wall (restriction of the sandbox) that is missing;
// nil if no required wall is missing.
func missing(o *order, w *Walls, f facts) *report {
	insist := o.Insist
	if o.Network != HostNetwork && w.Closed == "" {
		insist = append(insist[:len(insist):len(insist)], WallNetwork)
	}
	for _, wall := range insist {
		if !w.has(wall, o.Limits) {
			return &report{Event: unwalled, Wall: wall, Text: lacking(o, w, f, wall)}
		}
	}
	return nil
}

// lacking returns the reason why a wall (a restriction of the sandbox) is missing.
func lacking(o *order, w *Walls, f facts, wall Wall) string {
	kernel := "the kernel has no Landlock"
	if f.landlock.abi > 0 {
		kernel = fmt.Sprintf("Landlock %d of this kernel is too old", f.landlock.abi)
	}
	switch wall {
	case WallUser:
		if o.User == nil {
			return "the command has no user of its own"
		}
		return fmt.Sprintf("user %d is root or this process's own", o.User.UID)
	case WallSeal:
		if len(o.Writable) == 0 {
			return "no directories were named to which the command's writes are restricted"
		}
		if o.Isolation == Subreaper {
			return "there is no mount namespace, and " + kernel
		}
		return "the kernel is older than 5.12, or the root directory is no mount, and " + kernel
	case WallHidden:
		if len(o.Hidden) == 0 {
			return "no path was named that is to be hidden"
		}
		if path := o.exposed(); path != "" {
			return fmt.Sprintf("there is no mount namespace, and %s is below a directory in which the command may "+
				"write", path)
		}
		return "there is no mount namespace, and " + kernel
	case WallNetwork:
		switch {
		case o.Network == HostNetwork:
			return "the command has the network of the machine"
		case w.Closed == "" && f.unfiltered != nil:
			return "there is no network namespace, and " + f.unfiltered.Error()
		case w.Closed == "" && !f.filtered:
			return "there is no network namespace, and no filter of system calls"
		}
		return "there is no network namespace, and " + kernel
	case WallLimits:
		if o.Limits == (Limits{}) {
			return "the command has no limits"
		}
		return "nothing enforces one of the limits: " + f.limits.describe(o.Limits)
	case WallApart:
		return "there is no PID namespace, the command has no user of its own, and " + kernel
	}
	return "it is unknown"
}
