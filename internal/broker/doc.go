// Package broker sends workers the ids of executions that are scheduled to them, through RabbitMQ.
//
// # Protocol
//
// The engine commits that an execution is scheduled to a worker, with a new token. Then it publishes
// a [Message] with three ids (execution, token, worker) to the queue of that worker. The worker
// accepts the execution at a server, under that token, and acknowledges the message after the answer.
// So a message is only a hint: it may be lost, late, repeated or forged, and changes nothing but the
// time at which a worker asks. A message whose token is not current is acknowledged and dropped.
//
// Each worker has a durable quorum queue. A message that stays in it for longer than [Options.TTL], or
// that the worker gives back too often, goes through a dead-letter exchange into the dead-letter queue,
// which all servers consume: see [Dead]. Dead-lettering is at least once, which RabbitMQ offers only
// for quorum queues that reject messages when they are full; so a full queue refuses messages, and
// [Broker.Publish] returns queue_full.
//
// # Declarations
//
// The arguments of a queue cannot change. So the name of each queue ends with a hash of its arguments
// and of the version of this package's declarations: a server with other arguments declares another
// queue, and nothing has to be deleted first. The former queue is drained: a [Receiver] that follows a
// new name still consumes the queues of the names before until they are empty, servers still consume
// the dead-letter queues of earlier versions, and RabbitMQ deletes a worker's queue that had no
// consumer for an hour more than the TTL, when all its messages have long been dead-lettered.
//
// # Connections
//
// Publishing and consuming have a connection each, because RabbitMQ stops reading from connections
// that publish while it has an alarm (too little memory or disk space). Declarations use the connection
// for consuming. A connection that ends is opened again, forever, with growing delays. [Broker.State]
// and [Receiver.State] tell the state of the connections, with errors that say what to do.
//
// # Failures of publishing
//
// Publish returns nil only after RabbitMQ has confirmed that it has the message on disk. The number of
// messages that are not confirmed yet is bounded. If the server is not connected, or has an alarm, Publish
// fails at once. If RabbitMQ does not confirm a message, or does not even read it, for
// [Options.ConfirmTimeout], the connection is closed and opened again. In all these cases RabbitMQ may have
// the message all the same.
package broker
