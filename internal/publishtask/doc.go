// Package publishtask is the built-in workflow belay.publish: the delivery of an end, or of an alert, as a message to
// an exchange of RabbitMQ.
//
// The rules create the deliveries, in the commit of the end, for the targets of operators that name an exchange. Each
// run publishes the message once, and succeeds after RabbitMQ has confirmed it. Every error is transient, since an
// operator can repair each of them: a missing exchange, a missing permission, a RabbitMQ that does not answer.
//
// # Order
//
// If an execution is reopened and ends again, the deliveries of its ends to one target are published in the order of
// these ends. A delivery exists before the execution is reopened, so the delivery of a later end finds those of earlier
// ends in the store, by their ids. It sleeps until they have ended. A delivery that has failed for good is not waited
// for: if an operator requeues it, its message comes later, and so does a repeat by a run that has lost its lease. The
// header sequence, which grows with each end of an execution, tells consumers the order in these cases too.
//
// # Protection
//
// The input of a delivery decides where a message goes, and only the rules make it: they refuse submissions and forks
// of the workflow, and other inputs for its executions. A run refuses executions whose id is not one that only the
// rules can give, in case an older version has accepted the submission. The exchanges of Belay itself, and the default
// exchange, are refused.
package publishtask
