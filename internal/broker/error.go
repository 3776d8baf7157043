package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/belaydev/belay"
	amqp "github.com/rabbitmq/amqp091-go"
)

// explain turns an error of the connection or of RabbitMQ into one that says what to do. what is the
// operation, as in "connect to RabbitMQ".
func (o Options) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var known *belay.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	host, vhost, user := o.place()
	var text string
	code, wait := belay.CodeUnavailable, time.Duration(0)
	var e *amqp.Error
	switch {
	case !errors.As(err, &e):
		text = fmt.Sprintf("RabbitMQ at %s cannot be reached: %v", host, err)
	case isUnreadable(err):
		text = fmt.Sprintf("RabbitMQ at %s delivered a message whose headers cannot be read, which ended the "+
			"connection; RabbitMQ gives such a message up after a few deliveries; find the program that publishes to "+
			"Belay's queues", host)
	case e.Code == amqp.AccessRefused && (isLogin(e) || errors.Is(err, amqp.ErrCredentials)):
		code, wait = belay.CodeUnauthorized, o.later
		text = fmt.Sprintf("RabbitMQ at %s refuses the user %q or its password; check the URL of the broker in the "+
			"configuration, or set the password with: rabbitmqctl change_password %s PASSWORD", host, user, user)
	case e.Code == amqp.AccessRefused:
		code, wait = belay.CodeForbidden, o.later
		text = fmt.Sprintf("the user %q lacks a permission in RabbitMQ's virtual host %q (%s); give it with: %s",
			user, vhost, e.Reason, o.permit(vhost, user))
	case e.Code == amqp.NotAllowed:
		code, wait = belay.CodeForbidden, o.later
		text = fmt.Sprintf("RabbitMQ at %s does not let the user %q into the virtual host %q (%s); create it with "+
			"rabbitmqctl add_vhost, permit it with %s, and check the limits of connections", host, user, vhost,
			e.Reason, o.permit(vhost, user))
	case e.Code == amqp.NotFound:
		code = belay.CodeNotFound
		text = fmt.Sprintf("a queue or exchange of Belay in RabbitMQ's virtual host %q is missing (%s); a server "+
			"declares it again", vhost, e.Reason)
	case e.Code == amqp.PreconditionFailed:
		code, wait = belay.CodeConflict, o.later
		text = fmt.Sprintf("RabbitMQ refuses (%s); if another program declared this queue or exchange, delete it, or "+
			"set another prefix", e.Reason)
	case e.Code == amqp.NotImplemented:
		code, wait = belay.CodeInvalid, o.later
		text = fmt.Sprintf("RabbitMQ at %s cannot do this (%s); Belay needs RabbitMQ 3.10 or newer, with the feature "+
			"flags quorum_queue and stream_queue enabled", host, e.Reason)
	case e.Code == amqp.ConnectionForced:
		text = fmt.Sprintf("RabbitMQ at %s, or its operator, closed the connection (%s)", host, e.Reason)
	default:
		text = fmt.Sprintf("the connection to RabbitMQ at %s ended: %s", host, e.Reason)
	}
	return &belay.Error{Code: code, Op: what, Message: o.hide(ownPort.ReplaceAllString(text, "")),
		RetryAfter: wait}
}

// ownPort matches the local address in an error of a connection. Its port differs in each attempt, and without it an
// error is logged once.
var ownPort = regexp.MustCompile(`\S+:\d+->`)

// isUnreadable reports whether a connection ended because the library could not read a frame. The library
// keeps only the text of its own error.
func isUnreadable(err error) bool {
	var e *amqp.Error
	return errors.As(err, &e) && !e.Server && e.Reason == amqp.ErrSyntax.Error()
}

// isLogin reports whether RabbitMQ refused the login and not an action.
func isLogin(e *amqp.Error) bool {
	return strings.Contains(strings.ToLower(e.Reason), "login was refused")
}

// permit returns the command that gives a user the permissions that Belay needs.
func (o Options) permit(vhost, user string) string {
	p := regexp.QuoteMeta(o.Prefix)
	return fmt.Sprintf(`rabbitmqctl set_permissions -p '%s' '%s' '^%s\.' '^(%s\.|amq\.default$)' '^%s\.'`,
		vhost, user, p, p, p)
}

// hide removes the password from a text, in case an error of the system or of RabbitMQ repeats it.
func (o Options) hide(text string) string {
	uri, err := amqp.ParseURI(o.URL)
	if err != nil || len(uri.Password) < 4 || uri.Password == uri.Username {
		return text
	}
	return strings.ReplaceAll(text, uri.Password, "***")
}

// unavailable makes an error for a caller who may try again later.
func unavailable(op, format string, args ...any) error {
	return &belay.Error{Code: belay.CodeUnavailable, Op: op, Message: fmt.Sprintf(format, args...)}
}
