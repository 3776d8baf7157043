package agentapi

import "github.com/belaydev/belay"

// The types below describe the parameters and headers of the routes in the OpenAPI document. The
// handlers read parameters and headers without these types.
type (
	executeParameters struct {
		Key string `header:"Idempotency-Key" maxLength:"200" doc:"A repeat finds the first job."`
	}
	listParameters struct {
		Status string   `query:"status" enum:"queued,waiting,running,completed,failed,timeout,error" doc:"Only jobs with this status."`
		Repo   string   `query:"repo" maxLength:"200" doc:"Only jobs of this repository, as their requests named it."`
		Labels []string `query:"label" doc:"name=value or name:value; may be repeated: a job must have all of them."`
		Cursor string   `query:"cursor" maxLength:"200" doc:"The field next of the previous page."`
		Limit  int      `query:"limit" minimum:"1" maximum:"100" doc:"20, unless said otherwise."`
	}
	jobParameters struct {
		ID   belay.ExecutionID `path:"id" doc:"The job's id."`
		Wait string            `query:"wait" doc:"How long to wait for the end of the job: a duration like 30s, or seconds; 60 s at most."`
		Last string            `header:"Last-Event-ID" doc:"Of a stream: the id of the last event that was seen."`
	}
	logParameters struct {
		ID   belay.ExecutionID `path:"id" doc:"The job's id."`
		Last string            `header:"Last-Event-ID" doc:"The id of the last event that was seen."`
	}
	diffParameters struct {
		ID belay.ExecutionID `path:"id" doc:"The job's id."`
	}
	diffHeaders struct {
		Name string `header:"Content-Disposition" doc:"The name of a file for the diff."`
		Cut  string `header:"Belay-Diff-Cut" enum:"true,false" doc:"Whether this is only the beginning of the diff; the last line says so too."`
	}
	cancelParameters struct {
		ID  belay.ExecutionID `path:"id" doc:"The job's id."`
		Key string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the action: repeated, it is done once."`
	}
	replyParameters struct {
		ID  belay.ExecutionID `path:"id" doc:"The newest job of the conversation."`
		Key string            `header:"Idempotency-Key" maxLength:"200" doc:"A repeat finds the first job."`
	}
	answerParameters struct {
		ID belay.ExecutionID `path:"id" doc:"The job's id."`
	}
	responseParameters struct {
		ID     string `path:"id" doc:"The id of the response: resp_ and the id of its job."`
		Stream string `query:"stream" doc:"true is refused: a response cannot be streamed again."`
	}
	cancelResponseParameters struct {
		ID  string `path:"id" doc:"The id of the response: resp_ and the id of its job."`
		Key string `header:"Idempotency-Key" maxLength:"200" doc:"Names the action: repeated, it is done once."`
	}
	modelParameters struct {
		Model string `path:"model" doc:"The name of the model."`
	}

	acceptedHeaders struct {
		Location string `header:"Location" doc:"The address of the job."`
		Replayed string `header:"Idempotency-Replayed" enum:"true" doc:"The job was there before."`
	}
	chatHeaders struct {
		Execution belay.ExecutionID `header:"X-Execution-Id" doc:"The id of the job that answers the chat, and of its execution."`
		Replayed  string            `header:"Idempotency-Replayed" enum:"true" doc:"The job was there before."`
		Again     string            `header:"X-Should-Retry" enum:"false" doc:"OpenAI's clients must not ask again by themselves: the same request would end the same."`
	}
)
