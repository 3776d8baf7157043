package desk

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServeTools serves the Model Context Protocol on standard input and output until standard input
// ends. An agent gets the tools ask_human, checkpoint and report, which use the socket at path.
func ServeTools(ctx context.Context, path, version string) error {
	err := tools(path, version).Run(ctx, &mcp.StdioTransport{})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of the program is no error
	}
	return err
}

// inquiry, note and nothing are the arguments of the tools.
type (
	inquiry struct {
		Question string `json:"question" jsonschema:"The question, with all that the person needs to know to answer it."`
	}
	note struct {
		Text string `json:"text" jsonschema:"One line about what you do."`
	}
	nothing struct{}
)

// tools returns the MCP server with the tools of a job, whose worker listens at path.
func tools(path, version string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "belay", Version: version}, nil)
	mcp.AddTool(s, &mcp.Tool{
		Name: "ask_human", Description: "Ask the person who gave you this task, and get the answer. Use it before an " +
			"action that cannot be undone, and when the task is unclear. The person may answer after hours.",
	}, func(ctx context.Context, _ *mcp.CallToolRequest, in inquiry) (*mcp.CallToolResult, any, error) {
		text, err := Ask(ctx, path, in.Question)
		return said(text), nil, err
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "checkpoint", Description: "Store your commits and changes now, so that they survive the loss of " +
			"this machine.",
	}, func(ctx context.Context, _ *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		return said("The changes are stored."), nil, Checkpoint(ctx, path)
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "report", Description: "Show people a line about what you do, in a long task.",
	}, func(ctx context.Context, _ *mcp.CallToolRequest, in note) (*mcp.CallToolResult, any, error) {
		return said("People see it."), nil, Report(ctx, path, in.Text)
	})
	return s
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
