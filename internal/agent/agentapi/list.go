package agentapi

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// JobSummary is a job in a list.
type JobSummary struct {
	JobID      belay.ExecutionID `json:"job_id" doc:"The id of the job and of its execution."`
	Status     string            `json:"status" enum:"queued,waiting,running,completed,failed,timeout,error"`
	Title      string            `json:"title,omitempty" doc:"The first line of the prompt, at most 80 characters."`
	Repo       string            `json:"repo,omitempty"`
	Ref        string            `json:"ref,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	CostTokens belay.Cost        `json:"cost_tokens,omitempty" doc:"The cost in tokens, over all runs."`
	Error      *string           `json:"error" nullable:"true"`
	CreatedAt  time.Time         `json:"created_at"`
	StartedAt  *time.Time        `json:"started_at" nullable:"true" doc:"The time at which its first run began; null before."`
	FinishedAt *time.Time        `json:"finished_at" nullable:"true"`
}

// JobList is a page of a list of jobs.
type JobList struct {
	Jobs []JobSummary `json:"jobs"`
	// Next is the cursor of the next page.
	Next string `json:"next,omitempty" doc:"The cursor of the next page; a page may have fewer jobs than the limit although there is one."`
}

// statesOf are the states of jobs of each status. The ends of jobs that have failed differ in more than their states.
var statesOf = map[string][]belay.State{
	Queued:  {belay.Pending, belay.Scheduled, belay.Paused},
	Waiting: {belay.Waiting}, Running: {belay.Running}, Completed: {belay.Succeeded},
	Failed: {belay.Failed}, Timeout: {belay.Failed},
	Errored: {belay.Failed, belay.Cancelled},
}

// listQuery are the parameters of a list.
type listQuery struct {
	belay.Filter
	status string
}

// maxJobs is the largest number of jobs in a page.
const maxJobs = 100

func listOf(q url.Values) (l listQuery, err error) {
	l.Filter = belay.Filter{Workflow: Workflow, Children: true, Limit: 20, Cursor: q.Get("cursor")}
	bad := func(message string) error { return &belay.Error{Code: belay.CodeMalformed, Message: message} }
	for name := range q {
		if !slices.Contains([]string{"status", "repo", "label", "cursor", "limit"}, name) {
			return l, bad("there is no such parameter; the parameters are status, repo, label, cursor and limit")
		}
	}
	if l.status = q.Get("status"); l.status != "" {
		if l.States = statesOf[l.status]; l.States == nil {
			return l, bad("status must be queued, waiting, running, completed, failed, timeout or error")
		}
	}
	if repo := q.Get("repo"); repo != "" {
		l.Labels = map[string]string{LabelRepo: repo}
	}
	if text := q.Get("limit"); text != "" {
		if l.Limit, err = strconv.Atoi(text); err != nil || l.Limit < 1 || l.Limit > maxJobs {
			return l, bad("limit must be 1 to 100")
		}
	}
	for _, text := range q["label"] {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			name, value, ok = strings.Cut(text, ":")
		}
		if !ok || name == "" || len(q["label"]) > belay.MaxLabels {
			return l, bad("a label must have the form name=value, and there may be 32")
		}
		if l.Labels == nil {
			l.Labels = make(map[string]string)
		}
		l.Labels[name] = value
	}
	return l, nil
}

// list sends a page of jobs. A list has no outputs, by which the ways in which jobs have failed differ, so list reads
// each failed job of the page by its id.
func (d *endpoint) list(w http.ResponseWriter, r *http.Request) {
	q, err := listOf(r.URL.Query())
	var page belay.Page
	if err == nil {
		page, err = d.b.Executions(r.Context(), q.Filter)
	}
	answer := JobList{Jobs: []JobSummary{}, Next: page.Next}
	for i := range page.Executions {
		x := page.Executions[i]
		if x.State == belay.Failed && err == nil {
			x, err = d.read(r.Context(), x.ID)
		}
		if belay.CodeOf(err) == belay.CodeNotFound || d.evicted(&x) {
			err = nil // deleted, or ended too long ago
			continue
		}
		s := summaryOf(&x)
		if err == nil && (q.status == "" || q.status == s.Status) {
			answer.Jobs = append(answer.Jobs, s)
		}
	}
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	reply(w, http.StatusOK, answer)
}

func summaryOf(x *belay.Execution) JobSummary {
	s := JobSummary{
		JobID: x.ID, Status: Status(x, answerOf(x)), CostTokens: x.CostTokens, CreatedAt: x.CreatedAt, Labels: x.Labels,
		StartedAt: moment(x.StartedAt), FinishedAt: moment(x.FinishedAt), Title: Title(x.Labels[LabelPrompt]),
		Repo: x.Labels[LabelRepo], Ref: x.Labels[LabelRef],
	}
	if why := reason(x); why != "" {
		s.Error = &why
	}
	return s
}
