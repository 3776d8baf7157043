package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"

	"github.com/belaydev/belay"
)

// Submit accepts an execution. Its ID must be set and serves as the operation's id.
type Submit struct {
	belay.Submission
	// Joined says that the submission is written in a transaction of its application. That
	// transaction may stay open for long, so the submission must not lock the gates that it names.
	Joined bool
	// Defaults are the values of policy fields that the submission leaves out: attempts,
	// backoff, the scheduled and the start timeout, and OnNoWorker. They do not belong to the
	// submission: its repetition may come with other defaults.
	Defaults belay.Policy
	// RunTrace, if set, returns the trace of a run of an execution with the given trace. A child gets the trace
	// of the run that starts it.
	RunTrace func(belay.ExecutionID, belay.Token, belay.Trace) belay.Trace
	swap     bool    // the rules submit it to change the mode of a resource
	own      bool    // a schedule or a webhook submits it
	delivers bool    // the rules submit it to report the end of an execution
	room     int     // the largest number of executions of its limit that have not ended; 0 for any number
	judged   *judged // the result of Judge; nil before Judge is called
}

// Judge checks the submission and computes its hash.
func (c *Submit) Judge() {
	if c.judged != nil {
		return
	}
	c.judged = &judged{err: c.check()}
	if c.judged.err != nil {
		return
	}
	c.judged.hash = c.hash(canonicalInput)
	if c.Idempotency != "" {
		c.judged.content = contentKey(&c.Submission)
	}
}

// Need asks the store for the execution, its key and its parent.
func (c *Submit) Need(n *Need) {
	n.Executions = append(n.Executions, c.ID)
	n.Specs = append(n.Specs, c.ID)
	if k := c.key(); k.Key != "" {
		n.Keys = append(n.Keys, k)
	}
	if c.Parent != nil {
		needLease(n, *c.Parent)
	}
	if l := c.Concurrency; l != nil && !c.Joined {
		id := belay.Gate(belay.GateLimit, l.Name)
		n.Counts = append(n.Counts, id)
		if l.WhenFull != belay.WaitWhenFull && l.WhenFull != "" || c.room > 0 {
			n.CountMembers = belay.MaxConcurrency + MaxHeads
		}
		if l.WhenFull == belay.ReplaceWhenFull {
			n.Members = append(n.Members, MemberQuery{Gate: id, Limit: MaxHeads})
		}
	}
	if c.Rate != nil && !c.Joined {
		n.Counts = append(n.Counts, belay.Gate(belay.GateRate, c.Rate.Name))
	}
}

// key is the key under which later submissions find the execution, without a text if there is none.
func (c *Submit) key() Key {
	if c.Idempotency == "" {
		return Key{c.Workflow, c.IdempotencyKey}
	}
	c.Judge()
	return Key{c.Workflow, c.judged.content}
}

func (c *Submit) apply(w *world) (Reply, error) {
	c.Judge()
	if c.judged.err != nil {
		return Reply{}, c.judged.err
	}
	hash := c.judged.hash
	if r, found, err := c.replay(w); found || err != nil {
		return r, err
	}
	var parent *Execution
	if c.Parent != nil {
		p, err := w.owner("submit child "+c.ParentKey, *c.Parent)
		if err != nil {
			return Reply{}, err
		}
		if c.ID != belay.ChildID(p.ID, p.Generation, c.ParentKey) {
			return Reply{}, refuse(belay.CodeInvalid, "submit", "the id is not that of the child %q", c.ParentKey)
		}
		parent = p
	}
	if err := c.atGates(w, parent); err != nil {
		return Reply{}, err
	}
	lane := c.lane()
	e := c.execution(lane.ID, w.Now)
	if parent != nil {
		e.Parent, e.Child, e.ParentGen = parent.ID, c.ParentKey, parent.Generation
		e.Trace = parent.Trace
		if c.RunTrace != nil {
			e.Trace = c.RunTrace(parent.ID, parent.Token, parent.Trace)
		}
	}
	w.execs[e.ID] = e
	w.changed(e)
	if !w.lanes[lane.ID] {
		w.lanes[lane.ID] = true
		w.out.Lanes = append(w.out.Lanes, lane)
	}
	spec := &Spec{
		Execution: e.ID, Generation: 1, Input: c.Input, Labels: c.Labels, WorkerLabels: c.WorkerLabels,
		Priority: c.Priority, Key: c.key().Key, Trigger: c.Trigger, TriggerPayload: c.TriggerPayload, Hash: hash,
	}
	if parent == nil {
		spec.CreatedBy = c.Actor
	}
	w.specs[e.ID] = spec
	w.out.Specs = append(w.out.Specs, spec)
	if spec.Key != "" {
		w.hold(KeyRow{Key: c.key(), Execution: e.ID, Hash: hash, At: w.Now})
	}
	if parent != nil {
		parent.Open++
		if parent.CancelBy != 0 {
			parent.Parted = 0 // makes the sweeper cancel the new child too; see Part
		}
		w.changed(parent)
	}
	w.join(e)
	w.markDue(e)
	return Reply{ID: e.ID}, nil
}

