package host

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Rule: the state of a process with another boot or another PID namespace is Unknown, even if
// everything else is equal.
func TestStateOfForeignProcessIsUnknown(t *testing.T) {
	self := Process{Host: "a", BootID: "boot", PIDNamespace: 7, PID: 1 << 30, Start: 5}
	gone := self // no such process exists: with the same boot and namespace it would be proven dead
	for name, change := range map[string]func(p, self *Process){
		"another boot":        func(p, _ *Process) { p.BootID = "other" },
		"another namespace":   func(p, _ *Process) { p.PIDNamespace = 8 },
		"no boot id":          func(p, self *Process) { p.BootID, self.BootID = "", "" },
		"no namespace":        func(p, self *Process) { p.PIDNamespace, self.PIDNamespace = 0, 0 },
		"no number":           func(p, _ *Process) { p.PID = 0 },
		"a process group":     func(p, _ *Process) { p.PID = -1 },
		"no start time":       func(p, _ *Process) { p.Start = 0 },
		"nothing is known":    func(p, _ *Process) { *p = Process{} },
		"asker knows nothing": func(_, self *Process) { *self = Process{} },
	} {
		p, asker := gone, self
		change(&p, &asker)
		if got := p.State(asker); got != Unknown {
			t.Errorf("%s: state is %s, want unknown", name, got)
		}
		if err := p.Signal(asker, 0); err == nil {
			t.Errorf("%s: a signal was sent", name)
		}
	}
}

// Rule: the JSON form of a Process does not change, because other versions of the program read it.
func TestProcessJSON(t *testing.T) {
	p := Process{Host: "h", BootID: "b", PIDNamespace: 4026531836, PID: 12, Start: 345}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"host":"h","boot_id":"b","pid_namespace":4026531836,"pid":12,"start":345}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	var back Process
	if err := json.Unmarshal(raw, &back); err != nil || back != p {
		t.Errorf("read back %+v, %v", back, err)
	}
}

// Rule: Descendants returns all generations, parents before their children, without the roots. A
// table that was read while processes changed may contain a cycle, and Descendants must then still
// return.
func TestDescendants(t *testing.T) {
	table := []Status{
		{PID: 1, Parent: 0}, {PID: 2, Parent: 1}, {PID: 3, Parent: 2}, {PID: 4, Parent: 3},
		{PID: 5, Parent: 1}, {PID: 6, Parent: 5}, {PID: 8, Parent: 9}, {PID: 9, Parent: 8},
	}
	pids := func(list []Status) (out []int) {
		for _, s := range list {
			out = append(out, s.PID)
		}
		return out
	}
	for _, tt := range []struct {
		roots, want []int
	}{
		{[]int{2}, []int{3, 4}},
		{[]int{1}, []int{2, 5, 3, 6, 4}},
		{[]int{2, 3}, []int{4}},
		{[]int{4}, nil},
		{[]int{8}, []int{9}},
		{[]int{77}, nil},
	} {
		if diff := cmp.Diff(tt.want, pids(Descendants(table, tt.roots...))); diff != "" {
			t.Errorf("descendants of %v (-want +got):\n%s", tt.roots, diff)
		}
	}
}
