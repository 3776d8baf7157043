package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// showcase is a real server with something of everything that pages show. The names are always the same; the times
// are those of the machine.
type showcase struct {
	agents
	admin  string // the key of anna, who may do everything
	client *client.Client
	runs   map[string]belay.ExecutionID // the executions that have a picture, by its name
	places map[string]string            // the paths of other pages that have a picture, by its name
}

// document is the document of the showcase: while it runs, each state of a task occurs in it.
const releaseDocument = `name: release
description: Build, test and publish a version.
input:
  type: object
  required: [version]
  properties: {version: {type: string}}
on:
  schedules:
    weekly: {cron: "30 7 * * MON", time_zone: Europe/Berlin, input: {version: next}}
tasks:
  - id: build
    uses: command
    with: {run: [echo, "built ${{ input.version }}"], capture: text}
  - id: test
    uses: command
    needs: build
    foreach: ["linux/amd64", "linux/arm64", "darwin/arm64"]
    with: {run: [echo, "tests of ${{ item }} passed"], capture: text}
  - id: lint
    uses: command
    needs: build
    on_failure: continue
    with: {run: [sh, -c, "echo 'deploy.sh:14: $DIR is not quoted' >&2; exit 1"]}
  - id: scan
    uses: command
    needs: build
    with: {run: [sleep, "600"]}
  - id: notes
    uses: command
    needs: build
    if: input.version == "next"
    with: {run: [echo, notes], capture: text}
  - id: approve
    uses: approval
    needs: [test, lint]
    timeout: 72h
    with: {message: "Publish ${{ input.version }}?"}
  - id: publish
    uses: command
    needs: [approve, scan, notes]
    retry: {attempts: 3, backoff: 1s}
    with: {run: [echo, "published ${{ input.version }}"], capture: text}
output: ${{ tasks.publish.output.stdout }}
`

const cleanupDocument = `name: cleanup
input:
  type: object
  properties: {commit: {type: string}}
tasks:
  - id: tmp
    uses: command
    with: {run: [echo, removed 17 files], capture: text}
  - id: report
    uses: command
    needs: tmp
    with: {run: [echo, sent], capture: text}
`

func newShowcase(t *testing.T) *showcase {
	t.Helper()
	p := newPlace(t)
	repo := p.repository()
	secret := func(name, scope string) string {
		return strings.TrimSpace(p.belay("keys", "create", "--name", name, "--scope", scope).want(0).out)
	}
	s := &showcase{admin: secret("anna", "admin"), runs: make(map[string]belay.ExecutionID),
		places: map[string]string{
			"document": "/workflows/release", "gate-breaker": "/queues?gate=target%3Apayments%3Acharge",
			"gate-limit": "/queues?gate=queue%3Areports", "gate-paused": "/queues?gate=queue%3Aimports",
			"schedule": "/schedules/nightly-report", "webhook": "/webhooks/build",
			"notification": "/notifications/operators",
		}}
	fleet := secret("fleet", "worker")
	flags := []string{"--agent-repo", repo}
	if os.Geteuid() != 0 {
		flags = append(flags, bare...)
	}
	s.agents = p.assisted([]string{
		"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json"),
		`BELAY_SECRETS_ALLOW=["GITHUB_HOOK for webhook:build", "SHOP_HOOK for webhook:orders"]`,
		"GITHUB_HOOK=it's a secret to everybody", "SHOP_HOOK=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	}, flags...)
	var err error
	s.client, err = client.Dial(t.Context(), s.url, client.Key(s.admin))
	must(t, err)
	t.Cleanup(func() { _ = s.client.Close() })

	s.gates()
	s.lose(fleet)
	s.workers(fleet)
	s.orders()
	s.documents()
	s.queues()
	s.outside()
	s.triggers()
	s.jobs(repo)
	return s
}

func (s *showcase) fail(err error) {
	s.api.t.Helper()
	must(s.api.t, err)
}

// submit submits an execution. name, unless it is empty, is the name of its picture.
func (s *showcase) submit(name string, one belay.Submission) belay.ExecutionID {
	s.api.t.Helper()
	made, err := s.client.Submit(s.api.t.Context(), one)
	s.fail(err)
	s.fail(made[0].Err)
	if name != "" {
		s.runs[name] = made[0].ID
	}
	return made[0].ID
}

// reach waits until an execution has a state.
func (s *showcase) reach(id belay.ExecutionID, state belay.State) {
	s.api.t.Helper()
	until(s.api.t, fmt.Sprintf("%s is %s", id, state), func() bool {
		e, err := s.client.Execution(s.api.t.Context(), id)
		return err == nil && e.State == state
	})
}

func (s *showcase) control(id belay.ExecutionID, action belay.Action, reason string) {
	s.api.t.Helper()
	_, err := s.client.Control(s.api.t.Context(), belay.Control{Execution: id, Action: action, Reason: reason})
	s.fail(err)
}

// gates sets the terms of gates before executions name them.
func (s *showcase) gates() {
	ctx := s.api.t.Context()
	for _, g := range []belay.GateChange{
		{Gate: "queue:reports", Action: belay.GateSetLimit, Max: 2, Reason: "the warehouse allows two connections"},
		{Gate: "rate:mail", Action: belay.GateSetRate, Max: 10, Per: belay.Duration(time.Minute)},
		{Gate: "queue:imports", Action: belay.GatePause, Reason: "the importer doubles rows, see INC-482"},
		{Gate: "workflow:newsletter", Action: belay.GatePause, Reason: "waits for the legal department"},
		{Gate: "target:crm:contacts", Action: belay.GateForceOpen, Reason: "maintenance until noon"},
		{Gate: "resource:gpu-0", Action: belay.GateSetResource, Resource: &belay.ResourceTerms{
			MinResidency: belay.Duration(time.Minute), MaxWait: belay.Duration(10 * time.Minute),
		}},
	} {
		_, err := s.client.ChangeGate(ctx, g)
		s.fail(err)
	}
}

// lose kills a worker that runs an execution. The next worker continues the execution.
func (s *showcase) lose(key string) {
	spot := s.start(withEnv(s.command("worker", "--server", s.url, "--name", "spot-7", "--ttl", "2s"),
		"BELAY_KEY="+key))
	cmd := s.command("submit", "command", "--server", s.url, "--label", "team=data", "--", "sh", "-c",
		"echo rows are exported; test $BELAY_TOKEN -gt 1 || sleep 600; seq -f 'row %06g is written' 30000")
	id := idOf(s.api.t, s.start(withEnv(cmd, "BELAY_KEY="+s.admin)).wait(patience).want(0).out)
	s.runs["execution-taken-over"] = id
	s.reach(id, belay.Running)
	spot.signal(syscall.SIGKILL)
}

// workers starts a worker for commands and documents, and workers with workflows in Go.
func (s *showcase) workers(key string) {
	t := s.api.t
	s.start(withEnv(s.command("worker", "--server", s.url, "--name", "builder-1"), "BELAY_KEY="+key))
	c, err := client.Dial(t.Context(), s.url, client.Key(key))
	s.fail(err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
		_ = c.Close()
	})
	for _, o := range []worker.Options{
		{Name: "shop-1", Version: "2026.11.3", Queues: []string{"default", "reports"}, Concurrency: 8,
			Labels: map[string]string{"region": "eu-central", "tier": "web"}},
		{Name: "shop-2", Version: "2026.11.2", Queues: []string{"reports"}, Concurrency: 4,
			Labels: map[string]string{"region": "eu-north"}},
	} {
		o.Grace, o.Log = -1, slog.New(slog.DiscardHandler)
		w := worker.New(c, o)
		worker.Register(w, "checkout", checkout)
		worker.Register(w, "charge", charge)
		worker.Register(w, "onboarding", onboarding)
		worker.Register(w, "mailing", mailing)
		worker.Register(w, "report", report)
		running.Go(func() { _ = w.Run(ctx) })
	}
	until(t, "the workers are connected", func() bool {
		all, err := s.client.Workers(t.Context())
		return err == nil && len(all) >= 4
	})
	all, err := s.client.Workers(t.Context())
	s.fail(err)
	for i := range all {
		if all[i].Name == "shop-2" {
			s.fail(s.client.Cordon(t.Context(), belay.Cordon{Worker: all[i].ID, Reason: "its disk is nearly full"}))
		}
	}
}

