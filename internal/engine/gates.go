package engine

import (
	"context"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// ChangeGate carries out an operator's action on a gate.
func (e *Engine) ChangeGate(ctx context.Context, c belay.GateChange) (belay.GateDetail, error) {
	if _, err := e.do(ctx, &machine.SetGate{GateChange: c}); err != nil {
		return belay.GateDetail{}, err
	}
	return e.Gate(ctx, c.Gate)
}

// gateNames is the largest number of holders, and of waiting executions, that Gate returns.
const gateNames = 100

// Gate reads a gate with the executions that have a place in it or wait at it. A gate that no
// operator has set and no execution has named is open.
func (r *Reader) Gate(ctx context.Context, id belay.GateID) (belay.GateDetail, error) {
	if err := machine.CheckGate("read gate", id); err != nil {
		return belay.GateDetail{}, err
	}
	found, err := r.store.Query(ctx, store.Query{Of: store.OneGate, Gate: id, Limit: gateNames})
	if err != nil {
		return belay.GateDetail{}, err
	}
	g := &found.Gate
	info, err := machine.GateView(id, g.Object, &g.Count, r.store.Now())
	d := belay.GateDetail{GateInfo: info, Holders: g.Holders, Line: g.Heads}
	if err == nil && d.Resource != nil {
		err = r.readLines(ctx, &d)
	}
	if d.Holders == nil {
		d.Holders = []belay.ExecutionID{}
	}
	if d.Line == nil {
		d.Line = []belay.ExecutionID{}
	}
	return d, err
}

// readLines adds the executions that wait for the modes of a resource: each mode has a line of its own.
func (r *Reader) readLines(ctx context.Context, d *belay.GateDetail) error {
	for i := range d.Resource.Waiting {
		w := &d.Resource.Waiting[i]
		q := store.Query{Of: store.OneGate, Gate: machine.LineOf(d.ID, w.Mode), Limit: gateNames}
		found, err := r.store.Query(ctx, q)
		if err != nil {
			return err
		}
		w.Executions = found.Gate.Count.Line
		d.Waiting = min(d.Waiting+w.Executions, machine.MaxHeads+1)
		d.Line = append(d.Line, found.Gate.Heads...)
		d.Line = d.Line[:min(len(d.Line), gateNames)]
	}
	return nil
}

// Gates lists the gates that operators have set or executions have named, without their executions.
func (r *Reader) Gates(ctx context.Context, f belay.GateFilter) (belay.GatePage, error) {
	page := belay.GatePage{Gates: []belay.GateInfo{}}
	q := store.Query{Of: store.Objects, Kind: machine.GateObject, After: f.Cursor, Limit: f.Limit}
	if f.Kind != "" {
		if err := machine.CheckGateKind("list gates", f.Kind); err != nil {
			return page, err
		}
		q.After = max(q.After, f.Kind+":")
	}
	found, err := r.store.Query(ctx, q)
	if err != nil {
		return page, err
	}
	now := r.store.Now()
	page.Next = found.Next
	for _, o := range found.Objects {
		if f.Kind != "" && !strings.HasPrefix(o.Name, f.Kind+":") {
			page.Next = "" // the list is sorted by id, so all further gates have another kind too
			break
		}
		v, err := machine.GateView(belay.GateID(o.Name), o, nil, now)
		if err != nil {
			return page, err
		}
		page.Gates = append(page.Gates, v)
	}
	return page, nil
}
