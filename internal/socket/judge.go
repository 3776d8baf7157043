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

// judgePeer refuses a connection on the socket whose other end is a process of a job. A nil judge
// refuses no process.
func judgePeer(j *peer.Judge, c net.Conn) error {
	u, ok := c.(*net.UnixConn)
	if j == nil || !ok {
		return nil
	}
	return j.Unix(u)
}

// checkHost refuses a host (the process with the engine) that is, or may be, a process of a job.
func checkHost(j *peer.Judge, c net.Conn) error {
	err := judgePeer(j, c)
	if err == nil {
		return nil
	}
	return &belay.Error{
		Code: belay.CodeForbidden, Err: err, Message: "the data directory is served by a process that may be a job's",
	}
}

// refusedKey is the key under which the context of a refused connection has the reason for the
// refusal.
type refusedKey struct{}

// judgeConnections returns a ConnContext function that judges each new connection once.
func judgeConnections(j *peer.Judge) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		if err := judgePeer(j, c); err != nil {
			return context.WithValue(ctx, refusedKey{}, err)
		}
		return ctx
	}
}

// refuseJobs answers requests on refused connections with status 403 and the reason.
func refuseJobs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err, refused := r.Context().Value(refusedKey{}).(error)
		if !refused {
			next.ServeHTTP(w, r)
			return
		}
		why := "the host cannot tell whether the caller is a job"
		if errors.Is(err, peer.ErrJob) {
			why = "the caller is a job"
		}
		p := wire.ProblemOf(&belay.Error{Code: belay.CodeForbidden,
			Message: why + ", and jobs may not use the data directory: " +
				"let the job use a server with a key of its own (--server and BELAY_KEY; belay keys create makes it)"})
		w.Header().Set("Content-Type", wire.ProblemType)
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(&p) // the caller may have disconnected
	})
}
