package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/host"
)

// The limits of the registry.
const (
	// MaxWorkflows is how many workflows can be registered at a time.
	MaxWorkflows = 1000
	// MaxName is the length of the longest name and of the longest recipe, in bytes.
	MaxName = 200
	// MaxTTL is the longest TTL.
	MaxTTL = 30 * 24 * time.Hour
	// DefaultTTL is the TTL of a registration that names none.
	DefaultTTL = 5 * time.Minute
)

// Workflow is an entry of the registry: a program that uses the resource.
type Workflow struct {
	// Name is unique among the entries that are not dead.
	Name string
	// Recipe is the mode of the resource that the workflow needs, such as the name of a model.
	Recipe string
	// Owner is the process on whose life the entry depends.
	Owner Process
	// StartedAt is when the workflow registered, and LastRenewedAt when its owner renewed the entry
	// last, by the system time.
	StartedAt, LastRenewedAt time.Time
	// TTL is how long the entry lives without a renewal.
	TTL time.Duration
	// Preemptible says that the workflow yields when its signal file exists.
	Preemptible bool
	// PreemptSignalPath is the absolute path of the signal file; "" if the workflow is not
	// preemptible.
	PreemptSignalPath string

	// renewedBoot is the reading of CLOCK_BOOTTIME at the last renewal, in the boot of the owner; 0
	// if it is not known.
	renewedBoot time.Duration
	// file is the id of the state file in which the workflow has registered; "" if it is not known.
	file string
}

// entry is the JSON form of a Workflow.
type entry struct {
	Name              string    `json:"name"`
	Recipe            string    `json:"recipe"`
	OwnerPID          int       `json:"owner_pid"`
	OwnerStartNS      uint64    `json:"owner_start_ns"`
	OwnerBootID       string    `json:"owner_boot_id,omitempty"`
	OwnerPIDNamespace uint64    `json:"owner_pid_namespace,omitempty"`
	StartedAt         time.Time `json:"started_at"`
	LastRenewedAt     time.Time `json:"last_renewed_at"`
	LastRenewedBootNS int64     `json:"last_renewed_boot_ns,omitempty"`
	TTLSeconds        float64   `json:"ttl_seconds"`
	Preemptible       bool      `json:"preemptible"`
	PreemptSignalPath string    `json:"preempt_signal_path,omitempty"`
}

// MarshalJSON returns the form that docs/registry.md describes.
func (w Workflow) MarshalJSON() ([]byte, error) { return w.entry().append(nil) }

func (w Workflow) entry() entry {
	return entry{
		Name: w.Name, Recipe: w.Recipe, OwnerPID: w.Owner.PID, OwnerStartNS: w.Owner.StartNS,
		OwnerBootID: w.Owner.BootID, OwnerPIDNamespace: w.Owner.PIDNamespace, StartedAt: w.StartedAt.UTC(),
		LastRenewedAt: w.LastRenewedAt.UTC(), LastRenewedBootNS: int64(w.renewedBoot), TTLSeconds: w.TTL.Seconds(),
		Preemptible: w.Preemptible, PreemptSignalPath: w.PreemptSignalPath,
	}
}

// UnmarshalJSON reads the form that docs/registry.md describes.
func (w *Workflow) UnmarshalJSON(data []byte) error {
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	*w = e.workflow()
	return nil
}

func (e entry) workflow() Workflow {
	return Workflow{
		Name: e.Name, Recipe: e.Recipe, Owner: Process{e.OwnerPID, e.OwnerStartNS, e.OwnerBootID, e.OwnerPIDNamespace},
		StartedAt: e.StartedAt, LastRenewedAt: e.LastRenewedAt, TTL: seconds(e.TTLSeconds), Preemptible: e.Preemptible,
		PreemptSignalPath: e.PreemptSignalPath, renewedBoot: time.Duration(e.LastRenewedBootNS),
	}
}

// append appends the JSON form of the entry. It is written by hand because it takes most of the time
// in which the registry is locked; package json needs three times as long.
func (e entry) append(data []byte) ([]byte, error) {
	var failed error
	text := func(name, value string) {
		quoted, err := json.Marshal(value)
		failed = errors.Join(failed, err)
		data = append(append(append(append(data, '"'), name...), `":`...), quoted...)
		data = append(data, ',')
	}
	number := func(name string, value uint64) {
		data = append(append(append(data, '"'), name...), `":`...)
		data = append(strconv.AppendUint(data, value, 10), ',')
	}
	moment := func(name string, value time.Time) {
		data = append(append(append(data, '"'), name...), `":"`...)
		data = append(value.UTC().AppendFormat(data, time.RFC3339Nano), `",`...)
	}
	data = append(data, '{')
	text("name", e.Name)
	text("recipe", e.Recipe)
	data = append(strconv.AppendInt(append(data, `"owner_pid":`...), int64(e.OwnerPID), 10), ',')
	number("owner_start_ns", e.OwnerStartNS)
	if e.OwnerBootID != "" {
		text("owner_boot_id", e.OwnerBootID)
	}
	if e.OwnerPIDNamespace != 0 {
		number("owner_pid_namespace", e.OwnerPIDNamespace)
	}
	moment("started_at", e.StartedAt)
	moment("last_renewed_at", e.LastRenewedAt)
	if e.LastRenewedBootNS > 0 {
		number("last_renewed_boot_ns", uint64(e.LastRenewedBootNS))
	}
	data = append(strconv.AppendFloat(append(data, `"ttl_seconds":`...), e.TTLSeconds, 'f', -1, 64), ',')
	if e.PreemptSignalPath != "" {
		text("preempt_signal_path", e.PreemptSignalPath)
	}
	data = strconv.AppendBool(append(data, `"preemptible":`...), e.Preemptible)
	return append(data, '}'), failed
}