// replay answers a submission that was accepted before, found by its key or its id (guarantee G9). A
// submission with the idempotency content is found by its id first: its repetition gets the first
// answer again, even if the execution has failed and has given up its key since.
func (c *Submit) replay(w *world) (Reply, bool, error) {
	if row, ok := w.keys[c.key()]; ok && c.IdempotencyKey != "" {
		if !c.says(row.Hash) {
			return Reply{}, true, refuse(belay.CodeIdempotencyMismatch, "submit",
				"key %q of workflow %q belongs to %s, which was submitted with another body", c.IdempotencyKey,
				c.Workflow, row.Execution)
		}
		return Reply{ID: row.Execution, Replayed: true}, true, nil
	}
	if e := w.execs[c.ID]; e != nil {
		// A repetition of the id with another key is refused, because that key does not lead to this
		// execution.
		if s := w.specs[c.ID]; s == nil || !c.says(s.Hash) || s.Key != c.key().Key {
			return Reply{}, true, refuse(belay.CodeIdempotencyMismatch, "submit",
				"id %s was submitted with another body or key", c.ID)
		}
		return Reply{ID: e.ID, Replayed: true}, true, nil
	}
	if c.Idempotency != "" {
		if id, ok := c.joins(w); ok {
			return Reply{ID: id, Replayed: true}, true, nil
		}
	}
	return Reply{}, false, nil
}

func (c *Submit) execution(lane LaneID, now Time) *Execution {
	e := &Execution{
		ID: c.ID, Workflow: c.Workflow, Version: c.Version, Queue: c.Queue, Lane: lane, External: c.External,
		State: belay.Pending, Seq: 1, Generation: 1, InputGen: 1, CreatedAt: now, DueAt: max(now, At(c.DueAt)),
		New: true, Notify: c.Notify, Trace: c.Trace.Valid(),
	}
	if e.DueAt > now {
		e.Reason, e.ReasonText = "delayed", "submitted to run later"
	}
	if !c.Gates.IsZero() {
		g := c.Gates
		e.Gates = &g
	}
	if c.Budget != nil {
		e.Budget = c.Budget.Cost
	}
	if p := c.policy(); p != (belay.Policy{}) {
		e.Policy = &p
	}
	return e
}

// policy is the policy of the submission with the defaults of the server.
func (c *Submit) policy() belay.Policy {
	p, d := c.Policy, c.Defaults
	setDefault(&p.MaxAttempts, d.MaxAttempts)
	setDefault(&p.BackoffBase, d.BackoffBase)
	setDefault(&p.BackoffCap, d.BackoffCap)
	setDefault(&p.ScheduledTimeout, d.ScheduledTimeout)
	setDefault(&p.StartTimeout, d.StartTimeout)
	if !c.External { // no worker runs an external execution
		setDefault(&p.OnNoWorker, d.OnNoWorker)
	}
	return p
}

