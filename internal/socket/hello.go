package socket

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Protocol is the version of HELLO and of the request to give way. The HTTP API is versioned
// separately.
const Protocol = 1

// MaxLine is the greatest length of a line from a server or a client, in bytes.
const MaxLine = 4096

// Hello is the line with which a server answers a client.
type Hello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version,omitempty"` // the version of the program
	PID      int    `json:"pid"`
	Purpose  string `json:"purpose,omitempty"`
}

// String names the process.
func (h Hello) String() string {
	return fmt.Sprintf("process %d (%s)", h.PID, h.Purpose)
}

// Goodbye is the line that a server sends when it stops.
type Goodbye struct {
	// Next is the name of the process that runs the engine next, empty if it is not known.
	Next string `json:"next,omitempty"`
}

// sayHello answers a HELLO request, and keeps it open until the server stops or the client leaves.
func (s *Server) sayHello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	if writeLine(w, s.hello) != nil || http.NewResponseController(w).Flush() != nil {
		return
	}
	select {
	case <-s.stopping:
		_ = writeLine(w, Goodbye{s.next}) // without this line the client sees the end of the connection
	case <-r.Context().Done():
	}
}

func writeLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	return err
}

// yield answers the request of another process that this process give way.
func (s *Server) yield(w http.ResponseWriter, r *http.Request) {
	next, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxLine))
	if err != nil || len(next) == 0 {
		http.Error(w, "the body must be the name of the next host", http.StatusBadRequest)
		return
	}
	if s.asked == nil {
		http.Error(w, s.hello.String()+" does not give way", http.StatusConflict)
		return
	}
	select {
	case s.asked <- string(next):
	default: // this process is giving way already
	}
	w.WriteHeader(http.StatusAccepted)
}
