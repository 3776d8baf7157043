package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// NotificationTargets reads all targets of notifications, in the order of their names.
func (r *Reader) NotificationTargets(ctx context.Context) ([]belay.NotificationTargetInfo, error) {
	o, err := r.object(ctx, machine.TargetsRef())
	if err != nil {
		return nil, err
	}
	t, err := machine.TargetsOf(o)
	if err != nil {
		return nil, err
	}
	return t.View(), nil
}

// NotificationTarget reads one target of notifications.
func (r *Reader) NotificationTarget(ctx context.Context, name string) (belay.NotificationTargetInfo, error) {
	op := "read notification target " + name
	if err := belay.CheckTargetName(op, name); err != nil {
		return belay.NotificationTargetInfo{}, err
	}
	all, err := r.NotificationTargets(ctx)
	if err != nil {
		return belay.NotificationTargetInfo{}, err
	}
	for i := range all {
		if all[i].Name == name {
			return all[i], nil
		}
	}
	return belay.NotificationTargetInfo{}, &belay.Error{
		Code: belay.CodeNotFound, Op: op,
		Message: fmt.Sprintf("there is no target of notifications %s; `belay notify ls` lists them", name),
	}
}

// PutNotificationTarget creates a target of notifications or changes its terms.
func (e *Engine) PutNotificationTarget(
	ctx context.Context, p belay.NotificationTargetPut,
) (belay.NotificationTargetPutResult, error) {
	r, err := e.do(ctx, &machine.PutTarget{NotificationTargetPut: p})
	return belay.NotificationTargetPutResult{
		NotificationTargetInfo: r.NotificationTarget, Created: r.NotificationTarget.Version == 1 && !r.Replayed,
		Changed: err == nil && !r.Replayed,
	}, err
}

// ChangeNotificationTarget carries out an action on a target of notifications.
func (e *Engine) ChangeNotificationTarget(
	ctx context.Context, c belay.NotificationTargetChange,
) (belay.NotificationTargetInfo, error) {
	r, err := e.do(ctx, &machine.ChangeTarget{NotificationTargetChange: c})
	if err == nil && c.Action == belay.NotificationTargetRemove {
		var gone belay.NotificationTargetInfo
		gone.Name = c.Name
		return gone, nil
	}
	return r.NotificationTarget, err
}

// TestNotificationTarget sends a test to a target of notifications.
func (e *Engine) TestNotificationTarget(
	ctx context.Context, t belay.NotificationTargetTest,
) (belay.ExecutionID, error) {
	if t.Op.IsZero() {
		t.Op = belay.OpID(e.opt.IDs())
	}
	r, err := e.do(ctx, &machine.TestTarget{NotificationTargetTest: t})
	return r.ID, err
}

// targetsAge is the largest age of the targets with which a batch begins.
const targetsAge = time.Second

// targetList has the targets of notifications as they were read last. Every batch that may end executions needs them,
// so it reads them at most once in a second. An idle server reads nothing.
type targetList struct {
	store store.Store
	turn  chan struct{} // taken by the batch that reads the list

	mu      sync.Mutex
	read    time.Time // when the newest reading began; zero if the list must be read again
	list    *machine.Targets
	changes int // of the targets by this server
}

func newTargetList(s store.Store) *targetList {
	return &targetList{store: s, turn: make(chan struct{}, 1)}
}

// recent returns the targets as they were at most targetsAge ago.
func (t *targetList) recent(ctx context.Context) (*machine.Targets, error) {
	if list := t.known(); list != nil {
		return list, nil
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, errClosed
	}
	if list := t.known(); list != nil { // another batch has read it
		return list, nil
	}
	t.mu.Lock()
	began, changes := time.Now(), t.changes
	t.mu.Unlock()
	found, err := t.store.Query(store.Urgent(ctx), store.Query{
		Of: store.OneObject, Kind: machine.TargetsObject, Name: machine.TargetsRef().Name,
	})
	if err != nil {
		return nil, err
	}
	var o *machine.Object
	if len(found.Objects) > 0 {
		o = found.Objects[0]
	}
	list, err := machine.TargetsOf(o)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changes == changes {
		t.read, t.list = began, list
	}
	return list, nil
}

// known returns the list if it is young enough, and nil otherwise.
func (t *targetList) known() *machine.Targets {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.read.IsZero() || time.Since(t.read) >= targetsAge {
		return nil
	}
	return t.list
}

// observe forgets the list after a change by this server.
func (t *targetList) observe(b *batch) {
	for _, o := range b.changes.Objects {
		if o.Kind == machine.TargetsObject {
			t.mu.Lock()
			t.read, t.changes = time.Time{}, t.changes+1
			t.mu.Unlock()
		}
	}
}

// onHint does nothing: the list is never older than targetsAge.
func (t *targetList) onHint(store.Hint) {}

// maxDeliveries is about the largest number of deliveries to targets that one commit creates.
const maxDeliveries = 2000

// maxLabelled is the largest number of executions of a batch whose submissions are read because of labels: their inputs
// may be large.
const maxLabelled = 100

// targetsOf returns the targets of notifications for a batch that may end executions, and nil for another batch. If a
// target selects executions by labels, targetsOf adds their labels to the needs of the batch. It returns store.ErrSlow
// if the batch must be split, because it may create too many deliveries or read too many submissions.
func (c *committer) targetsOf(ctx context.Context, b *batch) (*machine.Targets, error) {
	var ending []belay.ExecutionID
	needed := false
	for _, x := range b.commands {
		ids, may := machine.MayEnd(x)
		needed = needed || may
		ending = append(ending, ids...)
	}
	if !needed || c.targets == nil {
		return nil, nil
	}
	list, err := c.targets.recent(ctx)
	if err == nil && len(b.commands) > 1 && (len(ending)*list.Ends() > maxDeliveries ||
		list.Labelled() && len(ending) > maxLabelled) {
		return nil, store.ErrSlow
	}
	if err == nil && list.Labelled() {
		b.need.Specs = append(b.need.Specs, ending...)
	}
	return list, err
}