type sale struct {
	Number int    `json:"number"`
	Fault  string `json:"fault,omitempty"`
}

// checkout sells: its second step fails twice, and succeeds in the third attempt.
func checkout(ctx context.Context, o sale) (map[string]any, error) {
	reserved, err := workflow.Step(ctx, "reserve goods", func(ctx context.Context) (string, error) {
		takes(ctx, 150*time.Millisecond)
		return fmt.Sprintf("shelf %d", o.Number%7), nil
	})
	if err != nil {
		return nil, err
	}
	if err := workflow.Do(ctx, "charge card", func(ctx context.Context) error {
		takes(ctx, 100*time.Millisecond)
		switch {
		case o.Fault != "":
			return belay.Permanent(errors.New(o.Fault))
		case workflow.Attempt(ctx) < 3:
			return errors.New("POST https://pay.example.com/v2/charges: 503 Service Unavailable")
		}
		return nil
	}); err != nil {
		return nil, err
	}
	err = workflow.Do(ctx, "send receipt", func(context.Context) error { return nil })
	return map[string]any{"order": o.Number, "reserved": reserved, "charged": true}, err
}

// takes stands for work that takes some time, so that pictures have bars.
func takes(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// charge calls a service that is down.
func charge(context.Context, sale) (string, error) {
	return "", errors.New("dial tcp 10.0.0.7:443: connect: connection refused")
}

// onboarding waits for a signal.
func onboarding(ctx context.Context, name string) (string, error) {
	if err := workflow.Do(ctx, "create account", func(context.Context) error { return nil }); err != nil {
		return "", err
	}
	return workflow.WaitSignal[string](ctx, "contract signed", workflow.Timeout(14*24*time.Hour))
}

// mailing starts children.
func mailing(ctx context.Context, to []string) (int, error) {
	letters := make([]*workflow.Future[string], len(to))
	for i, name := range to {
		letters[i] = workflow.Go(ctx, name, func(ctx context.Context) (string, error) {
			return workflow.Child[string](ctx, "welcome", "onboarding", name)
		})
	}
	for _, l := range letters {
		if _, err := l.Wait(ctx); err != nil {
			return 0, err
		}
	}
	return len(to), nil
}

// report works until it is cancelled.
func report(ctx context.Context, _ json.RawMessage) (string, error) {
	return workflow.Step(ctx, "query the warehouse", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
}
