package machine

import "github.com/belaydev/belay"

// Mailbox records the queue in the message broker from which a worker gets its messages. Only executions of
// workers with a mailbox are scheduled by claims that assign.
type Mailbox struct {
	Worker belay.WorkerID
	// Queue is the name of the queue. Without a name the mailbox is closed: the executions that are
	// scheduled to the worker are due again.
	Queue string
}

// Need asks the store for the session, and for the executions that it owns if the mailbox closes.
func (c *Mailbox) Need(n *Need) {
	n.Workers = append(n.Workers, c.Worker)
	if c.Queue == "" {
		n.Held = append(n.Held, c.Worker)
	}
}

func (c *Mailbox) apply(w *world) (Reply, error) {
	const op = "mailbox"
	if err := checkName(op, "the queue", c.Queue, false); err != nil {
		return Reply{}, err
	}
	x, err := w.session(op, c.Worker)
	if err != nil {
		return Reply{}, err
	}
	if x.Spec.External {
		return Reply{}, refuseExternal(op, x)
	}
	cond := x.condition()
	if cond.Mailbox != c.Queue {
		cond.Mailbox = c.Queue
		x.Why = cond.why()
		w.changedWorker(x)
	}
	var r Reply
	if c.Queue == "" {
		for _, e := range w.held(x.ID) {
			if e.State == belay.Scheduled {
				r.Follow = append(r.Follow, &Undeliver{e.ID, x.ID, e.Token, 0})
			}
		}
	}
	return r, nil
}
