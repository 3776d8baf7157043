package run

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// record is the data of a wait's checkpoints. A wait with a timeout first saves its duration; the
// age of that checkpoint, by the store's clock, shows how much of the duration has passed. A wait's
// last checkpoint contains its result.
type record struct {
	Sleep   belay.Duration `json:"sleep,omitempty"`
	Timeout belay.Duration `json:"timeout,omitempty"`

	// Refused says that the wait has consumed a signal with a payload of the wrong type. The next run
	// waits anew, for the whole timeout.
	Refused bool `json:"refused,omitempty"`

	Ended   string            `json:"ended,omitempty"`
	Payload json.RawMessage   `json:"payload,omitempty"`
	Child   belay.ExecutionID `json:"child,omitzero"`
}

// The values of record.Ended.
const (
	endedSignal  = "signal"
	endedChild   = "child"
	endedTimeout = "timeout"
)

// begin marks the name of a wait as used, and returns the checkpoint that earlier runs have saved
// for the wait.
func (r *Run) begin(op call, key string) (entry, record, error) {
	var rec record
	e, err := r.take(op, key, belay.KindWait)
	if err != nil || e.kind == 0 {
		return e, rec, err
	}
	if err := json.Unmarshal(e.data, &rec); err != nil {
		return e, rec, fmt.Errorf("%s: read its checkpoint: %w", op, err)
	}
	return e, rec, nil
}

// saveWait saves a checkpoint of a wait. began is when the wait began, for the checkpoint of its end; zero otherwise.
func (r *Run) saveWait(key string, rec record, consumes int64, began time.Time) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return belay.Permanent(err)
	}
	s := belay.Save{Kind: belay.KindWait, Key: key, Data: data, Consumes: consumes}
	if !began.IsZero() {
		s.Took = time.Since(began)
	}
	return r.save(s)
}

// until returns the time at which a wait of duration d ends. age is how old the wait's first
// checkpoint was, by the store's clock, when the execution was claimed.
func (r *Run) until(d, age time.Duration) time.Time { return r.began.Add(d - age) }

// Sleep waits until d has passed since the first run of the execution reached this sleep.
func Sleep(ctx context.Context, name, key string, d time.Duration) error {
	c, full, err := within(ctx, "sleep", name, key)
	if err != nil {
		return err
	}
	r := c.r
	e, rec, err := r.begin(call{"sleep", name}, full)
	if err != nil {
		return err
	}
	if e.kind != 0 && rec.Sleep == 0 {
		return refuse(call{"sleep", name}, "%q was another kind of wait in an earlier run; use another name", full)
	}
	until := r.until(rec.Sleep.D(), e.age)
	if e.kind == 0 {
		if d <= 0 {
			return nil
		}
		if err := r.pass(ctx); err != nil {
			return err
		}
		if err := r.saveWait(full, record{Sleep: belay.Duration(d)}, 0, time.Time{}); err != nil {
			return err
		}
		until = time.Now().Add(d) // d counts from the saved checkpoint, so this time is never too early
	}
	if !time.Now().Before(until) {
		return nil
	}
	_, _, err = r.await(ctx, &wait{b: c.b, name: full, text: fmt.Sprintf("sleep %q", full), until: until})
	return err
}

// Forever is the value of timeout for a wait without a timeout.
const Forever time.Duration = -1

// WaitSignal waits for a signal and consumes it. It returns ErrTimeout when timeout has passed
// since the first run of the execution reached this wait; with a timeout of 0 it does not block. If
// fits returns an error for the payload, WaitSignal returns that error: the signal is consumed, and
// the next call for this wait, in this run or a later run, waits for another signal.
func WaitSignal(ctx context.Context, name, key string, timeout time.Duration,
	fits func(payload json.RawMessage) error) (json.RawMessage, error) {
	c, full, err := within(ctx, "signal", name, key)
	if err != nil {
		return nil, err
	}
	r := c.r
	e, rec, err := r.begin(call{"signal", name}, full)
	if err != nil {
		return nil, err
	}
	switch rec.Ended {
	case endedSignal:
		return rec.Payload, nil
	case endedTimeout:
		return nil, ErrTimeout
	}
	if err := r.pass(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if e.kind != 0 && !rec.Refused { // an earlier run has saved the begin
		began = r.until(0, e.age)
	}
	w := &wait{
		b: c.b, name: full, text: fmt.Sprintf("signal %q", name), // people send the signal by this name
		wants: func(s *belay.Signal) bool { return s.Child.IsZero() && s.Name == name },
	}
	s, ok := r.takeNow(w.wants)
	if ok && e.kind == 0 {
		began = time.Time{} // an earlier run may have waited for this signal, but has not saved when it began to
	}
	if !ok {
		if w.until, err = r.signalUntil(full, e, rec, timeout); err != nil {
			return nil, err
		}
		if s, ok, err = r.await(ctx, w); err != nil {
			return nil, err
		}
	}
	if !ok {
		end := record{Timeout: belay.Duration(timeout), Ended: endedTimeout}
		if err := r.saveWait(full, end, 0, began); err != nil {
			return nil, err
		}
		return nil, ErrTimeout
	}
	wrong := fits(s.Payload)
	end := record{Ended: endedSignal, Payload: s.Payload}
	if wrong != nil {
		// A worker of an older version does not know Refused, and counts the timeout from now on.
		end = record{Refused: true, Timeout: belay.Duration(max(timeout, 0))}
	}
	if err := r.saveWait(full, end, s.Seq, began); err != nil {
		r.putBack(s)
		return nil, err
	}
	if wrong != nil {
		r.refuseSignal(full)
		return nil, wrong
	}
	return s.Payload, nil
}

// refuseSignal makes the name of a wait usable again in this run, as in the next run, after the wait
// has consumed a signal with a payload of the wrong type.
func (r *Run) refuseSignal(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[key] = entry{kind: belay.KindWait, data: json.RawMessage(`{"refused":true}`)}
}

// signalUntil returns the time at which a wait for a signal times out; zero for never. It saves the
// beginning of the wait, from which later runs compute the timeout.
func (r *Run) signalUntil(key string, e entry, rec record, timeout time.Duration) (time.Time, error) {
	switch {
	case timeout == Forever:
		return time.Time{}, nil
	case e.kind != 0 && !rec.Refused:
		return r.until(rec.Timeout.D(), e.age), nil
	case timeout <= 0:
		return time.Now(), nil
	}
	err := r.saveWait(key, record{Timeout: belay.Duration(timeout)}, 0, time.Time{})
	return time.Now().Add(timeout), err
}
