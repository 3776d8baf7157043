package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// apply writes changes. New rows come before the changes to rows, which may be
// the same ones.
func (t *tx) apply(c *machine.Changes) error {
	for _, step := range []func(*machine.Changes) error{
		t.delayOwned, t.writeExecutions, t.writeSpecs, t.writeKeys, t.writeRuns, t.writeCheckpoints,
		t.writeSignals, t.writeDeeds, t.writeLetters, t.writeGrace, t.writeWorkers, t.writeChunks,
		t.writeSums, t.writeAPIKeys,
	} {
		if err := step(c); err != nil {
			return err
		}
	}
	return nil
}

// changed runs a statement that must change one row.
func (t *tx) changed(what string, id any, text string) error {
	n, err := t.exec(t.ctx, text)
	if err != nil {
		return err
	}
	if n != 1 {
		return &belay.Error{Code: belay.CodeInternal, Op: "commit", Message: fmt.Sprintf("%s %v to change is not there", what, id)}
	}
	return nil
}

func (t *tx) writeExecutions(c *machine.Changes) error {
	t.written = c.Executions
	fresh := make(map[mask][]*machine.Execution)
	var now, was hot
	for _, e := range c.Executions {
		now.of(e)
		if e.New {
			was = hot{}
			m := now.since(&was) | needed
			fresh[m] = append(fresh[m], e)
			continue
		}
		old := t.found[e.ID]
		if old == nil {
			return &belay.Error{Code: belay.CodeInternal, Op: "commit", Message: "execution " + e.ID.String() + " to change was not loaded"}
		}
		was.of(old)
		m := now.since(&was)
		if m == 0 {
			continue
		}
		now.bind(&t.args, m, e)
		t.args.blob(e.ID[:])
		if err := t.changed("execution", e.ID, t.store.texts.update(m)); err != nil {
			return err
		}
	}
	for m, rows := range fresh {
		err := t.insert(t.ctx, t.store.texts.insert(m), len(rows), func(i int, a *args) error {
			bindFixed(a, rows[i])
			now.of(rows[i])
			now.bind(a, m, rows[i])
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func bindFixed(a *args, e *machine.Execution) {
	a.blob(e.ID[:])
	a.idOrNull((*[16]byte)(&e.Parent))
	a.textOrNull(e.Child)
	a.int(int64(e.ParentGen))
	a.text(e.Workflow)
	a.textOrNull(e.Version)
	a.text(e.Queue)
	if e.Policy == nil {
		a.add(nil)
	} else {
		a.textOrNull(string(e.Policy.Text()))
	}
	a.int(int64(e.CreatedAt))
}

// texts are the statements for sets of columns, made once each. Only the writer
// uses them.
type texts struct {
	updates map[mask]string
	inserts map[mask]*table
}

func (x *texts) update(m mask) string {
	text, ok := x.updates[m]
	if !ok {
		text = "UPDATE executions SET " + strings.Join(m.names(), " = ?, ") + " = ? WHERE id = ?"
		x.updates[m] = text
	}
	return text
}

func (x *texts) insert(m mask) *table {
	t, ok := x.inserts[m]
	if !ok {
		t = newTable("executions", fixedColumns+", "+strings.Join(m.names(), ", "))
		x.inserts[m] = t
	}
	return t
}

var specTable = newTable("specs", specColumns+", input")

func (t *tx) writeSpecs(c *machine.Changes) error {
	return t.insert(t.ctx, specTable, len(c.Specs), func(i int, a *args) error {
		s := c.Specs[i]
		labels, err := labelsText(s.Labels)
		if err != nil {
			return err
		}
		workerLabels, err := labelsText(s.WorkerLabels)
		if err != nil {
			return err
		}
		a.blob(s.Execution[:])
		a.int(int64(s.Generation))
		a.blob(s.Hash[:])
		a.int(int64(s.Priority))
		a.text(string(s.Trigger))
		a.textOrNull(s.Key)
		a.textOrNull(labels)
		a.textOrNull(workerLabels)
		a.blobOrNull(s.Input)
		return nil
	})
}

var keyTable = newTable("idempotency", "workflow, key, execution, hash, at")

func (t *tx) writeKeys(c *machine.Changes) error {
	return t.insert(t.ctx, keyTable, len(c.Keys), func(i int, a *args) error {
		k := &c.Keys[i]
		a.text(k.Workflow)
		a.text(k.Key.Key)
		a.blob(k.Execution[:])
		a.blob(k.Hash[:])
		a.int(int64(k.At))
		return nil
	})
}

// writeGrace moves the end of all sessions; those that are changed anyway have
// it already and are written after it.
func (t *tx) writeGrace(c *machine.Changes) error {
	if c.Grace == 0 {
		return nil
	}
	t.args.int(microseconds(c.Grace))
	t.args.int(int64(t.now))
	t.args.int(int64(machine.Time(math.MaxInt64).Add(0))) // times stop somewhere
	_, err := t.exec(t.ctx, "UPDATE workers SET expires_at = min(max(expires_at + ?, ? + ttl), ?) WHERE ended_at IS NULL")
	return err
}

// delayOwned moves the times from which the delays of owned executions are counted, after
// the clock has leapt. Executions that are changed anyway are written after it.
func (t *tx) delayOwned(c *machine.Changes) error {
	if c.Leap == 0 {
		return nil
	}
	t.store.cache.drop()
	t.args.int(microseconds(c.Leap))
	t.args.int(int64(t.now))
	_, err := t.exec(t.ctx, delayOwned)
	return err
}

const delayOwned = `
UPDATE executions
SET started_at = max(started_at, min(started_at + ?1, ?2)), run_at = max(run_at, min(run_at + ?1, ?2)),
    progress_at = max(progress_at, min(progress_at + ?1, ?2)), scheduled_at = max(scheduled_at, min(scheduled_at + ?1, ?2)),
    cancel_by = cancel_by + ?1
WHERE worker IS NOT NULL`

func (t *tx) writeWorkers(c *machine.Changes) error {
	for _, x := range c.Workers {
		if x.New {
			if err := t.insertWorker(x); err != nil {
				return err
			}
			continue
		}
		t.args.int(int64(x.State))
		t.args.int(int64(x.HeartbeatAt))
		t.args.int(int64(x.ExpiresAt))
		t.args.intOrNull(int64(x.EndedAt))
		t.args.textOrNull(x.EndReason)
		t.args.int(x.ClaimNo)
		t.args.int(x.ClaimFloor)
		t.args.blob(x.ID[:])
		err := t.changed("worker", x.ID, `
UPDATE workers
SET state = ?, heartbeat_at = ?, expires_at = ?, ended_at = ?, end_reason = ?, claim_no = ?, claim_floor = ?
WHERE id = ?`)
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) insertWorker(x *machine.Worker) error {
	spec, err := json.Marshal(x.Spec)
	if err != nil {
		return err
	}
	t.args.blob(x.ID[:])
	t.args.int(int64(x.State))
	t.args.int(int64(x.OpenedAt))
	t.args.int(int64(x.HeartbeatAt))
	t.args.int(int64(x.ExpiresAt))
	t.args.intOrNull(int64(x.EndedAt))
	t.args.textOrNull(x.EndReason)
	t.args.int(x.ClaimNo)
	t.args.int(x.ClaimFloor)
	t.args.text(string(spec))
	t.args.int(microseconds(x.Spec.TTL.D()))
	_, err = t.exec(t.ctx, "INSERT INTO workers ("+workerColumns+", ttl) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	return err
}
