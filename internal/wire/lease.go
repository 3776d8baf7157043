package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// LeaseID is the secret part of a lease, which proves ownership, in the form of a text. It contains
// the id of the session, so that the server need not search for the session. The lock id of an
// owner that is not a worker is a LeaseID too.
type LeaseID struct {
	Worker belay.WorkerID
	Secret belay.Secret
}

const leasePrefix = "ls_"

// String returns the id with its secret. Only requests and answers may contain it.
func (id LeaseID) String() string {
	// An id of a worker and a secret are 16 bytes like an operation id, so the text form of
	// operation ids serves for both.
	return leasePrefix + belay.OpID(id.Worker).String() + belay.OpID(id.Secret).String()
}

// MarshalText returns the id with its secret.
func (id LeaseID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *LeaseID) UnmarshalText(b []byte) error {
	const n = 26
	s, ok := strings.CutPrefix(string(b), leasePrefix)
	var w, secret belay.OpID
	if !ok || len(s) != 2*n || w.UnmarshalText([]byte(s[:n])) != nil || secret.UnmarshalText([]byte(s[n:])) != nil {
		return &belay.Error{
			Code: belay.CodeMalformed, Message: "the lease id does not have the form of Belay's: " + leasePrefix +
				"… as the claim or the lock answered it",
		}
	}
	*id = LeaseID{belay.WorkerID(w), belay.Secret(secret)}
	return nil
}

// Lease is a lease with its secret.
type Lease struct {
	Execution belay.ExecutionID `json:"execution"`
	Token     belay.Token       `json:"token" doc:"The fencing token: send it with writes to other systems that can refuse a lower token."`
	ID        LeaseID           `json:"lease_id" doc:"The secret part of the lease. Never log it."`
}

// LeaseOf converts a lease for the wire.
func LeaseOf(l belay.Lease) Lease {
	return Lease{Execution: l.Execution, Token: l.Token, ID: LeaseID{l.Worker, l.Secret}}
}

// Lease converts the lease from the wire.
func (l Lease) Lease() belay.Lease {
	return belay.Lease{Execution: l.Execution, Worker: l.ID.Worker, Token: l.Token, Secret: l.ID.Secret}
}

// Millis converts a duration to whole milliseconds. A duration above zero becomes at least 1,
// because zero often means no limit.
func Millis(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

// Duration converts milliseconds to a time.Duration, within the limits of that type.
func Duration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(max(-most, min(ms, most))) * time.Millisecond
}

// OpOf returns the operation id for the value of the header Idempotency-Key. If the value has the
// form of an operation id, OpOf decodes it. For an empty value the id is zero. For any other text
// the id is a hash of the text.
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
