package machine

import (
	"encoding/hex"
	"slices"

	"github.com/belaydev/belay"
)

// CheckAuditFilter refuses a filter that contradicts itself, and names that the audit cannot contain.
func CheckAuditFilter(op string, f belay.AuditFilter) error {
	switch {
	case f.Kind != "" && !slices.Contains(belay.AuditKinds, f.Kind):
		return refuse(belay.CodeInvalid, op, "the audit has no kind %q; it has %v", clip(f.Kind, 60), belay.AuditKinds)
	case f.Name != "" && f.Kind == "":
		return refuse(belay.CodeInvalid, op, "a name needs the kind of its object; the kinds are %v", belay.AuditKinds)
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return refuse(belay.CodeInvalid, op, "since must be before until")
	}
	for what, s := range map[string]string{"the actor": f.Actor, "the action": f.Action} {
		if err := checkName(op, what, s, false); err != nil {
			return err
		}
	}
	return nil
}

// View is the entry as the public API shows it. It names a key by the id that people know.
func (a *Audit) View() belay.AuditEntry {
	e := belay.AuditEntry{
		At: a.At.Time(), Actor: a.Actor, Action: a.Action, Kind: string(a.Kind), Name: a.Name, Version: a.Version,
		Reason: a.Reason,
	}
	var id belay.KeyID
	if n, err := hex.Decode(id[:], []byte(a.Name[:min(len(a.Name), 2*len(id))])); a.Kind == KeyObject && err == nil &&
		n == len(id) && len(a.Name) == 2*n {
		e.Name = id.String()
	}
	return e
}
