package promise

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// History is the input of the checkers.
type History struct {
	Stories  []*Story
	Sessions map[belay.WorkerID]*belay.Worker
	Told     []Entry
	Seen     []Sighting

	// Skew is how far the clocks of the store and of its callers may differ.
	Skew time.Duration
	// Pruned says that ended executions may have been deleted.
	Pruned bool
	// Changed are the gates whose limit or rate an operator has changed, or that executions named
	// with different limits or rates.
	Changed map[belay.GateID]bool
	// NoLetters says that the history does not contain the dead letters.
	NoLetters bool
	// Name formats the execution in a violation. If it is nil, violations have the execution's id.
	Name func(belay.ExecutionID) string
	// Sometimes counts the events that must happen at least once.
	Sometimes map[string]int

	byID map[belay.ExecutionID]*Story
}

// Story returns the story of an execution, or nil if there is none.
func (h *History) Story(id belay.ExecutionID) *Story {
	if h.byID == nil {
		h.byID = make(map[belay.ExecutionID]*Story, len(h.Stories))
		for _, s := range h.Stories {
			h.byID[s.ID] = s
		}
	}
	return h.byID[id]
}

// count counts an event that must happen at least once in a test; see Sometimes.
func (h *History) count(what string) {
	if h.Sometimes == nil {
		h.Sometimes = make(map[string]int)
	}
	h.Sometimes[what]++
}

// Letter is a dead letter.
type Letter struct {
	Execution  belay.ExecutionID `json:"execution"`
	Generation int               `json:"generation"`
	Seq        int64             `json:"seq"`
	Token      belay.Token       `json:"token,omitempty"` // the token of the run that failed, 0 if no run had begun
	At         time.Time         `json:"at"`              // when the dead letter was written
	Resolution string            `json:"resolution,omitempty"`
}

// Sighting is an event that a watcher received.
type Sighting struct {
	Watcher   string            `json:"watcher"`
	Execution belay.ExecutionID `json:"execution"`
	Seq       int64             `json:"seq"`
	Kind      string            `json:"kind"`
	Began     time.Time         `json:"began"` // when the stream that delivered the event was opened
	At        time.Time         `json:"at"`
}

// Check is the checker of one promise.
type Check struct {
	Promise string
	Find    func(*Finding)
}

// Checks lists all checkers in the order of the promises.
var Checks = []Check{
	{"G1", G1}, {"G2", G2}, {"G3", G3}, {"G4", G4}, {"G7", G7}, {"G8", G8}, {"G9", G9}, {"G10", G10}, {"G11", G11},
	{"G15", G15}, {"G16", G16}, {"G17", G17},
}

// Judge runs every checker, and returns the violations that the checkers found.
func (h *History) Judge() []string {
	var violated []string
	for _, c := range Checks {
		f := &Finding{History: h, Promise: c.Promise}
		c.Find(f)
		violated = append(violated, f.Violated...)
	}
	return violated
}

// clock is the format of moments in violations.
const clock = "15:04:05.000000"

// Same reports whether two JSON texts are equal byte for byte; an empty text equals null.
func Same(a, b json.RawMessage) bool {
	null := []byte("null")
	return bytes.Equal(a, b) || len(a) == 0 && bytes.Equal(b, null) || len(b) == 0 && bytes.Equal(a, null)
}
