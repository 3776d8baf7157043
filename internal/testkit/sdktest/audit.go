package sdktest

import (
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// auditOf lists the entries of the audit, page by page.
func (e *env) auditOf(f belay.AuditFilter) (all []string) {
	e.Helper()
	for f.Limit = 2; ; {
		page, err := e.b.Audit(e.ctx, f)
		if err != nil {
			e.Fatal(err)
		}
		for _, x := range page.Entries {
			if x.At.IsZero() || x.Version == 0 {
				e.Errorf("%+v", x)
			}
			all = append(all, x.Actor+" "+x.Action+" "+x.Kind+" "+x.Name+": "+x.Reason)
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return all
		}
	}
}

var audit = []testCase{
	{"the audit is listed by actor, action, object and time", func(e *env) {
		gate := func(id belay.GateID, a belay.GateAction, actor string) {
			_, err := e.b.ChangeGate(e.ctx, belay.GateChange{Gate: id, Action: a, Actor: actor, Reason: "so"})
			e.must(err)
		}
		gate("queue:mail", belay.GatePause, "ann")
		e.sleep(time.Minute)
		middle := time.Now()
		gate("queue:mail", belay.GateResume, "bob")
		e.sleep(time.Second)
		gate("queue:a/b", belay.GatePause, "ann")
		e.sleep(time.Second)
		id := e.start(map[string]any{"N": 1})
		_, err := e.b.Control(e.ctx, belay.Control{
			Execution: id, Action: belay.ActionCancel, Actor: "ann", Reason: "no",
		})
		e.must(err)
		const first, second, third = "ann pause gate queue:mail: so", "bob resume gate queue:mail: so",
			"ann pause gate queue:a/b: so"
		last := "ann cancel execution " + id.String() + ": no"
		for _, c := range []struct {
			name string
			f    belay.AuditFilter
			want []string
		}{
			{"all", belay.AuditFilter{}, []string{last, third, second, first}},
			{"actor", belay.AuditFilter{Actor: "ann"}, []string{last, third, first}},
			{"action", belay.AuditFilter{Action: "resume"}, []string{second}},
			{"kind", belay.AuditFilter{Kind: "gate"}, []string{third, second, first}},
			{"object", belay.AuditFilter{Kind: "gate", Name: "queue:a/b"}, []string{third}},
			{"since", belay.AuditFilter{Since: middle}, []string{last, third, second}},
			{"until", belay.AuditFilter{Until: middle}, []string{first}},
			{"until and actor", belay.AuditFilter{Until: middle, Actor: "bob"}, nil},
			{"nothing", belay.AuditFilter{Actor: "an"}, nil},
		} {
			if got := e.auditOf(c.f); !slices.Equal(got, c.want) {
				e.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
		for name, f := range map[string]belay.AuditFilter{
			"a kind that cannot be": {Kind: "x"}, "a name without a kind": {Name: "x"}, "a cursor": {Cursor: "x"},
			"no time": {Since: middle, Until: middle}, "an actor that cannot be": {Actor: "a\x00"},
		} {
			_, err := e.b.Audit(e.ctx, f)
			e.refused(name, err, belay.CodeInvalid, "")
		}
	}},
	{"the history and the audit name the actor of a signal, and the first actor stays", func(e *env) {
		e.hire(register("w", approval))
		id := e.start(time.Duration(0))
		e.settle()
		s := belay.SignalRequest{Execution: id, Name: "approved", Payload: []byte(`"yes"`), Op: belay.OpID{1, 15: 1}}
		for _, actor := range []string{"ann", "eve", ""} {
			s.Actor = actor
			e.must(e.b.Signal(e.ctx, s))
		}
		want(e, id, "yes")
		if ev := e.event(id, "signal", "approved"); ev.Actor != "ann" {
			e.Errorf("%+v", ev)
		}
		e.wantKinds(id, "submitted", "started", "signal:approved", "wait:approved", "succeeded")
		if x := e.detail(id); x.ModifiedBy != "ann" {
			e.Errorf("modified by %q", x.ModifiedBy)
		}
		if got := e.auditOf(belay.AuditFilter{}); !slices.Equal(got, []string{
			"ann signal execution " + id.String() + ": approved",
		}) {
			e.Errorf("the audit says %q", got)
		}
		s.Op, s.Actor = belay.OpID{1, 15: 2}, "a\x1b[2J"
		e.refused("an actor that is no name", e.b.Signal(e.ctx, s), belay.CodeInvalid, "")
	}},
	{"a signal without an actor is in no audit", func(e *env) {
		e.hire(register("w", approval))
		id := e.start(time.Duration(0))
		e.signal(id, "approved", "yes")
		want(e, id, "yes")
		if ev, got := e.event(id, "signal", "approved"), e.auditOf(belay.AuditFilter{}); ev.Actor != "" || got != nil {
			e.Errorf("%+v, and the audit says %q", ev, got)
		}
	}},
	{"a key is made once for an operation, and its revocation has a reason", func(e *env) {
		spec := belay.KeySpec{
			Name: "ops", Scopes: []belay.Scope{belay.ScopeAdmin}, Actor: "ann", Op: belay.OpID{1, 15: 2},
		}
		k, err := e.b.CreateKey(e.ctx, spec)
		e.must(err)
		b := e.with(k.Secret)
		again, err := b.CreateKey(e.ctx, spec)
		e.refused("the same operation", err, belay.CodeConflict, "")
		if list, err := b.Keys(e.ctx); err != nil || len(list) != 1 || again.Secret != "" {
			e.Errorf("keys %+v, %v, and the secret %q", list, err, again.Secret)
		}
		spec.Op, spec.Name = belay.OpID{2, 15: 2}, "two"
		two, err := b.CreateKey(e.ctx, spec)
		e.must(err)
		e.must(b.RevokeKey(e.ctx, belay.Revocation{Key: two.ID, Actor: "ops", Reason: "it leaked"}))
		page, err := b.Audit(e.ctx, belay.AuditFilter{Kind: "key", Name: two.ID.String(), Limit: 1})
		if err != nil || len(page.Entries) != 1 || page.Entries[0].Action != "revoke" || page.Next == "" ||
			page.Entries[0].Reason != "it leaked" || page.Entries[0].Actor != "ops" {
			e.Errorf("the audit says %+v, %v", page, err)
		}
	}},
}
