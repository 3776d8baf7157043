package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belaydev/belay/bench/trial"
)

// claim is an aim of the project. If Others has names, the measured value is the ratio of Mine to
// the best of Others; otherwise it is the value of Mine.
type claim struct {
	Name   string   `json:"name"`
	Mine   string   `json:"mine"`             // the name of the trial that is judged
	Others []string `json:"others,omitempty"` // the names of the trials with which Mine is compared
	What   string   `json:"what"`             // rate, p50, p95, p99, max, or the name of a value
	Beside string   `json:"beside,omitempty"` // the name of the value of Others, if it differs from What
	Bound  bool     `json:"bound,omitempty"`  // a lower value is better
	Aim    float64  `json:"aim"`
	Floor  float64  `json:"floor,omitempty"` // the worst accepted value; 0 if there is no such value
	Unit   string   `json:"unit,omitempty"`  // "×" if empty
	Open   bool     `json:"open,omitempty"`  // there is no aim: the value is only reported

	Measured float64 `json:"measured"`
	// Processor is the same ratio as Measured, but computed from the processor time, including the
	// database's, that one unit of work (such as an execution) takes. Unlike Measured, it does not
	// change if other programs use the machine. It has no influence on the verdict.
	Processor float64 `json:"by_processor_time,omitempty"`
	Verdict   string  `json:"verdict"`
	Why       string  `json:"why,omitempty"` // why there is no verdict
}

// The verdicts.
const (
	reached  = "aim"
	accepted = "floor"
	below    = "BELOW FLOOR"
	compared = "compared"
	unknown  = "not measured"
)

// slowestPage is the longest time that a page of the web UI may take at p95, in milliseconds.
const slowestPage = 200

// variants returns the names of a contender's two trials of a measure: with the best known settings
// and with its defaults.
func variants(measure, store, contender string) []string {
	return []string{
		measure + "/" + store + "/" + contender + "/tuned", measure + "/" + store + "/" + contender + "/default",
	}
}

