package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay/bench/trial"
)

// planned is a trial of the plan, without the address of its store.
type planned struct {
	trial.Request
	// store is postgres, sqlite, repo for jobs, where the contender makes its own store, or disk for a
	// directory.
	store string
	// before says that the bench program of another revision carries out the trial (see -before).
	before bool
	once   bool // the trial runs only in the first round, because it takes long and varies little
}

// name is the name of a trial: its measure, store, contender and variant, with @RATE, @LIMIT or
// @TTL after the measure if the trial has a rate, a limit or a TTL.
func (p planned) name() string {
	name := string(p.Measure)
	switch {
	case p.Rate > 0:
		name += fmt.Sprintf("@%d", p.Rate)
	case p.Measure == trial.Gates:
		name += fmt.Sprintf("@%d", p.Limit)
	case p.TTL > 0:
		name += "@" + p.TTL.String()
	}
	return strings.Join([]string{name, p.store, p.who()}, "/")
}

// who returns the contender and its variant as text.
func (p planned) who() string {
	if p.before {
		return p.Contender + "/before"
	}
	return p.Contender + "/" + string(p.Variant)
}

// comparable reports whether the bench program of another revision can carry out the trial too. It
// can do so if the trial runs Belay in the trial's own process and uses no gates and no documents,
// which an older revision may not have.
func (p planned) comparable() bool {
	return p.Contender == belayIn.Contender && p.Variant == belayIn.Variant && p.store != "repo" &&
		p.Measure != trial.Gates && p.Measure != trial.Parked && p.Measure != trial.Documents
}

// sizes are the numbers and durations of the measures, such as how many executions they submit.
type sizes struct {
	n, rows, held, gated     int
	load, beats, idle, wait  time.Duration
	kills                    int
	jobs, atOnce             int
	think                    time.Duration
	parked, pairs            int
	slice                    time.Duration
	flows                    int
	ended, workers, requests int
}

// contending is the number of processes that register at once in the trial Register.
const contending = 20

// hotLimit is the limit in the trials in which many executions wait for few places.
const hotLimit = 5

func (o options) sizes() sizes {
	if o.quick {
		return sizes{n: 20_000, rows: 50_000, held: 2000, gated: 1000, load: 1500 * time.Millisecond,
			beats: 5 * time.Second, idle: 5 * time.Second, wait: 3 * time.Second, kills: 1,
			ended: 5000, workers: 10, requests: 10,
			jobs: 6, atOnce: 3, think: 400 * time.Millisecond,
			parked: 2000, pairs: 2, slice: time.Second, flows: 5}
	}
	return sizes{n: 100_000, rows: 300_000, held: 10_000, gated: 10_000, load: 5 * time.Second, beats: 20 * time.Second,
		idle: 30 * time.Second, wait: 10 * time.Second, kills: 5,
		ended: o.ended, workers: 50, requests: 50,
		jobs: 50, atOnce: 10, think: 3 * time.Second,
		parked: 10_000, pairs: 10, slice: 1500 * time.Millisecond, flows: 40}
}

// The contenders: Belay in the process and through HTTP, and its peers.
var (
	belayIn   = trial.Request{Contender: "belay", Variant: trial.Default}
	belayHTTP = trial.Request{Contender: "belay", Variant: trial.HTTP}
	// belayRabbit is Belay in the process, with dispatch through RabbitMQ.
	belayRabbit = trial.Request{Contender: "belay", Variant: trial.Rabbit}
	// belayThree is Belay through HTTP with three servers on one database.
	belayThree = trial.Request{Contender: "belay", Variant: trial.Three}
	peers      = []trial.Request{
		{Contender: "river", Variant: trial.Tuned}, {Contender: "river", Variant: trial.Default},
		{Contender: "dbos", Variant: trial.Tuned}, {Contender: "dbos", Variant: trial.Default},
		{Contender: "temporal", Variant: trial.Tuned}, {Contender: "temporal", Variant: trial.Default},
	}
	// agents are the contenders that run jobs of coding agents on a repository.
	agents = []trial.Request{
		{Contender: "git", Variant: trial.Worktree}, belayIn, {Contender: "belay", Variant: trial.Single},
		{Contender: "git", Variant: trial.Reset},
	}
	// has lists the measures of which each contender is capable.
	has = map[string][]trial.Measure{
		"river":    {trial.Drain, trial.Submit, trial.Bulk, trial.Latency, trial.Overload},
		"dbos":     {trial.Flow, trial.Steps, trial.Submit, trial.Latency},
		"temporal": {trial.Flow, trial.Steps, trial.Latency, trial.Takeover},
	}
)

