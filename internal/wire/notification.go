package wire

// Notification is the schema of belay.Notification, whose JSON has the same fields.
type Notification struct {
	URL    string   `json:"url" minLength:"1" maxLength:"2048" doc:"An http or https URL. A reference such as ${{ secrets.NAME }} may stand for the whole URL, or for a part of its path or query."`
	Format string   `json:"format,omitempty" enum:"event,slack" doc:"The body of the request. event, the default: the end as JSON, in the form of Standard Webhooks. slack: an object with a text."`
	On     []string `json:"on,omitempty" enum:"failed,succeeded,cancelled" maxItems:"3" doc:"The ends that are reported; without it, failed."`
	Secret string   `json:"secret,omitempty" maxLength:"200" doc:"A reference such as ${{ secrets.NAME }} to the secret that signs the request in the form of Standard Webhooks. Without it, the request is not signed."`
}
