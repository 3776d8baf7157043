package webui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Bounds of the page of a job.
const (
	talkBytes  = 96 << 10 // the end of the output that the page reads
	mostTurns  = 300      // what the agent said and did, from the end of the output
	patchBytes = 64 << 10 // the beginning of the patch that the page shows
	mostAnswer = 16 << 10 // the answer
)

// jobWorkflows are the workflows whose executions are jobs: of an agent, and of commands.
var jobWorkflows = []string{agentWorkflow, "command"}

const agentWorkflow = "agent"

func isJob(e *belay.Execution) bool { return slices.Contains(jobWorkflows, e.Workflow) }

// jobInput has the fields of the inputs of both workflows that the page shows; docs/agents.md and docs/jobs.md have
// all fields.
type jobInput struct {
	Prompt  string         `json:"prompt"`
	Repo    string         `json:"repo"`
	Ref     string         `json:"ref"`
	Timeout belay.Duration `json:"timeout"`
	// Continues names the job that this job continues.
	Continues *struct {
		Job belay.ExecutionID `json:"job"`
	} `json:"continues"`
	Steps []struct {
		Name string   `json:"name"`
		Argv []string `json:"argv"`
	} `json:"steps"`
}

// jobOutput has the fields of the outputs of both workflows that the page shows.
type jobOutput struct {
	Text       string   `json:"text"`
	Cut        bool     `json:"text_cut"`
	ExitCode   *int     `json:"exit_code"`
	TimedOut   bool     `json:"timed_out"`
	SaidFailed bool     `json:"said_failed"`
	Denied     []string `json:"denied"`
	Session    string   `json:"session"`
	Resumed    bool     `json:"resumed"`
	Continued  bool     `json:"continued"`
	Commit     string   `json:"commit"`
	Notes      []string `json:"notes"`
	DurationMS int64    `json:"duration_ms"`
	Bytes      int64    `json:"bytes"`
	Walls      string   `json:"walls"`
	Exceeded   string   `json:"exceeded"`
	Usage      *struct {
		InputTokens  int64   `json:"input_tokens"`
		OutputTokens int64   `json:"output_tokens"`
		CostUSD      float64 `json:"cost_usd"`
		Turns        int     `json:"turns"`
	} `json:"usage"`
	Changes *jobChanges `json:"changes"`
}

// jobChanges names the artifacts with the changes of a job.
type jobChanges struct {
	Bundle     string `json:"bundle"`
	Patch      string `json:"patch"`
	Diff       string `json:"diff"`
	Commits    int    `json:"commits"`
	Files      int    `json:"files"`
	Insertions int    `json:"insertions"`
	Deletions  int    `json:"deletions"`
	Lost       string `json:"lost"`
}

// names returns the artifacts that a page offers: not HOME, which may contain credentials of the agent.
func (c *jobChanges) names() []string {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc([]string{c.Bundle, c.Patch, c.Diff}, func(s string) bool { return s == "" })
}

// Said is something that an agent said or did, according to a line of its output.
type Said struct {
	Kind string // text, tool, tool_result, system or result
	Name string // of the tool
	Text string
}

// jobPage is the page of a job.
type jobPage struct {
	ID, Workflow string
	State        state
	Summary      []span
	Terms        []term
	Prompt       *payload
	Commands     []string
	Turns        []turn
	Earlier      bool // the output has an earlier part
	Answer       *payload
	Changes      *changesView
	Error        *payload
	Question     *payload // the question for which the agent waits; nil if it does not wait
	Answers      string   // the address of the form that answers it
	Conversation conversation

	Reload *reload // nil when the job has ended
}

// turn is a part of the transcript.
type turn struct {
	Kind, Class string
	Name, Text  string
	More        string // what was cut
}

// changesView shows the changes of a job.
type changesView struct {
	Counts string
	Lost   string
	Files  []download
	Bundle string // the name of the bundle's file
	Patch  *diffView
}

// download is a link to an artifact.
type download struct{ Name, Address string }