// plan lists the trials of a round. Trials that are compared are next to each other.
func plan(o options) []planned {
	z := o.sizes()
	load := []trial.Request{
		{Measure: trial.Ceiling, For: z.load},
		{Measure: trial.Drain, N: z.n},
		{Measure: trial.Flow, For: z.load},
		{Measure: trial.Steps, For: z.load},
		{Measure: trial.Submit, For: z.load},
		{Measure: trial.Bulk, N: z.rows},
		{Measure: trial.Latency, For: z.wait, Rate: 20},
		{Measure: trial.Latency, For: z.wait, Rate: 500},
		{Measure: trial.Takeover, N: z.kills, TTL: time.Second},
		{Measure: trial.Overload, For: z.load},
	}
	var all []planned
	for _, m := range load {
		all = append(all, compare(m)...)
	}
	add := func(who trial.Request, store string, once bool, m trial.Request) {
		m.Contender, m.Variant = who.Contender, who.Variant
		all = append(all, planned{Request: m, store: store, once: once})
	}
	add(belayIn, "postgres", false, trial.Request{Measure: trial.Loaded, N: z.n})
	add(belayIn, "postgres", false, trial.Request{Measure: trial.Lease, N: 300})
	add(belayIn, "sqlite", false, trial.Request{Measure: trial.Lease, N: 300})
	parked := trial.Request{Measure: trial.Parked, N: z.parked, For: z.slice, Pairs: z.pairs, Limit: hotLimit}
	add(belayIn, "postgres", false, parked)
	add(belayIn, "sqlite", false, parked)
	for _, limit := range []int{hotLimit, 100} {
		hot := trial.Request{Measure: trial.Gates, N: z.gated, Limit: limit}
		add(belayIn, "postgres", false, hot)
		add(belayHTTP, "postgres", false, hot)
		add(belayThree, "postgres", false, hot)
		add(belayIn, "sqlite", false, hot)
	}
	for _, store := range []string{"sqlite", "postgres"} {
		for _, who := range []trial.Request{belayIn, belayHTTP} {
			add(who, store, false, trial.Request{Measure: trial.Documents, N: z.flows})
		}
	}
	for _, store := range []string{"sqlite", "postgres"} {
		add(belayHTTP, store, true, trial.Request{
			Measure: trial.Pages, N: z.ended, Workers: z.workers, Requests: z.requests,
		})
	}
	if !o.quick {
		add(belayHTTP, "postgres", true, trial.Request{Measure: trial.Takeover, N: 1})
	}
	add(belayHTTP, "postgres", true, trial.Request{Measure: trial.Hold, N: z.held, For: z.beats})
	add(belayIn, "sqlite", true, trial.Request{Measure: trial.Hold, N: z.held, For: z.beats})
	add(belayHTTP, "postgres", true, trial.Request{Measure: trial.Idle, For: z.idle})
	for _, who := range []string{"registry", "flock"} {
		add(trial.Request{Contender: who, Variant: trial.Default}, "disk", false, trial.Request{Measure: trial.Register,
			N: contending, For: z.load})
	}
	for _, who := range agents {
		add(who, "repo", true, trial.Request{Measure: trial.Jobs, N: z.jobs, AtOnce: z.atOnce, Think: z.think})
	}
	return all
}

// compare lists the trials of one measure, for every contender that is capable of it.
func compare(m trial.Request) []planned {
	with := func(who trial.Request, store string) planned {
		m.Contender, m.Variant = who.Contender, who.Variant
		return planned{Request: m, store: store}
	}
	if m.Measure == trial.Ceiling {
		who := trial.Request{Contender: "ceiling", Variant: trial.Default}
		return []planned{with(who, "postgres"), with(who, "sqlite")}
	}
	all := []planned{with(belayHTTP, "postgres")}
	if m.Measure != trial.Takeover {
		all = append(all, with(belayIn, "postgres"))
	}
	if m.Measure == trial.Drain || m.Measure == trial.Latency {
		all = append(all, with(belayRabbit, "postgres"))
	}
	for _, p := range peers {
		temporal := p.Contender == "temporal"
		if !slices.Contains(has[p.Contender], m.Measure) || temporal && m.Rate > 20 {
			continue
		}
		q := with(p, "postgres")
		q.once = temporal // Temporal takes long, and its results are far from any aim
		all = append(all, q)
	}
	if m.Measure == trial.Drain {
		all = append(all, with(trial.Request{Contender: "river", Variant: trial.Own}, "postgres"))
	}
	if m.Measure == trial.Drain || m.Measure == trial.Flow || m.Measure == trial.Steps || m.Measure == trial.Latency &&
		m.Rate == 500 {
		all = append(all, with(belayIn, "sqlite"), with(belayHTTP, "sqlite"))
	}
	if m.Measure == trial.Drain || m.Measure == trial.Latency && m.Rate == 500 {
		all = append(all, with(belayRabbit, "sqlite"))
	}
	if m.Measure == trial.Flow || m.Measure == trial.Steps {
		for _, p := range peers {
			if p.Contender == "dbos" {
				all = append(all, with(p, "sqlite"))
			}
		}
	}
	return all
}

// wanted returns the trials that the options request.
func (o options) wanted(all []planned) []planned {
	stores := strings.Split(o.stores, ",")
	return slices.DeleteFunc(all, func(p planned) bool {
		if !slices.Contains(stores, p.store) || p.Contender == "temporal" && o.temporal == "none" {
			return true
		}
		if o.only == "" {
			return false
		}
		return !slices.ContainsFunc(strings.Split(o.only, ","), func(word string) bool {
			return strings.Contains(p.name(), word)
		})
	})
}
