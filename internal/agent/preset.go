package agent

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/belaydev/belay/internal/agent/desk"
)

// preset is the built-in configuration of a known agent program.
type preset struct {
	// command starts a conversation and resume continues a conversation. In both commands,
	// permissionPlace is replaced by the permission mode.
	command, resume Template
	// reply continues a conversation with a message, which the agent reads with its id from standard
	// input. An agent ignores a message whose id it has seen before.
	reply Template
	// partial is the flag that makes the agent write each text in parts, as the text grows.
	partial string
	output  string
	env     []string
	// free is the permission mode in which the agent may use every tool. bounded is the mode in
	// which the agent may only edit files. freeEnv are the additional variables of the agent in the
	// mode free.
	free, bounded string
	freeEnv       map[string]string
	// conversation is a shell script that gets the id of a conversation as "$1". The script prints
	// "found" if the directory HOME contains that conversation and the agent can continue it.
	conversation string
	// message is a shell script that gets the id of a conversation as "$1" and the id of a message as
	// "$2". The script prints "found" if the conversation has that message.
	message string
	// tools returns the arguments that give the agent the tools of an MCP server.
	tools func(config string) []string
}

// permissionPlace is the text in the commands of presets that is replaced by the permission mode.
const permissionPlace = "{{permissions}}"

var presets = map[string]*preset{
	"claude": {
		command: claude("--session-id", sessionPlace, "--", placeholder),
		resume:  claude("--resume", sessionPlace, "--", goOn),
		reply:   claude("--input-format", "stream-json", "--resume", sessionPlace),
		partial: "--include-partial-messages",
		output:  OutputStreamJSON,
		env:     []string{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "CLAUDE_CODE_OAUTH_TOKEN"},
		free:    "bypassPermissions", bounded: "acceptEdits",
		// Without this variable, Claude Code refuses to bypass permissions as root.
		freeEnv: map[string]string{"IS_SANDBOX": "1"},
		// Claude Code cannot resume a session that was interrupted before its first message.
		conversation: `grep -qs '"type":"user"' "$HOME"/.claude/projects/*/"$1".jsonl && echo found`,
		message:      `grep -Fqs "\"uuid\":\"$2\"" "$HOME"/.claude/projects/*/"$1".jsonl && echo found`,
		tools: func(config string) []string {
			return []string{
				"--mcp-config", config, "--allowedTools",
				"mcp__belay__ask_human,mcp__belay__checkpoint,mcp__belay__report",
			}
		},
	},
}

func claude(more ...string) Template {
	t := Template{"claude", "-p", "--output-format", "stream-json", "--verbose", "--permission-mode", permissionPlace}
	return append(t, more...)
}

// goOn is the prompt that the agent gets when it continues an interrupted conversation.
const goOn = "You were interrupted: your process was ended from outside. This is the same workspace with what you " +
	"had done. " +
	"The command that ran last may have taken effect or not: look before you repeat it. " +
	"Continue from where you left off; if you had finished, give your final answer again."

// Presets returns the names of the presets.
func Presets() []string { return []string{"claude"} }

// withTools adds the MCP server of Belay to the arguments of the agent: the program tool, which
// reaches the worker through the socket.
func (p *preset) withTools(argv []string, tool, socket string) []string {
	type server struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}
	config, err := json.Marshal(map[string]map[string]server{"mcpServers": {
		"belay": {tool, []string{"mcp"}, map[string]string{desk.Variable: socket}},
	}})
	if err != nil {
		return argv // cannot happen, because all values are texts
	}
	return slices.Insert(slices.Clone(argv), 1, p.tools(string(config))...)
}

// mode returns the name of the permission mode: p.free if the agent may use every tool, else the
// mode in which it may only edit files.
func (p *preset) mode(free bool) string {
	if free {
		return p.free
	}
	return p.bounded
}

// withMode puts the permission mode into a command. If pieces is true, it also adds the flag that
// makes the agent write its texts in parts.
func (p *preset) withMode(t Template, free, pieces bool) Template {
	filled := make(Template, 0, len(t)+1)
	for _, a := range t {
		filled = append(filled, strings.ReplaceAll(a, permissionPlace, p.mode(free)))
	}
	if pieces {
		filled = slices.Insert(filled, 1, p.partial)
	}
	return filled
}