// job shows the transcript, the changes and the cost of a job.
func (p *pages) job(ctx context.Context, r *http.Request) (view, error) {
	e, err := p.jobOf(ctx, r)
	if err != nil {
		return view{}, err
	}
	why, err := p.backend.Explain(ctx, e.ID)
	if err != nil {
		return view{}, err
	}
	var in jobInput
	var out jobOutput
	_ = json.Unmarshal(e.Input, &in)   // another form is shown on the page of the execution
	_ = json.Unmarshal(e.Output, &out) // as above
	now := p.options.Now()
	d := &jobPage{
		ID: e.ID.String(), Workflow: excerpt(nameOf(e), maxLine), State: stateOf(e),
		Summary: spans(why.Summary), Terms: jobTerms(e, &in, &out, now), Prompt: block(in.Prompt),
	}
	for _, s := range in.Steps[:min(len(in.Steps), 20)] {
		d.Commands = append(d.Commands, excerpt(strings.Join(s.Argv, " "), maxLine))
	}
	if e.Error != nil {
		d.Error = block(e.Error.Message)
	}
	if out.Text != "" {
		d.Answer = &payload{Text: terminal(excerpt(out.Text, mostAnswer))}
		if len(out.Text) > mostAnswer || out.Cut {
			d.Answer.Cut = bytesOf(len(out.Text))
		}
	}
	log, err := p.tailOf(ctx, e.ID, outputLog, talkBytes)
	if err != nil {
		return view{}, err
	}
	if log != nil {
		d.Turns, d.Earlier = p.turns(log.Text)
		d.Earlier = d.Earlier || log.Cut
	}
	if e.State == belay.Waiting {
		if err := p.question(ctx, e.ID, d); err != nil {
			return view{}, err
		}
	}
	if d.Conversation, err = p.conversation(ctx, e, &in); err != nil {
		return view{}, err
	}
	if d.Changes, err = p.changes(ctx, e, out.Changes); err != nil {
		return view{}, err
	}
	v := view{template: "job", Title: "Job · " + d.State.Word, Page: d}
	if !e.State.Terminal() {
		at, off := "/executions/"+d.ID+"/job", r.URL.Query().Get("live") == "off"
		d.Reload = &reload{Start: at, Stop: at + "?live=off", Off: off, On: !off, Period: livePeriod}
		v.Refresh, v.Live = d.Reload.seconds(), d.Reload.live(ofExecution(e.ID, e.Seq))
	}
	return v, nil
}

// question adds the question for which an agent waits to its page.
func (p *pages) question(ctx context.Context, id belay.ExecutionID, d *jobPage) error {
	q, err := p.asked(ctx, id, "")
	if q.Signal != "" {
		d.Question, d.Answers = block(q.Text), answerPath(id, q.Signal)
	}
	return err
}

// question is a question of an agent, and the name of the signal that answers it.
type question struct {
	Text   string `json:"text"`
	Signal string `json:"signal"`
}

// asked returns the newest question of an agent, or the one that a signal answers; zero if there is none.
func (p *pages) asked(ctx context.Context, id belay.ExecutionID, signal string) (question, error) {
	log, err := p.tailOf(ctx, id, "questions", talkBytes)
	if err != nil || log == nil {
		return question{}, err
	}
	lines := strings.Split(strings.TrimSpace(log.Text), "\n")
	if signal == "" {
		lines = lines[len(lines)-1:]
	}
	for _, text := range slices.Backward(lines) {
		var q question
		if json.Unmarshal([]byte(text), &q) == nil && q.Signal != "" && (signal == "" || q.Signal == signal) {
			return q, nil
		}
	}
	return question{}, nil
}

// jobOf reads the execution that an address names, which must be a job.
func (p *pages) jobOf(ctx context.Context, r *http.Request) (*belay.Execution, error) {
	id, err := belay.ParseExecutionID(r.PathValue("id"))
	if err != nil {
		return nil, nothingThere()
	}
	e, err := p.backend.Execution(ctx, id)
	if err == nil && !isJob(&e) {
		err = &belay.Error{Code: belay.CodeNotFound, Message: "This execution is no job of an agent or of commands."}
	}
	return &e, err
}

// jobTerms returns the facts about a job.
func jobTerms(e *belay.Execution, in *jobInput, out *jobOutput, now time.Time) []term {
	var all []term
	add := func(name, value string) {
		if value != "" {
			all = append(all, term{Name: name, Value: excerpt(value, 600)})
		}
	}
	if out.ExitCode != nil {
		add("Exit code", strconv.Itoa(*out.ExitCode))
	}
	add("Took", took(e, now))
	if out.DurationMS > 0 {
		add("Last run of the command", short(time.Duration(out.DurationMS)*time.Millisecond))
	}
	add("Attempt", strconv.Itoa(e.Attempt))
	if e.CostTokens > 0 {
		add("Cost in tokens", e.CostTokens.String())
	}
	if u := out.Usage; u != nil {
		add("Tokens of the agent", fmt.Sprintf("%d in, %d out", u.InputTokens, u.OutputTokens))
		if u.Turns > 0 {
			add("Turns", strconv.Itoa(u.Turns))
		}
		if u.CostUSD > 0 {
			add("Cost by the agent", fmt.Sprintf("%.4f USD", u.CostUSD))
		}
	}
	add("Repository", in.Repo)
	add("Ref", in.Ref)
	add("Commit", out.Commit)
	add("Session", out.Session)
	add("Sandbox", out.Walls)
	add("Limits reached", out.Exceeded)
	add("Denied tools", strings.Join(out.Denied[:min(len(out.Denied), 20)], ", "))
	switch {
	case out.Continued:
		add("Continued", "with the conversation and the changes of an interrupted run")
	case out.Resumed:
		add("Continued", "with the changes of an interrupted run")
	}
	if out.TimedOut {
		add("Timeout", "it exceeded its time limit")
	}
	if out.SaidFailed {
		add("Agent", "it reported a failure")
	}
	for _, n := range out.Notes[:min(len(out.Notes), 20)] {
		add("Note", n)
	}
	return all
}

