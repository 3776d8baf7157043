package webui

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

var (
	untilField = field{
		Name: "until", Kind: "time", Label: "Until", About: "In UTC. Empty: until an operator resumes it.",
	}
	maxField = field{Name: "max", Kind: "line", Label: "At most", Numeric: true, Required: true}
)

// gateTermDeeds set and unset the parts of gates.
var gateTermDeeds = []deed{
	{
		of: ofGate, name: "limit", label: "Set the limit", preset: presetGate(presetLimit),
		about: "The limit replaces the one that executions name. If more are under way, they go on, and no other starts " +
			"until fewer are.",
		fields: []field{maxField}, do: changeGate(belay.GateSetLimit, fillMax),
	},
	{
		of: ofGate, name: "unlimit", label: "Remove the limit", do: changeGate(belay.GateUnsetLimit, nil),
		about: "The limit that an operator has set ends. The one that executions name, if there is one, counts again.",
	},
	{
		of: ofGate, name: "rate", label: "Set the rate", preset: presetGate(presetRate),
		about: "The rate replaces the one that executions name: so many runs start in a time, at most.",
		fields: []field{
			maxField,
			{Name: "per", Kind: "line", Label: "Runs in", Required: true, About: "A time such as 1s, 5m or 1h30m."},
		},
		do: changeGate(belay.GateSetRate, func(form url.Values, c *belay.GateChange) error {
			if err := fillMax(form, c); err != nil {
				return err
			}
			return duration(form, "per", &c.Per)
		}),
	},
	{
		of: ofGate, name: "unrate", label: "Remove the rate", do: changeGate(belay.GateUnsetRate, nil),
		about: "The rate that an operator has set ends. The one that executions name, if there is one, counts again.",
	},
	{
		of: ofGate, name: "resource", label: "Set the terms", preset: presetGate(presetResource),
		about: "The terms replace all earlier terms. If the last change of the mode has failed, the next one begins at " +
			"once. A change that is under way goes on.",
		fields: []field{
			{
				Name: "residency", Kind: "line", Label: "Keep a mode for at least",
				About: "A time such as 30s. Empty: 10s with a workflow below, otherwise none.",
			},
			{
				Name: "wait", Kind: "line", Label: "Other modes wait for at most",
				About: "A time such as 5m. Empty: one minute.",
			},
			{
				Name: "workflow", Kind: "line", Label: "Workflow that changes the mode",
				About: "Empty: the mode changes at once.",
			},
			{Name: "workflow_version", Kind: "line", Label: "Version of the workflow"},
			{Name: "queue", Kind: "line", Label: "Queue of the workflow"},
			{
				Name: "timeout", Kind: "line", Label: "A change takes at most",
				About: "A time such as 10m, which is the default.",
			},
		},
		do: changeGate(belay.GateSetResource, fillResource),
	},
	{
		of: ofGate, name: "unresource", label: "Remove the terms", danger: true,
		do: changeGate(belay.GateUnsetResource, nil),
		about: "The terms that an operator has set end. The modes still exclude each other; the mode changes at once, and " +
			"other modes wait for a minute at most.",
	},
}

// gateDeeds returns the names of the deeds that change something at a gate.
func gateDeeds(g *belay.GateInfo) []string {
	names := []string{"pause"}
	if g.Pause != nil {
		names = []string{"resume"}
	}
	if g.Breaker != nil || g.Kind == belay.GateTarget {
		names = append(names, "open", "close", "auto")
	}
	lane := g.Kind == belay.GateQueue || g.Kind == belay.GateWorkflow
	for name, offered := range map[string]bool{
		"limit": lane || g.Kind == belay.GateLimit, "unlimit": g.Limit != nil && g.Limit.Set > 0,
		"rate": lane || g.Kind == belay.GateRate, "unrate": g.Rate != nil && g.Rate.Set,
		"resource": g.Kind == belay.GateResource, "unresource": g.Resource != nil && g.Resource.Set,
	} {
		if offered {
			names = append(names, name)
		}
	}
	return names
}

// presetGate returns the present terms of a part of a gate.
func presetGate(part func(url.Values, *belay.GateInfo)) presetter {
	return func(ctx context.Context, b belay.Backend, id string) (url.Values, error) {
		g, err := b.Gate(ctx, belay.GateID(id))
		form := url.Values{}
		if err == nil {
			part(form, &g.GateInfo)
		}
		return form, err
	}
}

func presetLimit(form url.Values, g *belay.GateInfo) {
	if g.Limit != nil {
		form.Set("max", strconv.Itoa(g.Limit.Max))
	}
}

func presetRate(form url.Values, g *belay.GateInfo) {
	if g.Rate != nil {
		form.Set("max", strconv.Itoa(g.Rate.Max))
		form.Set("per", g.Rate.Per.D().String())
	}
}

func presetResource(form url.Values, g *belay.GateInfo) {
	r := g.Resource
	if r == nil || !r.Set {
		return
	}
	set := func(name string, d belay.Duration) {
		if d > 0 {
			form.Set(name, d.D().String())
		}
	}
	set("residency", r.MinResidency)
	set("wait", r.MaxWait)
	if s := r.Swap; s != nil {
		form.Set("workflow", s.Workflow)
		form.Set("workflow_version", s.Version)
		form.Set("queue", s.Queue)
		set("timeout", s.Timeout)
	}
}

func invalidField(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

func fillMax(form url.Values, c *belay.GateChange) (err error) {
	if c.Max, err = strconv.Atoi(strings.TrimSpace(form.Get("max"))); err != nil {
		return invalidField("the number is a whole number, as in 5")
	}
	return nil
}

// duration reads a time such as 5m; an empty field is 0.
func duration(form url.Values, name string, to *belay.Duration) error {
	text := strings.TrimSpace(form.Get(name))
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return invalidField("a time has the form 30s, 5m or 1h30m; %s has not", excerpt(strconv.Quote(text), 60))
	}
	*to = belay.Duration(d)
	return nil
}

// momentOf reads a time of a field of the kind "time"; the zero time if it is empty.
func momentOf(form url.Values, name string) (time.Time, error) {
	at, ok := readTime(strings.TrimSpace(form.Get(name)))
	if !ok {
		return at, invalidField("a time has the form %s, in UTC", seconds)
	}
	return at, nil
}

func fillPause(form url.Values, c *belay.GateChange) (err error) {
	c.Until, err = momentOf(form, "until")
	return err
}

func fillResource(form url.Values, c *belay.GateChange) error {
	t := &belay.ResourceTerms{}
	c.Resource = t
	get := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	swap := belay.ResourceSwapper{Workflow: get("workflow"), Version: get("workflow_version"), Queue: get("queue")}
	for name, to := range map[string]*belay.Duration{
		"residency": &t.MinResidency, "wait": &t.MaxWait, "timeout": &swap.Timeout,
	} {
		if err := duration(form, name, to); err != nil {
			return err
		}
	}
	switch {
	case swap.Workflow != "":
		t.Swap = &swap
	case swap != (belay.ResourceSwapper{}):
		return invalidField("the version, the queue and the time of a change need a workflow")
	}
	return nil
}
