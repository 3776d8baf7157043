package agent

import (
	"slices"
	"strings"
)

// preset is what is known about an agent that is in wide use.
type preset struct {
	// command begins a conversation and resume continues one. In both, permissionPlace
	// stands for the mode in which the agent asks for permissions.
	command, resume Template
	// partial is the flag with which the agent writes texts in pieces.
	partial string
	output  string
	env     []string
	// free is the mode in which nothing is asked for, and bounded that in which the
	// agent may edit files and nothing else. freeEnv goes with free.
	free, bounded string
	freeEnv       map[string]string
	// conversation is a script for sh that prints found if HOME has the conversation
	// "$1", and one that can be continued.
	conversation string
}

// permissionPlace stands for the mode of permissions in the commands of presets.
const permissionPlace = "{{permissions}}"

var presets = map[string]*preset{
	"claude": {
		command: claude("--session-id", sessionPlace, "--", placeholder),
		resume:  claude("--resume", sessionPlace, "--", goOn),
		partial: "--include-partial-messages",
		output:  OutputStreamJSON,
		env:     []string{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "CLAUDE_CODE_OAUTH_TOKEN"},
		free:    "bypassPermissions", bounded: "acceptEdits",
		// Without it Claude Code refuses to bypass permissions as root.
		freeEnv: map[string]string{"IS_SANDBOX": "1"},
		// A session that was interrupted before it had a message cannot be resumed.
		conversation: `grep -qs '"type":"user"' "$HOME"/.claude/projects/*/"$1".jsonl && echo found`,
	},
}

func claude(more ...string) Template {
	t := Template{"claude", "-p", "--output-format", "stream-json", "--verbose", "--permission-mode", permissionPlace}
	return append(t, more...)
}

// goOn is what a conversation that was interrupted is continued with.
const goOn = "You were interrupted: your process was ended from outside. This is the same workspace with what you " +
	"had done. " +
	"The command that ran last may have taken effect or not: look before you repeat it. " +
	"Continue from where you left off; if you had finished, give your final answer again."

// Presets are the names of the agents that need no command.
func Presets() []string { return []string{"claude"} }

// mode is the preset's mode of permissions.
func (p *preset) mode(free bool) string {
	if free {
		return p.free
	}
	return p.bounded
}

// of fills in a preset's mode of permissions, and has it write in pieces.
func (p *preset) of(t Template, free, pieces bool) Template {
	filled := make(Template, 0, len(t)+1)
	for _, a := range t {
		filled = append(filled, strings.ReplaceAll(a, permissionPlace, p.mode(free)))
	}
	if pieces {
		filled = slices.Insert(filled, 1, p.partial)
	}
	return filled
}
