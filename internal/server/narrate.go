package server

import (
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/webui"
)

// narrate reads a line of an agent's output for the pages.
func narrate(line []byte) (all []webui.Said, known bool) {
	said, known := agentapi.Narrate(line)
	for _, s := range said {
		all = append(all, webui.Said{Kind: s.Kind, Name: s.Name, Text: s.Text})
	}
	return all, known
}