// claims returns all aims in the order in which they are printed.
func claims() []claim {
	const pg, lite, http = "/postgres/belay/default", "/sqlite/belay/default", "/postgres/belay/http"
	all := []claim{
		{Name: "no-op executions worked off, to River", Mine: "drain" + pg, Others: variants("drain", "postgres",
			"river"), What: "rate", Aim: 2, Floor: 1.3},
		{Name: "single submits of 64 callers, to River", Mine: "submit" + pg, Others: variants("submit", "postgres",
			"river"), What: "rate", Aim: 5, Floor: 2.5},
		{Name: "single submits of 64 callers, to pgbench's commits", Mine: "submit" + pg,
			Others: []string{"ceiling/postgres/ceiling/default"}, What: "rate", Aim: 1, Floor: .5},
		{Name: "rows submitted in bulk, to River", Mine: "bulk" + pg, Others: variants("bulk", "postgres", "river"),
			What: "rate", Aim: 1.5, Floor: .75},
		{Name: "durable steps, to DBOS", Mine: "steps" + pg, Others: variants("steps", "postgres", "dbos"),
			What: "rate", Aim: 15, Floor: 7.5},
	}
	for _, rate := range []string{"20", "500"} {
		for what, floor := range map[string]float64{"p50": 0, "p95": 1.5, "p99": 0} {
			if rate == "500" {
				floor = 2
			}
			all = append(all, claim{
				Name: "submit to start at " + rate + "/s, " + what + ", to River tuned", Mine: "latency@" + rate + pg,
				Others: []string{
					"latency@" + rate + "/postgres/river/tuned",
				}, What: what, Bound: true, Aim: 1, Floor: floor,
			})
		}
	}
	slices.SortStableFunc(all[5:], func(a, b claim) int { return strings.Compare(a.Mine+a.What, b.Mine+b.What) })
	const rabbit = "/postgres/belay/rabbitmq"
	return append(append(all,
		claim{Name: "executions by RabbitMQ", Mine: "drain" + rabbit, What: "rate", Aim: 5000, Floor: 2500, Unit: "/s"},
		claim{Name: "executions by RabbitMQ, to pull", Mine: "drain" + rabbit, Others: []string{"drain" + pg},
			What: "rate", Open: true},
		claim{Name: "submit to start at 20/s by RabbitMQ, p95", Mine: "latency@20" + rabbit, What: "p95", Bound: true,
			Aim: 10, Floor: 20, Unit: "ms"},
		claim{Name: "submit to start at 500/s, p95", Mine: "latency@500" + pg, What: "p95", Bound: true, Aim: 7.5,
			Floor: 15, Unit: "ms"},
		claim{Name: "a lone lease, p50, to a lone commit", Mine: "lease" + pg, Others: []string{"lease" + pg},
			What: "p50", Beside: "commit_p50_ms", Bound: true, Aim: 5, Floor: 10},
		claim{Name: "a lone lease, p95, to a lone commit", Mine: "lease" + pg, Others: []string{"lease" + pg},
			What: "p95", Beside: "commit_p95_ms", Bound: true, Aim: 5, Floor: 10},
		claim{
			Name: "a lone lease on SQLite, p50, to a lone commit", Mine: "lease" + lite,
			Others: []string{"lease" + lite}, What: "p50", Beside: "commit_p50_ms", Bound: true, Aim: 5, Floor: 10,
		},
		claim{Name: "kill -9 until it runs elsewhere, TTL 1 s, worst", Mine: "takeover@1s" + http, What: "max",
			Bound: true, Aim: 2000, Floor: 2000, Unit: "ms"},
		claim{Name: "kill -9 until it runs elsewhere, by default", Mine: "takeover" + http, What: "max", Bound: true,
			Aim: 16_000, Floor: 16_000, Unit: "ms"},
		claim{Name: "writes a heartbeat interval, 10 workers idle", Mine: "hold" + http, What: "writes_per_heartbeat",
			Bound: true, Aim: 10, Floor: 20, Unit: "writes"},
		claim{Name: "memory of a server with 10,000 running", Mine: "hold" + http, What: "server_mb", Bound: true,
			Aim: 120, Floor: 240, Unit: "MB"},
		claim{
			Name: "SQLite: no-op executions, to DBOS", Mine: "flow" + lite, Others: variants("flow", "sqlite", "dbos"),
			What: "rate", Aim: 20, Floor: 10,
		},
		claim{Name: "slowest page among 1,000,000 executions, p95", Mine: "pages" + http, What: "slowest_p95_ms",
			Bound: true, Aim: slowestPage, Floor: slowestPage, Unit: "ms"},
		claim{Name: "SQLite: slowest page among 1,000,000 executions, p95", Mine: "pages/sqlite/belay/http",
			What: "slowest_p95_ms", Bound: true, Aim: slowestPage, Floor: slowestPage, Unit: "ms"},
		claim{Name: "SQLite: durable steps, to DBOS", Mine: "steps" + lite, Others: variants("steps", "sqlite", "dbos"),
			What: "rate", Aim: 20, Floor: 10},
		claim{Name: "worked off through HTTP, to in-process", Mine: "drain" + http, Others: []string{"drain" + pg},
			What: "rate", Aim: .4, Floor: .2},
		claim{
			Name: "submitted and awaited through HTTP, to in-process", Mine: "flow" + http,
			Others: []string{"flow" + pg}, What: "rate", Aim: .4, Floor: .2,
		},
		claim{
			Name: "worked off among many that ended and wait, to empty", Mine: "loaded" + pg,
			Others: []string{"drain" + pg}, What: "rate", Aim: .8, Floor: .8,
		},
		claim{Name: "beside 10,000 executions that wait at a limit, to without them", Mine: "parked" + pg, What: "kept",
			Aim: .95, Floor: .95},
		claim{Name: "the same on SQLite", Mine: "parked" + lite, What: "kept", Aim: .95, Floor: .95},
		claim{Name: "one limit, three servers, to one server", Mine: "gates@5/postgres/belay/three",
			Others: []string{"gates@5" + http}, What: "rate", Open: true},
		claim{Name: "registrations of 20 processes, to a bare durable write", Mine: "register/disk/registry/default",
			Others: []string{"register/disk/flock/default"}, What: "rate", Aim: .667, Floor: .667},
		claim{Name: "the same, p99", Mine: "register/disk/registry/default",
			Others: []string{"register/disk/flock/default"}, What: "p99", Bound: true, Aim: 1.5, Floor: 1.5},
		claim{Name: "idle server, transactions a second", Mine: "idle" + http, What: "transactions_per_s", Bound: true,
			Aim: 1, Floor: 1, Unit: "/s"},
		claim{Name: "idle server, percent of a core", Mine: "idle" + http, What: "server_cpu_percent", Bound: true,
			Aim: 1, Floor: 1, Unit: "%"},
		claim{
			Name: "server ready", Mine: "idle" + http, What: "ready_ms", Bound: true, Aim: 300, Floor: 600, Unit: "ms",
		},
	), slices.Concat(written(), crowds(), together())...)
}