func (c *Submit) check() error {
	const op = "submit"
	if c.ID.IsZero() {
		return refuse(belay.CodeInvalid, op, "the execution has no id")
	}
	if belay.IsNotificationID(c.ID) && !c.delivers {
		return refuse(belay.CodeInvalid, op, "%s", deliveryID)
	}
	if c.Workflow == belay.PublishWorkflow && !c.delivers {
		return refuse(belay.CodeForbidden, op, "the workflow %s is Belay's own; an operator sets a target with an "+
			"exchange (`belay notify set`) to publish messages", c.Workflow)
	}
	if c.Document != "" { // Backend.Submit has replaced it by the text
		return refuse(belay.CodeInvalid, op, "a stored document can only be submitted with Backend.Submit")
	}
	setDefault(&c.Queue, "default")
	setDefault(&c.Trigger, belay.TriggerManual)
	for _, n := range []struct {
		what, s string
		needed  bool
	}{
		{"workflow", c.Workflow, true}, {"version", c.Version, false}, {"queue", c.Queue, true},
		{"idempotency key", c.IdempotencyKey, false}, {"child key", c.ParentKey, c.Parent != nil},
		{"trigger", string(c.Trigger), true}, {"actor", c.Actor, false},
	} {
		if err := checkName(op, n.what, n.s, n.needed); err != nil {
			return err
		}
	}
	child := c.Parent != nil && c.Trigger == belay.TriggerParent
	if c.Trigger != belay.TriggerManual && !child && !c.own && !c.swap && !c.delivers {
		return refuse(belay.CodeInvalid, op,
			"the trigger is %q; only Belay itself sets it, for what a schedule or another source starts", c.Trigger)
	}
	if err := c.checkIdempotency(op); err != nil {
		return err
	}
	if c.Parent == nil && c.ParentKey != "" {
		return refuse(belay.CodeInvalid, op, "a child key without a parent's lease")
	}
	if c.DueAt.After(latest.Time()) {
		return refuse(belay.CodeInvalid, op, "due_at lies beyond the year 9999")
	}
	if c.Priority < -belay.MaxPriority || c.Priority > belay.MaxPriority {
		return refuse(belay.CodeInvalid, op, "priority %d is not within -%d and %d", c.Priority, belay.MaxPriority,
			belay.MaxPriority)
	}
	if err := checkLabels(op, "labels", c.Labels); err != nil {
		return err
	}
	if err := checkLabels(op, "worker labels", c.WorkerLabels); err != nil {
		return err
	}
	if err := checkPolicy(op, c.Policy); err != nil {
		return err
	}
	if c.External && c.Policy.OnNoWorker == belay.FailNoWorker {
		return refuse(belay.CodeInvalid, op,
			"on_no_worker fail is for executions that workers run; an external execution waits for its owner")
	}
	if err := c.checkGates(op); err != nil {
		return err
	}
	if c.Budget != nil && c.Parent != nil {
		return refuse(belay.CodeInvalid, op, "a child has no budget of its own: its costs count for its root")
	}
	if err := checkBudget(op, c.Budget); err != nil {
		return err
	}
	if len(c.Notify) > 0 && c.Parent != nil {
		return refuse(belay.CodeInvalid, op, "a child has no notifications of its own: notify belongs to its root")
	}
	if err := belay.CheckNotifications(op, c.Notify); err != nil {
		return err
	}
	if err := CheckPayload(op, "the trigger payload", c.TriggerPayload, belay.MaxTriggerPayload); err != nil {
		return err
	}
	return CheckPayload(op, "the input", c.Input, belay.MaxPayload)
}

func (c *Submit) checkIdempotency(op string) error {
	_, _, derived := contentHashes(c.IdempotencyKey)
	switch {
	case c.Idempotency != "" && c.Idempotency != belay.IdempotencyByContent:
		return refuse(belay.CodeInvalid, op, "idempotency is %q; it can only be content", c.Idempotency)
	case c.Parent != nil && (c.IdempotencyKey != "" || c.Idempotency != ""):
		return refuse(belay.CodeInvalid, op, "a child takes no idempotency key: its parent and child key name it")
	case c.Idempotency != "" && c.IdempotencyKey != "":
		return refuse(belay.CodeInvalid, op, "an idempotency key and idempotency content exclude each other; give one")
	case reserved(c.IdempotencyKey) && !c.own:
		return refuse(belay.CodeInvalid, op,
			"idempotency keys that begin with %s, %s, %s or %s are those of schedules and webhooks; choose another key",
			slotPrefix, deliveryPrefix, testPrefix, replayPrefix)
	case forDelivery(c.IdempotencyKey) && !c.delivers:
		return refuse(belay.CodeInvalid, op,
			"idempotency keys that begin with %s belong to notifications; choose another key", belay.NotificationPrefix)
	case derived:
		return refuse(belay.CodeInvalid, op,
			"the idempotency key has the form of the keys that Belay makes for idempotency content; choose another key")
	}
	return nil
}

