package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	amqp "github.com/rabbitmq/amqp091-go"
)

// version is the version of the declarations. It grows if the meaning of a queue changes although its
// arguments do not.
const version = 1

// The limits of the queues. Messages have about 150 bytes; a publisher that has the permission to write
// to a queue but is not Belay must not fill the memory of its consumers either.
const (
	maxMessages     = 10_000    // in the queue of one worker
	maxBytes        = 4 << 20   // likewise
	maxDeadMessages = 1_000_000 // in the dead-letter queue
	maxDeadBytes    = 256 << 20 // likewise
	maxDeliveries   = 8         // of one message; a message whose headers no client can read ends all connections
	idle            = time.Hour // how long after its last message has expired an unused queue is deleted
)

// declaration is a queue that this package declares.
type declaration struct {
	name string
	args amqp.Table
}

// declare completes a name with the hash of the queue's arguments.
func declare(name string, args amqp.Table) declaration {
	return declaration{name: name + "." + hash(args), args: args}
}

// hash returns a short text that differs if the arguments, or the version of the declarations, differ.
func hash(args amqp.Table) string {
	h := sha256.New()
	fmt.Fprintf(h, "version=%d\n", version)
	for _, k := range slices.Sorted(maps.Keys(args)) {
		fmt.Fprintf(h, "%s=%T:%v\n", k, args[k], args[k])
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// deadLetters declares the dead-letter queue. After the last delivery RabbitMQ drops the message.
func deadLetters(prefix string) declaration {
	return declare(prefix+".dead", amqp.Table{
		"x-queue-type":       "quorum",
		"x-overflow":         "reject-publish",
		"x-max-length":       int64(maxDeadMessages),
		"x-max-length-bytes": int64(maxDeadBytes),
		"x-delivery-limit":   int64(maxDeliveries),
	})
}

// deadExchange is the name of the dead-letter exchange. It changes together with the queue behind it.
func deadExchange(prefix string) string { return deadLetters(prefix).name }

// workerQueue declares the queue of a worker.
func workerQueue(prefix string, w belay.WorkerID, ttl time.Duration) declaration {
	return declare(prefix+".worker."+w.String(), amqp.Table{
		"x-queue-type":              "quorum",
		"x-message-ttl":             ttl.Milliseconds(),
		"x-expires":                 (ttl + idle).Milliseconds(),
		"x-dead-letter-exchange":    deadExchange(prefix),
		"x-dead-letter-routing-key": "dead",
		"x-dead-letter-strategy":    "at-least-once",
		"x-overflow":                "reject-publish",
		"x-max-length":              int64(maxMessages),
		"x-max-length-bytes":        int64(maxBytes),
		"x-delivery-limit":          int64(maxDeliveries),
	})
}

// workerOf returns the worker to whom a queue belongs, whatever its hash is. It reports false if the
// name is not the name of a worker's queue.
func workerOf(prefix, queue string) (belay.WorkerID, bool) {
	rest, ok := strings.CutPrefix(queue, prefix+".worker.")
	id, tail, cut := strings.Cut(rest, ".")
	if !ok || !cut || len(tail) != 8 {
		return belay.WorkerID{}, false
	}
	w, err := belay.ParseWorkerID(id)
	return w, err == nil && w.String() == id
}
