package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/webui"
)

// forms are the addresses to which the web UI sends forms.
func forms() []httpapi.PageForm {
	var all []httpapi.PageForm
	for _, f := range webui.Forms() {
		all = append(all, httpapi.PageForm(f))
	}
	return all
}

// activity tells the web UI what this server did in the last minutes.
func (s *Server) activity() ([]webui.Minute, time.Time) {
	recent, since := s.recent.Minutes()
	all := make([]webui.Minute, len(recent))
	for i, m := range recent {
		all[i] = webui.Minute(m)
	}
	return all, since
}

// visit tells the web UI who sends a request.
func visit(r *http.Request, v httpapi.Visitor) *http.Request {
	return webui.WithVisitor(r, webui.Visitor(v))
}

// conversations continues the conversations of agents for the pages.
type conversations struct{ *agentapi.Service }

// Reply implements [webui.Conversations].
func (c conversations) Reply(ctx context.Context, x *belay.Execution, message, key string) (belay.ExecutionID, error) {
	got, err := c.Service.Reply(ctx, x, &agentapi.Reply{Prompt: message}, key)
	return got.ID, err
}

// Key implements [webui.Conversations].
func (conversations) Key(job belay.ExecutionID) string { return agentapi.ContinuationKey(job) }

// conversations returns nil if the server has no agent.
func (s *Server) conversations() webui.Conversations {
	if s.agents == nil {
		return nil
	}
	return conversations{s.agents}
}

// inputOf describes the input of the text of a document for the forms of the web UI.
func inputOf(text string) (*webui.Input, error) {
	d, problems := definition.Parse("document", []byte(text))
	if d == nil {
		return nil, problems
	}
	in := &webui.Input{Document: d.Name, About: d.Description, None: d.Input == nil}
	if in.None {
		return in, nil
	}
	for _, p := range d.Input.Properties() {
		in.Properties = append(in.Properties, webui.Property(p))
	}
	in.Check = func(input json.RawMessage) []webui.Mismatch {
		v, err := definition.Decode(input)
		if err != nil {
			return []webui.Mismatch{{Message: err.Error()}}
		}
		if v = d.Input.Fill(v); v == nil {
			v = map[string]any{}
		}
		var all []webui.Mismatch
		for _, m := range d.Input.Mismatches(v) {
			all = append(all, webui.Mismatch(m))
		}
		return all
	}
	return in, nil
}
