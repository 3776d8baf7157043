package wire

import "github.com/belaydev/belay"

// StreamTokenRequest asks for a token for the streams of an execution.
type StreamTokenRequest struct {
	Execution belay.ExecutionID `json:"execution"`
}

// StreamToken is a token for the streams of an execution.
type StreamToken struct {
	AccessToken string `json:"access_token" doc:"The value of the query parameter access_token. It is empty on a server that wants no key, whose streams need no token."`
	ExpiresInMS int64  `json:"expires_in_ms" doc:"The time in which a stream can be opened with the token."`
}
