package socket

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Protocol is the version of what the two ends of the socket say to each other
// here. What they say in the HTTP API has a version of its own.
const Protocol = 1

// MaxLine bounds what either side says in one line.
const MaxLine = 4096

// Hello is the line with which a server answers a client.
type Hello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version,omitempty"` // of the program
	PID      int    `json:"pid"`
	Purpose  string `json:"purpose,omitempty"`
}

// String names the process.
func (h Hello) String() string {
	return fmt.Sprintf("process %d (%s)", h.PID, h.Purpose)
}

// Goodbye is the line with which it stops.
type Goodbye struct {
	// Next is the process that hosts next, if that is known.
	Next string `json:"next,omitempty"`
}

// sayHello answers a client and stays with it until the server stops.
func (s *Server) sayHello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	if writeLine(w, s.hello) != nil || http.NewResponseController(w).Flush() != nil {
		return
	}
	select {
	case <-s.stopping:
		_ = writeLine(w, Goodbye{s.next}) // its end says enough
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

// yield is asked by a process that wants to host for good.
func (s *Server) yield(w http.ResponseWriter, r *http.Request) {
	next, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxLine))
	if err != nil || len(next) == 0 {
		http.Error(w, "say who comes next", http.StatusBadRequest)
		return
	}
	if s.asked == nil {
		http.Error(w, s.hello.String()+" does not give way", http.StatusConflict)
		return
	}
	select {
	case s.asked <- string(next):
	default: // it is giving way already
	}
	w.WriteHeader(http.StatusAccepted)
}
