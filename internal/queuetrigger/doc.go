// Package queuetrigger delivers the messages of queues in RabbitMQ to webhooks of the scheme amqp.
//
// # Protocol
//
// The Service of each server with a broker consumes the queues of all these webhooks, so several servers share the
// messages of a queue. Each message becomes a delivery ([webhook.EventOf]), by the same rules as a signed HTTP request:
// the filter, the input, the id of the delivery, and the deliveries that the webhook remembers.
//
//   - The message is acknowledged after the Backend has stored the delivery. If the server or the connection ends in
//     between, RabbitMQ delivers the message again, and the Backend finds the id: nothing starts twice.
//   - The message is rejected if it can never be a delivery of these terms, or if no execution can be made of it. The
//     dead-letter exchange of the queue gets it. RabbitMQ drops it if the queue has none, which no client can find out.
//   - If the Backend cannot store the delivery now, or a limit is full, the message stays with this server, which tries
//     again with growing delays. It is neither acknowledged nor given back, so there is no loop of redeliveries.
//
// # Changes of webhooks
//
// A Service lists the webhooks when the engine reports a change, and every half minute in case a report is lost. A
// consumption belongs to one version of a webhook, and a delivery names this version: so no message of a queue is a
// delivery to terms that name another queue. When the version changes, and when a webhook is paused or removed, the
// consumption ends, and RabbitMQ gives the messages that have no answer to the next consumer.
package queuetrigger