func (c *Submit) checkGates(op string) error {
	if l := c.Concurrency; l != nil {
		if err := checkName(op, "the limit's name", l.Name, true); err != nil {
			return err
		}
		if err := checkLimit(op, l.Max); err != nil {
			return err
		}
		if reserved(l.Name) && !c.own {
			return refuse(belay.CodeInvalid, op,
				"limits whose names begin with %s belong to schedules; choose another name", slotPrefix)
		}
		if forDelivery(l.Name) && !c.delivers {
			return refuse(belay.CodeInvalid, op,
				"limits whose names begin with %s belong to notifications; choose another name",
				belay.NotificationPrefix)
		}
		switch l.WhenFull {
		case "", belay.WaitWhenFull:
		case belay.RejectWhenFull, belay.ReplaceWhenFull:
			if c.Joined {
				return refuse(belay.CodeInvalid, op,
					"when_full %s cannot be decided in a transaction of the application; submit it after the commit",
					l.WhenFull)
			}
			if l.WhenFull == belay.ReplaceWhenFull && l.Max > MaxHeads {
				return refuse(belay.CodeInvalid, op, "when_full replace takes a limit of at most %d, not %d",
					MaxHeads, l.Max)
			}
		default:
			return refuse(belay.CodeInvalid, op, "when_full is %q; it can be wait, reject or replace", l.WhenFull)
		}
	}
	if r := c.Rate; r != nil {
		if err := checkName(op, "the rate's name", r.Name, true); err != nil {
			return err
		}
		if err := checkRate(op, r.Max, r.Per); err != nil {
			return err
		}
	}
	if r := c.Requires; r != nil {
		if err := checkName(op, "the resource's name", r.Resource, true); err != nil {
			return err
		}
		if err := checkName(op, "the resource's mode", r.Mode, true); err != nil {
			return err
		}
	}
	if c.Swap != "" && !c.swap {
		return refuse(belay.CodeInvalid, op, "only Belay itself starts the swap of a resource")
	}
	if forDelivery(c.Target) && !c.delivers {
		return refuse(belay.CodeInvalid, op,
			"targets whose names begin with %s belong to notifications; choose another name", belay.NotificationPrefix)
	}
	return checkName(op, "the target", c.Target, false)
}

func (c *Submit) lane() Lane {
	return NewLane(c.Queue, c.Workflow, c.Version, c.Priority, c.WorkerLabels)
}

// says reports whether a stored hash is the hash of an equal submission. Submissions that an older
// server accepted have the hash of an older version.
func (c *Submit) says(hash [32]byte) bool {
	return hash == c.judged.hash || hash == c.hash(plainInput)
}

// hash returns a hash of the whole submission except its id, its key, its trigger with the payload, its
// actor and its trace. version is the version of the form of the input; it becomes the last byte of the hash.
func (c *Submit) hash(version byte) [32]byte {
	b := make([]byte, 0, 256+len(c.Input))
	for _, s := range []string{c.Workflow, c.Version, c.Queue, c.ParentKey} {
		b = appendString(b, s)
	}
	b = appendInt(b, int64(c.Priority))
	b = appendInt(b, int64(At(c.DueAt)))
	b = appendMap(b, c.Labels)
	b = appendMap(b, c.WorkerLabels)
	b = appendString(b, string(c.Policy.Text()))
	if c.External {
		b = append(b, 1)
	}
	if !c.Gates.IsZero() {
		b = appendString(b, string(GatesText(&c.Gates)))
	}
	if c.Budget != nil {
		b = appendInt(appendString(b, "budget"), int64(c.Budget.Cost))
	}
	if len(c.Notify) > 0 {
		b = appendString(appendString(b, "notify"), string(NotifyText(c.Notify)))
	}
	if version == plainInput {
		return sha256.Sum256(appendJSON(b, c.Input))
	}
	hash := sha256.Sum256(appendCanonical(b, c.Input))
	hash[len(hash)-1] = version
	return hash
}

// appendJSON appends a JSON text without the white space between its parts, because two transports
// of the same body may differ in that white space.
func appendJSON(b, text []byte) []byte {
	if !bytes.ContainsAny(text, " \t\r\n") {
		return append(b, text...)
	}
	buffer := bytes.NewBuffer(b)
	if json.Compact(buffer, text) != nil {
		return append(b, text...)
	}
	return buffer.Bytes()
}

// NewLane returns the lane of the executions with these properties. An empty queue stands for the
// default queue.
func NewLane(queue, workflow, version string, priority int, labels map[string]string) Lane {
	setDefault(&queue, "default")
	b := make([]byte, 0, 96)
	b = appendString(b, queue)
	b = appendString(b, workflow)
	b = appendString(b, version)
	b = appendInt(b, int64(priority))
	b = appendMap(b, labels)
	h := sha256.Sum256(b)
	var id LaneID
	for _, x := range h[:8] {
		id = id<<8 | LaneID(x)
	}
	return Lane{
		ID: id & (1<<63 - 1), Queue: queue, Workflow: workflow, Version: version, Priority: priority, Labels: labels,
	}
}

// Takes reports whether a worker may claim the executions of the lane.
func (l Lane) Takes(w belay.WorkerSpec) bool {
	if !slices.Contains(w.Queues, l.Queue) ||
		!slices.Contains(w.Workflows, belay.Registration{Workflow: l.Workflow, Version: l.Version}) {
		return false
	}
	for k, v := range l.Labels {
		if have, ok := w.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

func appendString(b []byte, s string) []byte { return append(appendInt(b, int64(len(s))), s...) }

func appendMap(b []byte, m map[string]string) []byte {
	b = appendInt(b, int64(len(m)))
	if len(m) == 0 {
		return b
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = appendString(appendString(b, k), m[k])
	}
	return b
}
