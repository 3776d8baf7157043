package agentapi

import (
	"net/http"
	"reflect"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// responseRoutes are the routes of responses.
func (d *endpoint) responseRoutes() []httpapi.Route {
	answer, fault := reflect.TypeFor[Response](), reflect.TypeFor[ChatError]()
	return []httpapi.Route{
		{
			ID: "createResponse", Method: http.MethodPost, Path: "/v1/responses",
			Summary: "Get a response of the agent",
			Scopes:  []belay.Scope{belay.ScopeSubmit},
			Doc: "The request has OpenAI's format, and any model is accepted. The last message is the question; the " +
				"earlier messages are the conversation so far.",
			Request: reflect.TypeFor[executeParameters](), Headers: reflect.TypeFor[chatHeaders](),
			Body: reflect.TypeFor[ResponseRequest](), Answer: answer, Stream: true, Events: responseEvents(),
			Refuse: refuseChat, Fault: fault, Handler: d.respond,
		},
		{
			ID: "getResponse", Method: http.MethodGet, Path: "/v1/responses/{id}", Summary: "Read a response",
			Scopes:  []belay.Scope{belay.ScopeRead, belay.ScopeSubmit},
			Request: reflect.TypeFor[responseParameters](),
			Answer:  answer, Refuse: refuseChat, Fault: fault, Handler: d.response,
		},
		{
			ID: "cancelResponse", Method: http.MethodPost, Path: "/v1/responses/{id}/cancel",
			Summary: "Cancel the job of a response",
			Scopes:  []belay.Scope{belay.ScopeSubmit, belay.ScopeOperate},
			Request: reflect.TypeFor[cancelResponseParameters](),
			Answer:  answer, Also: []int{http.StatusConflict}, Refuse: refuseChat, Fault: fault,
			Handler: d.cancelResponse,
		},
	}
}

// responseEvents are the events of a streamed response.
func responseEvents() []httpapi.Event {
	state, item, part := reflect.TypeFor[ResponseEvent](), reflect.TypeFor[ResponseItemEvent](),
		reflect.TypeFor[ResponsePartEvent]()
	return []httpapi.Event{
		{Schema: "ResponseCreatedEvent", Name: "response.created", Data: state},
		{Schema: "ResponseInProgressEvent", Name: "response.in_progress", Data: state},
		{Schema: "ResponseItemAddedEvent", Name: "response.output_item.added", Data: item},
		{Schema: "ResponsePartAddedEvent", Name: "response.content_part.added", Data: part},
		{
			Schema: "ResponseTextDeltaEvent", Name: "response.output_text.delta",
			Data: reflect.TypeFor[ResponseDeltaEvent](),
		},
		{
			Schema: "ResponseTextDoneEvent", Name: "response.output_text.done",
			Data: reflect.TypeFor[ResponseTextEvent](),
		},
		{Schema: "ResponsePartDoneEvent", Name: "response.content_part.done", Data: part},
		{Schema: "ResponseItemDoneEvent", Name: "response.output_item.done", Data: item},
		{Schema: "ResponseCompletedEvent", Name: "response.completed", Data: state},
		{Schema: "ResponseIncompleteEvent", Name: "response.incomplete", Data: state},
		{Schema: "ResponseFailedEvent", Name: "response.failed", Data: state},
	}
}
