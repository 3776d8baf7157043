package socket

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/peer"
	"github.com/belaydev/belay/internal/wire"
)

// guest judges the process at the other end of the directory's socket. A nil judge
// refuses no process.
func guest(j *peer.Judge, c net.Conn) error {
	u, ok := c.(*net.UnixConn)
	if j == nil || !ok {
		return nil
	}
	return j.Unix(u)
}

// served refuses a host that is, or may be, a process of a job.
func served(j *peer.Judge, c net.Conn) error {
	err := guest(j, c)
	if err == nil {
		return nil
	}
	return &belay.Error{
		Code: belay.CodeForbidden, Err: err, Message: "the data directory is served by a process that may be a job's",
	}
}

// refusedKey is the key under which a connection's context has why it is refused.
type refusedKey struct{}

// note has each connection judged once, when it comes.
func note(j *peer.Judge) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		if err := guest(j, c); err != nil {
			return context.WithValue(ctx, refusedKey{}, err)
		}
		return ctx
	}
}

// refuseGuests answers processes of jobs with why they get nothing here.
func refuseGuests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err, refused := r.Context().Value(refusedKey{}).(error)
		if !refused {
			next.ServeHTTP(w, r)
			return
		}
		why := "it cannot be told that the caller is no job"
		if errors.Is(err, peer.ErrJob) {
			why = "the caller is a job"
		}
		p := wire.ProblemOf(&belay.Error{Code: belay.CodeForbidden,
			Message: why + ", and jobs do not reach the data directory: " +
				"let the job use a server with a key of its own (--server and BELAY_KEY; belay keys create makes one)"})
		w.Header().Set("Content-Type", wire.ProblemType)
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(&p) // a caller that does not read it has lost nothing
	})
}