// written returns the aims of the trials in which documents and functions in Go start the same children.
func written() (all []claim) {
	for _, store := range []string{"sqlite", "postgres"} {
		for _, variant := range []string{"default", "http"} {
			mine := "documents/" + store + "/belay/" + variant
			where := map[string]string{"default": " on " + store, "http": " on " + store + " through HTTP"}[variant]
			all = append(all,
				claim{Name: "chain of ten tasks in a document" + where + ", p50", Mine: mine, What: "chain_p50_ms",
					Bound: true, Aim: 100, Floor: 200, Unit: "ms"},
				claim{Name: "the same, to the chain in Go", Mine: mine, Others: []string{mine}, What: "chain_p50_ms",
					Beside: "chain_go_p50_ms", Bound: true, Open: true},
				claim{Name: "fan-out of 100 tasks in a document" + where + ", p50", Mine: mine, What: "fan_p50_ms",
					Bound: true, Aim: 300, Floor: 600, Unit: "ms"},
				claim{Name: "the same, to the fan-out in Go", Mine: mine, Others: []string{mine}, What: "fan_p50_ms",
					Beside: "fan_go_p50_ms", Bound: true, Open: true},
			)
		}
	}
	return all
}

// crowds returns the aims of the trials in which producers submit at ten times the best rate. No
// aim is relative to River, because River refuses no job and has no sessions: the report only shows
// the results of Belay and River side by side.
func crowds() (all []claim) {
	for _, variant := range []string{"default", "http"} {
		where, mine := "", "overload/postgres/belay/"+variant
		if variant == "http" {
			where = "through HTTP, "
		}
		river := variants("overload", "postgres", "river")
		all = append(all,
			claim{
				Name: "ten times the load, " + where + "of the best rate", Mine: mine, What: "kept", Aim: .8, Floor: .8,
			},
			claim{Name: "ten times the load, " + where + "sessions lost", Mine: mine, What: "sessions_lost",
				Bound: true, Floor: .5, Unit: "sessions"},
			claim{Name: "ten times the load, " + where + "leases lost", Mine: mine, What: "leases_lost", Bound: true,
				Floor: .5, Unit: "leases"},
			claim{Name: "ten times the load, " + where + "begun and not ended", Mine: mine, What: "begun_not_ended",
				Bound: true, Floor: .5, Unit: "runs"},
			claim{Name: "ten times the load, " + where + "of the best rate, to River", Mine: mine, Others: river,
				What: "kept", Open: true},
			claim{Name: "ten times the load, " + where + "executions ended, to River", Mine: mine, Others: river,
				What: "rate", Open: true},
		)
	}
	return all
}

// together returns the aims of the trials in which coding agents' jobs work on one repository. If
// ten jobs run at a time, some jobs compute while others wait for their models. A job that waits
// for the time w and uses the processor time c takes w + c if it runs alone. The machine for which
// all aims are set has two processors, so if ten jobs run at a time, one job ends every c/2 at
// best. With w = 3 s and c about the same, ten jobs at a time can be four times as fast as one job
// at a time; the aim is three times. The longer the jobs wait, the nearer the ratio comes to ten.
// Where a count must be zero, the floor (the worst accepted value) is .5, so that a count of one
// misses the floor.
func together() []claim {
	const mine, one, trees, tree = "jobs/repo/belay/default", "jobs/repo/belay/single", "jobs/repo/git/worktree",
		"jobs/repo/git/reset"
	return []claim{
		{Name: "jobs 10 at a time, to one at a time", Mine: mine, Others: []string{one}, What: "rate", Aim: 3,
			Floor: 2},
		{Name: "jobs: time of the set-up lock, p99", Mine: mine, What: "lock_p99_ms", Bound: true, Aim: 2000,
			Floor: 2000,
			Unit:  "ms"},
		{Name: "jobs: git commands that failed because of a lock", Mine: mine, What: "lock_errors", Bound: true,
			Floor: .5,
			Unit:  "errors"},
		{Name: "jobs with text of another job", Mine: mine, What: "cross_talk", Bound: true, Floor: .5,
			Unit: "jobs"},
		{Name: "jobs with wrong results", Mine: mine, What: "wrong_jobs", Bound: true, Floor: .5, Unit: "jobs"},
		{Name: "jobs 10 at a time, to git worktree", Mine: mine, Others: []string{trees}, What: "rate", Open: true},
		{Name: "jobs 10 at a time, to one tree, one at a time", Mine: mine, Others: []string{tree}, What: "rate",
			Open: true},
		{Name: "disk while jobs run, to git worktree", Mine: mine, Others: []string{trees}, What: "disk_peak_mb",
			Bound: true, Open: true},
		{Name: "processor time of a job, to git worktree", Mine: mine, Others: []string{trees}, What: "cpu_s_each",
			Bound: true, Open: true},
	}
}

