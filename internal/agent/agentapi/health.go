package agentapi

import (
	"net/http"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// AgentHealth is the load of the agents on all servers and workers that share the store.
type AgentHealth struct {
	Status   string `json:"status" enum:"ok"`
	Busy     bool   `json:"busy" doc:"Whether every slot is in use."`
	Active   int    `json:"active" doc:"The number of running jobs."`
	Queued   int    `json:"queued" doc:"The number of waiting jobs."`
	Capacity int    `json:"capacity" doc:"The number of jobs that may run at the same time."`
}

func healthOf(c counts) AgentHealth {
	return AgentHealth{"ok", c.active >= c.slots, c.active, c.queued, c.slots}
}

func (d *endpoint) health(w http.ResponseWriter, r *http.Request) {
	c, err := d.backlog.count(r.Context())
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	reply(w, http.StatusOK, healthOf(c))
}

// slotsOf returns how many agents the given workers can run at the same time.
func slotsOf(workers []belay.Worker) int {
	n := 0
	for i := range workers {
		w := &workers[i]
		if w.State == belay.WorkerOpen && !w.External &&
			(len(w.Queues) == 0 || slices.Contains(w.Queues, "default")) &&
			slices.ContainsFunc(w.Workflows, func(r belay.Registration) bool {
				return r.Workflow == agent.Prompted && r.Version == ""
			}) {
			n += w.Capacity
		}
	}
	return n
}