// turns makes the transcript of the end of an output. Lines that are no structured output are text, as a terminal shows
// them. earlier says that the output has more turns than the page.
func (p *pages) turns(text string) (all []turn, earlier bool) {
	var plain []string
	flush := func() {
		if s := strings.Trim(terminal(strings.Join(plain, "\n")), "\n"); strings.TrimSpace(s) != "" {
			all = append(all, turnOf("output", "", s))
		}
		plain = nil
	}
	for l := range strings.SplitSeq(text, "\n") {
		if p.options.Narrate != nil && strings.HasPrefix(strings.TrimSpace(l), "{") {
			if said, known := p.options.Narrate([]byte(l)); known {
				flush()
				for _, s := range said {
					if s.Kind == "tool" {
						s.Text = toolText(s.Text)
					}
					if s.Text != "" || s.Name != "" {
						all = append(all, turnOf(s.Kind, s.Name, terminal(s.Text)))
					}
				}
				continue
			}
		}
		plain = append(plain, l)
	}
	flush()
	n := max(0, len(all)-mostTurns)
	return all[n:], n > 0
}

// turnWords are the words for the kinds of turns.
var turnWords = map[string]string{
	"text": "agent", "tool": "tool", "tool_result": "result of the tool", "system": "system", "result": "end",
	"output": "output",
}

func turnOf(kind, name, text string) turn {
	const most = 4 << 10
	limit := most
	if kind == "output" {
		limit = talkBytes
	}
	t := turn{Kind: cmp.Or(turnWords[kind], "agent"), Class: "plain", Name: excerpt(name, 100), Text: text}
	if turnWords[kind] != "" {
		t.Class = kind
	}
	if len(text) > limit {
		t.Text, t.More = excerpt(text, limit), bytesOf(len(text)-limit)+" more"
	}
	return t
}

// toolText makes the input of a tool readable: an object of texts has a line for each, and other JSON is indented.
func toolText(text string) string {
	var texts map[string]string
	if json.Unmarshal([]byte(text), &texts) != nil {
		if in := show(json.RawMessage(text)); json.Valid([]byte(text)) && in != nil {
			return in.Text
		}
		return text
	}
	if len(texts) == 1 {
		for _, v := range texts {
			return v
		}
	}
	var names, lines []string
	for n := range texts {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		lines = append(lines, n+": "+texts[n])
	}
	return strings.Join(lines, "\n")
}

// changes reads the beginning of the patch of a job, and makes the links to its artifacts.
func (p *pages) changes(ctx context.Context, e *belay.Execution, c *jobChanges) (*changesView, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // a job without changes
	}
	v := &changesView{Lost: excerpt(c.Lost, maxMessage)}
	if c.Commits > 0 {
		v.Counts = several(c.Commits, "commit")
	}
	if c.Files > 0 {
		v.Counts = joined(v.Counts, fmt.Sprintf("%s changed, +%d −%d lines", several(c.Files, "file"), c.Insertions,
			c.Deletions))
	}
	for _, name := range c.names() {
		v.Files = append(v.Files, download{excerpt(name, 100), fileAt(e.ID, name)})
	}
	if c.Bundle != "" {
		v.Bundle = fileName(e.ID, c.Bundle)
	}
	diff := cmp.Or(c.Diff, c.Patch)
	if diff == "" {
		return v, nil
	}
	text, more, err := p.beginning(ctx, e.ID, diff, patchBytes)
	if err != nil {
		return nil, err
	}
	v.Patch = diffOf(text, 2000)
	if more || v.Patch.More != "" {
		v.Patch.More = "This is only the beginning of the patch; the file has the whole."
	}
	return v, nil
}

// beginning reads the beginning of an artifact, one chunk at a time, because each may be large.
func (p *pages) beginning(ctx context.Context, id belay.ExecutionID, name string, most int) (text string, more bool,
	err error) {
	var b []byte
	for n := int64(0); len(b) <= most; {
		chunks, err := p.backend.Chunks(ctx, belay.ChunkQuery{Execution: id, Name: name, From: n, Limit: 1})
		if err != nil {
			return "", false, err
		}
		if len(chunks) == 0 {
			return string(b), false, nil
		}
		b = append(b, chunks[0].Data...)
		n = chunks[0].N + 1
	}
	return string(b[:most]), true, nil
}
