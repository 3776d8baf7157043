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

// lease is the pair of headers that every write of an owner carries. (huma finds parameters only in
// named fields, so each request type repeats the two headers.)
type lease struct {
	id    wire.LeaseID
	token belay.Token
}

// of returns the lease on an execution that the headers describe. A write without a lease id or
// without a token is refused before the store is read.
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

// leaseHeaders sets the headers that the owner's writes need, so that a client can copy them.
func leaseHeaders(h http.Header, l belay.Lease) {
	h.Set("Lease-Id", wire.LeaseID{Worker: l.Worker, Secret: l.Secret}.String())
	h.Set("Lease-Token", strconv.FormatInt(int64(l.Token), 10))
}

// saveOp is the operation id of a checkpoint. Without a key each write has a new id: a client may
// mean to write an older state again.
func saveOp(key string) belay.OpID {
	if key != "" {
		return wire.OpOf(key)
	}
	var op belay.OpID
	_, _ = rand.Read(op[:]) // never fails
	return op
}

// settleOp is the operation id of the end of a run. Without a key it is derived from the run and
// the body: a run ends once, so the same body again is a repeat.
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
