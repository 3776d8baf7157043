package agentapi

import "github.com/belaydev/belay/internal/agent"

// Narrate reads one line of an agent's structured output; see [agent.Narrate].
func Narrate(line []byte) (said []agent.Progress, known bool) { return agent.Narrate(line) }
