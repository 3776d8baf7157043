package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/workflow"
)

// UsageLog has the usage of each run as JSON on each line: the last line of a run has all usage that the agent of this
// run had reported. The next run reads from it what a killed run had not charged.
const UsageLog = "usage"

// MaxCost limits the cost of a job, over all its runs. The job ends with an error when it exceeds a limit.
type MaxCost struct {
	// Tokens limits the tokens, and USD the money; 0 for no limit.
	Tokens int64     `json:"tokens,omitempty"`
	USD    belay.USD `json:"usd,omitempty"`
}

// Check returns an error for limits that are not positive or too large.
func (m *MaxCost) Check() error {
	switch {
	case m == nil:
		return nil
	case m.Tokens < 0 || m.USD < 0 || *m == MaxCost{}:
		return invalid("max_cost needs tokens or usd above 0")
	case m.Tokens > belay.MaxUsage || m.USD >= belay.MaxUsage:
		return invalid("max_cost is too large")
	}
	return nil
}

// over returns the error of a job whose usage exceeds the limits; nil if it does not.
func (m *MaxCost) over(u belay.ModelUsage) error {
	switch {
	case m == nil:
	case m.USD > 0 && u.Money > m.USD:
		return fmt.Errorf("the job cost %s USD, more than its max_cost of %s USD", u.Money, m.USD)
	case m.Tokens > 0 && u.Tokens() > m.Tokens:
		return fmt.Errorf("the job used %d tokens, more than its max_cost of %d", u.Tokens(), m.Tokens)
	}
	return nil
}

// Price is the price of a model, for a million tokens each.
type Price struct {
	Model                                string
	Input, Output, CacheRead, CacheWrite belay.USD
}

// ParsePrice reads a price: MODEL:INPUT:OUTPUT[:CACHE_READ:CACHE_WRITE], in US dollars per million tokens.
// Without the prices of the cache, its tokens cost as much as other input.
func ParsePrice(s string) (Price, error) {
	fields := strings.Split(s, ":")
	if len(fields) != 3 && len(fields) != 5 || fields[0] == "" {
		return Price{}, invalid("the price %q must have the form MODEL:INPUT:OUTPUT or "+
			"MODEL:INPUT:OUTPUT:CACHE_READ:CACHE_WRITE", s)
	}
	p := Price{Model: fields[0]}
	for i, to := range []*belay.USD{&p.Input, &p.Output, &p.CacheRead, &p.CacheWrite}[:len(fields)-1] {
		v, err := strconv.ParseFloat(fields[i+1], 64)
		if err != nil || !(v >= 0 && v <= 100_000) {
			return Price{}, invalid("the price %q has the number %q; it must be 0 to 100000 US dollars per million "+
				"tokens", s, fields[i+1])
		}
		*to = belay.USDOf(v)
	}
	if len(fields) == 3 {
		p.CacheRead, p.CacheWrite = p.Input, p.Input
	}
	return p, nil
}

// priceOf sets the money of a usage of a model: by the price with the longest Model with which the name of the model
// begins, or that is *. Without a price, the tokens are unpriced.
func priceOf(prices []Price, model string, u belay.ModelUsage) belay.ModelUsage {
	var best *Price
	for i := range prices {
		p := &prices[i]
		if (p.Model == "*" || strings.HasPrefix(model, p.Model)) && (best == nil || best.Model == "*" ||
			len(p.Model) > len(best.Model) && p.Model != "*") {
			best = p
		}
	}
	if best == nil {
		u.Money, u.UnpricedTokens = 0, u.Tokens()
		return u
	}
	const million = 1e6
	plain := max(0, u.InputTokens-u.CacheReadTokens-u.CacheWriteTokens)
	cost := float64(plain)*float64(best.Input) + float64(u.OutputTokens)*float64(best.Output) +
		float64(u.CacheReadTokens)*float64(best.CacheRead) + float64(u.CacheWriteTokens)*float64(best.CacheWrite)
	u.Money = belay.USDOf(cost / million / 1e9)
	u.UnpricedTokens = 0
	return u
}