// judge sets the measured value and the verdict of each claim.
func (r *report) judge() {
	for _, c := range claims() {
		mine, err := r.median(c.Mine, c.What)
		if err == nil && len(c.Others) > 0 {
			var best float64
			if best, err = r.best(c); err == nil {
				mine /= best
			}
		}
		if c.Verdict = unknown; err != nil {
			c.Why = err.Error()
		} else {
			c.Measured = mine
			c.Verdict = c.verdict()
			c.Processor = r.processor(c)
		}
		r.Claims = append(r.Claims, c)
	}
}

// best returns the best of the medians of c.Others. It ignores a contender whose trials failed.
func (r *report) best(c claim) (float64, error) {
	what := c.What
	if c.Beside != "" {
		what = c.Beside
	}
	var found []float64
	var first error
	for _, name := range c.Others {
		v, err := r.median(name, what)
		if err == nil && v > 0 {
			found = append(found, v)
		} else if first == nil {
			first = err
		}
	}
	switch {
	case len(found) == 0 && first == nil:
		return 0, fmt.Errorf("%s: nothing to compare with", c.Others[0])
	case len(found) == 0:
		return 0, first
	case c.Bound:
		return slices.Min(found), nil
	}
	return slices.Max(found), nil
}

// processor returns the ratio of the least processor time per unit of Others to the processor time
// per unit of Mine; 0 if the ratio is not known.
func (r *report) processor(c claim) float64 {
	if c.What != "rate" || len(c.Others) == 0 {
		return 0
	}
	mine, err := r.median(c.Mine, "processor")
	if err != nil {
		return 0
	}
	c.What, c.Bound = "processor", true
	best, err := r.best(c)
	if err != nil {
		return 0
	}
	return best / mine
}

func (c claim) verdict() string {
	holds := func(bound float64) bool {
		if c.Bound {
			return c.Measured <= bound
		}
		return c.Measured >= bound
	}
	switch {
	case c.Open:
		return compared
	case holds(c.Aim):
		return reached
	case c.Floor == 0 || holds(c.Floor):
		return accepted
	}
	return below
}

// median returns the median of a value over the rounds that have the value.
func (r *report) median(name, what string) (float64, error) {
	var v []float64
	var failed error
	for _, s := range r.Samples[name] {
		switch x, ok := value(s, what); {
		case s.Error != "":
			failed = fmt.Errorf("%s: %s", name, s.Error)
		case ok:
			v = append(v, x)
		}
	}
	if failed != nil && len(v) == 0 {
		return 0, failed
	}
	if len(v) == 0 {
		return 0, fmt.Errorf("%s: not measured", name)
	}
	slices.Sort(v)
	return v[len(v)/2], nil
}

func value(s trial.Sample, what string) (float64, bool) {
	switch what {
	case "rate":
		return s.Rate, s.Rate > 0
	case "processor":
		return s.CPU + s.Database, s.CPU > 0
	}
	if t := s.Times; t != nil {
		if x, ok := map[string]float64{"p50": t.P50, "p95": t.P95, "p99": t.P99, "max": t.Max}[what]; ok {
			return x, true
		}
	}
	x, ok := s.Values[what]
	return x, ok
}
