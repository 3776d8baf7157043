package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// LeaseID is the secret half of a lease as text: what proves to be its owner. It
// names the session, so that the server need not look for it. An outside owner's
// lock id is one too.
type LeaseID struct {
	Worker belay.WorkerID
	Secret belay.Secret
}

const leasePrefix = "ls_"

// String writes the id, secret and all. It is meant for the wire alone.
func (id LeaseID) String() string {
	// An operation id is 16 bytes in Belay's writing of ids.
	return leasePrefix + belay.OpID(id.Worker).String() + belay.OpID(id.Secret).String()
}

// MarshalText writes the id, secret and all.
func (id LeaseID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *LeaseID) UnmarshalText(b []byte) error {
	const n = 26
	s, ok := strings.CutPrefix(string(b), leasePrefix)
	var w, secret belay.OpID
	if !ok || len(s) != 2*n || w.UnmarshalText([]byte(s[:n])) != nil || secret.UnmarshalText([]byte(s[n:])) != nil {
		return &belay.Error{
			Code: belay.CodeMalformed, Message: "the lease id is not one that Belay gave: " + leasePrefix +
				"… as the claim or the lock answered it",
		}
	}
	*id = LeaseID{belay.WorkerID(w), belay.Secret(secret)}
	return nil
}

// Lease is a lease with its secret.
type Lease struct {
	Execution belay.ExecutionID `json:"execution"`
	Token     belay.Token       `json:"token" doc:"The fencing token: hand it to whatever the outside world offers to refuse a stale writer."`
	ID        LeaseID           `json:"lease_id" doc:"The secret half. Never log it."`
}

// LeaseOf is a lease for the wire.
func LeaseOf(l belay.Lease) Lease {
	return Lease{Execution: l.Execution, Token: l.Token, ID: LeaseID{l.Worker, l.Secret}}
}

// Lease is the lease as its noun.
func (l Lease) Lease() belay.Lease {
	return belay.Lease{Execution: l.Execution, Worker: l.ID.Worker, Token: l.Token, Secret: l.ID.Secret}
}

// Millis is a duration in whole milliseconds. What is above zero stays above it:
// zero often means none.
func Millis(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

// Duration is what Millis wrote. It is bounded to what a Duration can hold.
func Duration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(max(-most, min(ms, most))) * time.Millisecond
}

// OpOf is the operation id of an Idempotency-Key: itself, if it is one, and
// otherwise derived from it, so that people may use any text.
func OpOf(key string) belay.OpID {
	var op belay.OpID
	if key == "" || op.UnmarshalText([]byte(key)) == nil {
		return op
	}
	return belay.OpID(belay.ChildID(belay.ExecutionID{}, 0, "op "+key))
}

// tooMany refuses a list that is too long.
func tooMany(what string, n, most int) error {
	return &belay.Error{
		Code: belay.CodeInvalid, Message: fmt.Sprintf("%d %s in one request; at most %d", n, what, most),
	}
}
