package httpapi

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// lease is what every write of an owner carries. (huma finds parameters in named
// fields alone, so each request repeats the two.)
type lease struct {
	id    wire.LeaseID
	token belay.Token
}

// of is the lease on an execution. Without its id, or without a token where one is
// needed, the write is refused before anything is looked up.
func (l lease) of(execution belay.ExecutionID) (belay.Lease, error) {
	if l.id == (wire.LeaseID{}) || l.token == 0 {
		return belay.Lease{}, &belay.Error{
			Code: belay.CodeTokenRequired,
			Message: "a write of an owner needs the headers Lease-Id and Lease-Token, as the claim or the lock " +
				"answered them",
		}
	}
	return belay.Lease{Execution: execution, Worker: l.id.Worker, Token: l.token, Secret: l.id.Secret}, nil
}

// leaseHeaders gives a lease in the headers that its writes need, for clients
// that take them as they are.
func leaseHeaders(h http.Header, l belay.Lease) {
	h.Set("Lease-Id", wire.LeaseID{Worker: l.Worker, Secret: l.Secret}.String())
	h.Set("Lease-Token", strconv.FormatInt(int64(l.Token), 10))
}

// saveOp is the operation id of a checkpoint. Without a key each write is one of
// its own: an older state written again is news.
func saveOp(key string) belay.OpID {
	if key != "" {
		return wire.OpOf(key)
	}
	var op belay.OpID
	_, _ = rand.Read(op[:]) // never fails
	return op
}

// settleOp is the operation id of the end of a run. Without a key it is derived
// from the run and what is said of it: a run ends once, so the same said again is
// a repeat.
func settleOp(key string, l belay.Lease, body any) belay.OpID {
	if key != "" {
		return wire.OpOf(key)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return saveOp("")
	}
	sum := sha256.Sum256(text)
	return wire.OpOf("settle " + l.Run().String() + " " + hex.EncodeToString(sum[:]))
}