// counted is the usage of one message.
type counted struct {
	id, model string
	belay.ModelUsage
}

// maxCounted is the number of newest messages whose usage may still grow. Claude Code writes a message in several
// lines, which follow one another, except for those of subagents at work.
const maxCounted = 256

// meter counts the usage of one run: by messages as they arrive, and exactly by the message result. Its methods are
// safe for concurrent use.
type meter struct {
	prices []Price
	limit  *MaxCost

	mu     sync.Mutex
	before belay.ModelUsage // the usage of earlier runs of the job
	done   belay.ModelUsage // messages that are no longer in recent
	recent []counted
	result *belay.ModelUsage
	turns  belay.ModelUsage // the usage of earlier turns of this run
	floor  belay.ModelUsage // the usage of the conversation before the command; unknown if blind
	blind  bool
	whole  belay.ModelUsage // the usage of the conversation, as the agent has reported it last
	log    *workflow.Log
	logged belay.ModelUsage
	over   error
	stop   func(error) // ends the command; nil while no command runs
}

// tokensOf returns a number of tokens that an agent reports, at most a thousand million million.
func tokensOf(n int64) int64 { return min(max(n, 0), 1e12) }

// message counts the usage of a message. The agent may report a message several times: each field counts with its
// largest value.
func (m *meter) message(id, model string, u *tokenCounts) {
	if m == nil || u == nil || id == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.recent, func(c counted) bool { return c.id == id })
	if i < 0 {
		if len(m.recent) == maxCounted {
			m.done = m.done.Add(priceOf(m.prices, m.recent[0].model, m.recent[0].ModelUsage))
			m.recent = slices.Delete(m.recent, 0, 1)
		}
		i = len(m.recent)
		m.recent = append(m.recent, counted{id: strings.Clone(id)})
	}
	c := &m.recent[i]
	if model != "" {
		c.model = strings.Clone(model[:min(len(model), maxName)])
	}
	c.ModelUsage = largest(c.ModelUsage, u.usage())
	m.checkLocked()
}

// continues tells the meter which conversation the next command has. earlier is the usage of the conversation before
// this job. It is nil if that is unknown; then only the messages of the command count.
func (m *meter) continues(continued bool, earlier *belay.ModelUsage) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor, m.blind = belay.ModelUsage{}, continued && earlier == nil
	if continued && earlier != nil {
		m.floor = earlier.Add(m.before).Add(m.turns)
	}
}

// ended takes the usage that the agent reports at its end: own is that of the command, and whole that of the whole
// conversation, which has also calls of models outside of messages. Claude Code counts a conversation on when it
// continues it.
func (m *meter) ended(own, whole belay.ModelUsage, priced bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	counted := m.countedLocked()
	u := largest(counted, own)
	money := counted.Money
	if !m.blind {
		rest := whole.Minus(m.floor)
		u = largest(u, rest)
		if priced {
			money = max(money, rest.Money)
		}
	}
	u.Money, u.UnpricedTokens = money, 0
	if money <= 0 && (m.blind || whole.Money > 0) || !priced {
		u.UnpricedTokens = counted.UnpricedTokens + max(0, u.Tokens()-counted.Tokens())
	}
	m.result, m.whole = &u, whole
	m.checkLocked()
}

// largest returns the larger values of the tokens of two usages, and the money of the first.
func largest(a, b belay.ModelUsage) belay.ModelUsage {
	return belay.ModelUsage{
		InputTokens: max(a.InputTokens, b.InputTokens), OutputTokens: max(a.OutputTokens, b.OutputTokens),
		CacheReadTokens:  max(a.CacheReadTokens, b.CacheReadTokens),
		CacheWriteTokens: max(a.CacheWriteTokens, b.CacheWriteTokens), Money: a.Money,
	}
}

func (m *meter) countedLocked() belay.ModelUsage {
	sum := m.done
	for i := range m.recent {
		sum = sum.Add(priceOf(m.prices, m.recent[i].model, m.recent[i].ModelUsage))
	}
	return sum
}

