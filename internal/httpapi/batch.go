package httpapi

import (
	"context"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

func (a *api) batch() {
	hot(a, route{
		id: "batch", method: http.MethodPost, path: "/v1/batch", tag: "operations",
		summary: "Carry out many operations at once",
		doc: "Each operation succeeds or fails independently and has its own result, in the order of the request. Each " +
			"needs the scopes of its own route.",
		example: `{"ops": [{"submit": {"workflow": "build"}}, {"signal": {"execution": "ex_01m7w13wbkep9rfsn7shzr3mtm", "name": "go"}}]}`,
		scopes:  []belay.Scope{belay.ScopeSubmit, belay.ScopeWorker}, body: true, limit: wire.MaxBatchBody,
		submits: true,
	}, a.carry)
}

// onlySubmits reports whether the header of a batch says that all its operations submit roots. A
// server under too much load refuses such a batch without reading its body, because reading the
// body would take time that the overloaded server needs for other requests.
func onlySubmits(r *http.Request) bool { return r.Header.Get(wire.HeaderOnly) == wire.OnlySubmits }

// submitsOnly refuses a batch with an operation that does not submit a root. It is called if the
// header of the batch says that all operations submit roots.
func submitsOnly(b *wire.Batch) error {
	for i := range b.Ops {
		if s := b.Ops[i].Submit; s == nil || s.Parent != nil {
			return invalid("body.ops", "must all submit an execution without a parent, as the header Belay-Only says")
		}
	}
	return nil
}

// carry carries out the operations of a batch concurrently, so that the engine commits them
// together.
func (a *api) carry(ctx context.Context, r *http.Request, b *wire.Batch, _ http.Header) (*wire.BatchReply, error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	if onlySubmits(r) {
		if err := submitsOnly(b); err != nil {
			return nil, err
		}
	}
	who := callerOf(ctx)
	out := &wire.BatchReply{Results: make([]wire.Result, len(b.Ops))}
	var submits []int
	var each sync.WaitGroup
	for i := range b.Ops {
		o := &b.Ops[i]
		if err := allowed(who, o); err != nil {
			out.Results[i].Error = problemOf(err)
			continue
		}
		if o.Submit != nil {
			submits = append(submits, i)
			continue
		}
		each.Go(func() { out.Results[i] = a.one(ctx, o) })
	}
	a.submitAll(ctx, who, b, submits, out)
	each.Wait()
	return out, nil
}

// allowed refuses an operation that the caller's key has no scope for.
func allowed(who caller, o *wire.Op) error {
	need := belay.ScopeWorker
	if o.Submit != nil && o.Submit.Parent == nil || o.Signal != nil {
		need = belay.ScopeSubmit
	}
	if err := who.need(need); err != nil || o.Submit == nil {
		return err
	}
	return mayReplace(who, o.Submit)
}

// one carries out an operation other than a submission.
func (a *api) one(ctx context.Context, o *wire.Op) (r wire.Result) {
	defer func() {
		if p := recover(); p != nil { // net/http recovers panics only in the goroutine of a request
			a.o.Log.ErrorContext(ctx, "belay: an operation broke", "panic", p, "stack", string(debug.Stack()))
			r = wire.Result{Error: problemOf(errBroken)}
		}
	}()
	var err error
	switch {
	case o.Signal != nil:
		s := o.Signal
		err = a.b.Signal(ctx, belay.SignalRequest{
			Execution: s.Execution, Name: s.Name, Payload: s.Payload, Actor: callerOf(ctx).actor(s.Actor), Op: s.Op,
		})
	case o.Save != nil:
		r.Seq, err = a.b.Save(ctx, o.Save.Save())
	case o.Settle != nil:
		err = a.b.Settle(ctx, o.Settle.Settlement())
	case o.Append != nil:
		err = a.b.Append(ctx, o.Append.Chunk())
	}
	a.away(ctx, err)
	if err != nil {
		r = wire.Result{Error: problemOf(err)}
	}
	return r
}

func (a *api) submitAll(ctx context.Context, who caller, b *wire.Batch, which []int, out *wire.BatchReply) {
	if len(which) == 0 {
		return
	}
	list, told := make([]belay.Submission, 0, len(which)), make([]int, 0, len(which))
	for _, i := range which {
		s, err := b.Ops[i].Submit.Submission()
		if err != nil {
			out.Results[i].Error = problemOf(err)
			continue
		}
		s.Actor = who.actor(s.Actor)
		if s.Trace == (belay.Trace{}) {
			s.Trace = Trace(ctx)
		}
		list, told = append(list, s), append(told, i)
	}
	if len(list) == 0 {
		return
	}
	answers, err := a.b.Submit(ctx, list...)
	a.away(ctx, err)
	for n, i := range told {
		switch {
		case err != nil:
			out.Results[i].Error = problemOf(err)
		case answers[n].Err != nil:
			a.away(ctx, answers[n].Err)
			out.Results[i].Error = problemOf(answers[n].Err)
		default:
			out.Results[i].Submitted = &answers[n]
		}
	}
}

// problemOf is the problem of one operation.
func problemOf(err error) *wire.Problem { return &refuse(err).problem }
