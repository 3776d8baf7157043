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

	mu   sync.Mutex
	read time.Time // when the newest reading began; zero if the list must be read again
	list *machine.Targets
}

// recent returns the targets as they were at most targetsAge ago.
func (t *targetList) recent(ctx context.Context) (*machine.Targets, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.read.IsZero() && now.Sub(t.read) < targetsAge {
		return t.list, nil
	}
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
	t.read, t.list = now, list
	return list, nil
}

// observe forgets the list after a change by this server.
func (t *targetList) observe(b *batch) {
	for _, o := range b.changes.Objects {
		if o.Kind == machine.TargetsObject {
			t.mu.Lock()
			t.read = time.Time{}
			t.mu.Unlock()
		}
	}
}

// onHint does nothing: the list is never older than targetsAge.
func (t *targetList) onHint(store.Hint) {}

// targetsOf returns the targets of notifications for a batch that may end executions, and nil for another batch. If a
// target selects executions by labels, targets adds their labels to the needs of the batch.
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
	if err == nil && list.Labelled() {
		b.need.Specs = append(b.need.Specs, ending...)
	}
	return list, err
}