func (m *meter) totalLocked() belay.ModelUsage {
	if m.result != nil {
		return m.turns.Add(*m.result)
	}
	return m.turns.Add(m.countedLocked())
}

// renew makes the meter ready for another command of the same run.
func (m *meter) renew() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns, m.done, m.recent, m.result = m.totalLocked(), belay.ModelUsage{}, nil, nil
}

// total returns the usage of this run so far.
func (m *meter) total() belay.ModelUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.totalLocked()
}

// checkLocked records the usage in the log, and ends the command if the job exceeds its limit.
func (m *meter) checkLocked() {
	now := m.totalLocked()
	if now != m.logged && m.log != nil {
		m.logged = now
		if line, err := json.Marshal(now); err == nil {
			_, _ = m.log.Write(append(line, '\n')) // Close returns the error of an earlier Write
		}
	}
	if m.over == nil {
		if m.over = m.limit.over(m.before.Add(now)); m.over != nil && m.stop != nil {
			go m.stop(m.over)
		}
	}
}

// conversation returns the usage of the whole conversation, as the agent has reported it last.
func (m *meter) conversation() belay.ModelUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.whole
}

// exceeded returns the error of a job that exceeds its limit.
func (m *meter) exceeded() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// watch lets the meter end a command that exceeds the limit, until the returned function is called. The job may have
// exceeded the limit before: by the first message of the command, or in an earlier turn of this run.
func (m *meter) watch(stop func(error)) (over func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = stop
	if m.over != nil {
		go stop(m.over)
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stop = nil
	}
}

// charged is the usage that the execution has been charged with: that of the run Run, and Before, that of all earlier
// runs. The checkpoint that charges usage also stores it.
type charged struct {
	Run    belay.Token      `json:"run,omitempty"`
	Usage  belay.ModelUsage `json:"usage,omitzero"`
	Before belay.ModelUsage `json:"before,omitzero"`
}

// spent returns the usage that the runs from the token since on, before this run, have written to the log, by run.
func spent(ctx context.Context, since belay.Token) (belay.ModelUsage, error) {
	last := make(map[belay.Token]belay.ModelUsage)
	rest := make(map[belay.Token][]byte)
	const limit = 100
	for from := int64(0); ; {
		page, err := workflow.ReadLog(ctx, UsageLog, from, limit)
		if err != nil {
			return belay.ModelUsage{}, err
		}
		for _, c := range page {
			if from = c.N + 1; c.Token < since || c.Token >= workflow.Token(ctx) {
				continue
			}
			text := slices.Concat(rest[c.Token], c.Data)
			for {
				line, after, whole := strings.Cut(string(text), "\n")
				if !whole {
					break
				}
				var u belay.ModelUsage
				if json.Unmarshal([]byte(line), &u) == nil && u.Check() == nil {
					last[c.Token] = u
				}
				text = []byte(after)
			}
			rest[c.Token] = text
		}
		if len(page) < limit {
			break
		}
	}
	var sum belay.ModelUsage
	for _, u := range last {
		sum = sum.Add(u)
	}
	return sum, nil
}

// tokenCounts is the object usage of a message or a result.
type tokenCounts struct {
	Input    int64 `json:"input_tokens"`
	Created  int64 `json:"cache_creation_input_tokens"`
	FromRead int64 `json:"cache_read_input_tokens"`
	Output   int64 `json:"output_tokens"`
}

func (c *tokenCounts) usage() belay.ModelUsage {
	read, created := tokensOf(c.FromRead), tokensOf(c.Created)
	return belay.ModelUsage{
		InputTokens: tokensOf(c.Input) + read + created, OutputTokens: tokensOf(c.Output), CacheReadTokens: read,
		CacheWriteTokens: created,
	}
}

// chargeEvery is the interval at which the usage of a working agent is charged to its execution.
const chargeEvery = 15 * time.Second