// seconds converts a TTL that another program may have written: it is never negative and never
// longer than MaxTTL.
func seconds(s float64) time.Duration {
	if !(s > 0) { // also not a number
		return 0
	}
	return time.Duration(math.Min(s, MaxTTL.Seconds()) * float64(time.Second))
}

// left returns the rest of a workflow's TTL. The clock of the boot decides if both readings belong
// to the same boot and time namespace, and otherwise the system time.
func (c *change) left(w *Workflow) time.Duration {
	if c.onBootClock(w) {
		return w.TTL - (c.boot - w.renewedBoot)
	}
	return w.TTL - max(0, c.wall.Sub(w.LastRenewedAt)) // a renewal in the future counts from now
}

// onBootClock reports whether the clock of the boot decides on a workflow's TTL.
func (c *change) onBootClock(w *Workflow) bool {
	return w.renewedBoot > 0 && w.renewedBoot <= c.boot && w.Owner.BootID != "" && w.Owner.BootID == c.r.self.BootID
}

// bootSlack is how long before the boot of this machine an entry must have been renewed to be taken
// for one of an earlier boot. The system time may have been set a little in between.
const bootSlack = time.Minute

// beforeBoot reports whether a workflow belongs to an earlier boot of this machine. Another boot id
// alone proves nothing, because some containers have a boot id of their own.
func (c *change) beforeBoot(w *Workflow) bool {
	self := c.r.self
	return w.Owner.foreignBoot(self) && !self.inTimeNamespace() && w.LastRenewedAt.Before(c.wall.Add(-c.boot-bootSlack))
}

// dead reports whether a workflow is dead, if its owner's state is known.
func (c *change) dead(w *Workflow, owner host.Liveness) bool {
	return w.Name == "" || w.Owner.PID <= 0 || c.left(w) <= 0 || c.beforeBoot(w) || owner == host.Dead
}

// sweep removes dead workflows and their signal files. Even if it returns an error, the document
// has no dead workflow any more.
func (c *change) sweep() error {
	var failed error
	all := make([]Process, len(c.doc.Workflows))
	for i := range c.doc.Workflows {
		all[i] = c.doc.Workflows[i].Owner
	}
	states := c.r.owners.states(all, c.r.self)
	i := -1
	c.doc.Workflows = slices.DeleteFunc(c.doc.Workflows, func(w Workflow) bool {
		if i++; !c.dead(&w, states[i]) {
			return false
		}
		// The file is removed first: if this process is killed before it has saved the document, the
		// next sweep finds the entry again.
		failed = errors.Join(failed, c.clearSignal(&w))
		c.dirty = true
		return true
	})
	c.limitFutures()
	return failed
}

// limitFutures sets the renewals that lie in the future to now: an entry whose TTL counts on the
// system time would otherwise live for longer than its TTL after the system time was set back.
func (c *change) limitFutures() {
	for i := range c.doc.Workflows {
		w := &c.doc.Workflows[i]
		if !c.onBootClock(w) && w.LastRenewedAt.After(c.wall) {
			w.LastRenewedAt, c.dirty = c.wall.UTC().Truncate(time.Microsecond), true
		}
	}
}

// find returns the workflow of this name, or nil.
func (c *change) find(name string) *Workflow {
	for i := range c.doc.Workflows {
		if c.doc.Workflows[i].Name == name {
			return &c.doc.Workflows[i]
		}
	}
	return nil
}

// checkName refuses a name or recipe that is empty, too long, or has characters that could control
// a terminal.
func checkName(what, name string) error {
	var bad string
	switch {
	case name == "":
		bad = "is empty"
	case len(name) > MaxName:
		bad = fmt.Sprintf("has %d bytes, more than %d", len(name), MaxName)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		bad = "has characters that cannot be printed"
	default:
		return nil
	}
	return &belay.Error{Code: belay.CodeInvalid, Message: "the " + what + " " + bad}
}