// charging charges usage at an interval until the returned function is called.
func (s *saver) charging(ctx context.Context) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(chargeEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := s.charge(ctx); err != nil && ctx.Err() == nil {
				s.log.With(workflow.LogAttr(ctx)).WarnContext(ctx, "the usage of a running job could not be stored",
					"error", err)
			}
		}
	}()
	return func() {
		stop()
		<-over
	}
}

// charge stores usage that the execution has not been charged with.
func (s *saver) charge(ctx context.Context) error {
	return s.store(ctx, false, func(*interrupted) {})
}

// store changes the state for the next run. The same commit charges the usage so far. Unless always is set, it writes
// nothing if nothing has changed.
func (s *saver) store(ctx context.Context, always bool, change func(*interrupted)) error {
	s.state.Lock()
	defer s.state.Unlock()
	next := s.now
	change(&next)
	if s.meter != nil && next.Charged.Run == workflow.Token(ctx) {
		total := s.meter.total()
		if delta := total.Minus(s.sent); delta != (belay.ModelUsage{}) {
			workflow.AddUsage(ctx, delta)
			s.sent = total
		}
		next.Charged.Usage = s.sent
	}
	if next == s.now && !always {
		return nil
	}
	if err := workflow.Checkpoint(ctx, next); err != nil {
		return err
	}
	s.now = next
	return nil
}

// recover charges the execution with usage of earlier runs that were killed before they could, and lets this run be
// charged. It must be called before the agent starts, so that the log never has usage of a run that the state does not
// name.
func (s *saver) recover(ctx context.Context) error {
	c := s.now.Charged
	if c.Run != 0 {
		all, err := spent(ctx, c.Run)
		if err != nil {
			return fmt.Errorf("read the usage of earlier runs: %w", err)
		}
		if missing := all.Minus(c.Usage); missing.Tokens() > 0 || missing.Money > 0 {
			workflow.AddUsage(ctx, missing)
			c.Usage = all
		}
	}
	s.meter.before = c.Before.Add(c.Usage)
	return s.store(ctx, true, func(n *interrupted) {
		n.Charged = charged{Run: workflow.Token(ctx), Before: s.meter.before}
	})
}

// refuse returns an error if the earlier runs of the job have exceeded its limit.
func (m *meter) refuse() error { return m.limit.over(m.before) }

// close stores the rest of the log.
func (m *meter) close() error {
	if m == nil {
		return nil
	}
	return m.log.Close()
}

// lower returns the lower limits of two.
func (m *MaxCost) lower(n *MaxCost) *MaxCost {
	switch {
	case m == nil:
		return n
	case n == nil:
		return m
	}
	least := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return max(a, b)
		}
		return min(a, b)
	}
	return &MaxCost{least(m.Tokens, n.Tokens), belay.USD(least(int64(m.USD), int64(n.USD)))}
}

// charge charges the execution with the usage of a run that has ended, and reports the usage of all its runs.
func (r *Answer) charge(ctx context.Context, s *saver, turns int) error {
	m := s.meter
	if m == nil {
		return nil
	}
	if all := m.before.Add(m.total()); all != (belay.ModelUsage{}) || r.Usage != nil {
		dollars := float64(all.Money) / 1e9
		r.Usage = &Usage{
			InputTokens: all.InputTokens, OutputTokens: all.OutputTokens, CacheReadTokens: all.CacheReadTokens,
			CacheWriteTokens: all.CacheWriteTokens, CostUSD: dollars, UnpricedTokens: all.UnpricedTokens, Turns: turns,
		}
	}
	r.OverCost = m.exceeded() != nil
	if whole := m.conversation(); whole != (belay.ModelUsage{}) {
		r.Conversation = &whole
	}
	err := s.charge(ctx)
	if belay.CodeOf(err) == belay.CodeLeaseLost {
		return nil // the next run charges it
	}
	return err
}

// metered charges usage while a command works, and ends the command with stop if the job exceeds its limit. The
// returned function ends both.
func (s *saver) metered(ctx context.Context, stop func(error)) (end func()) {
	if s == nil || s.meter == nil {
		return func() {}
	}
	over, charged := s.meter.watch(stop), s.charging(ctx)
	return func() {
		over()
		charged()
	}
}
