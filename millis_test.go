package belay

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The JSON of a policy, a worker, a session and a resource has each duration as text and in milliseconds, and
// reading it gives the same value. The store keeps the text alone.
func TestDurationsInJSON(t *testing.T) {
	check := func(v, back any) {
		t.Helper()
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := errors.Join(json.Unmarshal(text, &got), json.Unmarshal(text, back)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(reflect.ValueOf(back).Elem().Interface(), v) {
			t.Errorf("%+v is written as %s and read as %+v", v, text, back)
		}
		fields := 0
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Type != reflect.TypeFor[Duration]() {
				continue
			}
			if fields++; got[name] != "1m30s" || got[name+"_ms"] != float64(90_000) {
				t.Errorf("%T: %s is %v, and %s_ms is %v", v, name, got[name], name, got[name+"_ms"])
			}
		}
		if fields < 2 {
			t.Errorf("%T has %d durations", v, fields)
		}
	}
	const d = Duration(90 * time.Second)
	p := Policy{MaxAttempts: 2, OnLost: Requeue}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Policy]()) {
		if f.Type == reflect.TypeFor[Duration]() {
			reflect.ValueOf(&p).Elem().FieldByIndex(f.Index).SetInt(int64(d))
		}
	}
	check(p, new(Policy))
	if text := string(p.Text()); strings.Contains(text, "_ms") || !strings.Contains(text, `"timeout":"1m30s"`) {
		t.Errorf("the store keeps %s", text)
	}
	spec := WorkerSpec{
		ID: WorkerID{1}, Name: "a", Workflows: []Registration{{"w", ""}}, Capacity: 1, TTL: d, Heartbeat: d,
	}
	check(Worker{WorkerSpec: spec, State: WorkerOpen, Running: 3}, new(Worker))
	check(Session{ID: WorkerID{1}, TTL: d, Heartbeat: d, Warning: "w"}, new(Session))
	r := GateResourceInfo{State: ResourceIdle, Waiting: []ModeWaiting{}, ResourceTerms: ResourceTerms{
		MinResidency: d, MaxWait: d, Swap: &ResourceSwapper{Workflow: "load", Timeout: d},
	}}
	check(r, new(GateResourceInfo))
	const timeout = `"timeout":"1m30s","timeout_ms":90000`
	if text, err := json.Marshal(r); err != nil || !strings.Contains(string(text), timeout) {
		t.Errorf("the terms of a resource are written as %s, %v", text, err)
	}
	if text := r.Text(); strings.Contains(text, "_ms") {
		t.Errorf("the store keeps the terms %s", text)
	}
	short, err := json.Marshal(Policy{LockDelay: Duration(time.Microsecond)})
	if err != nil || !strings.Contains(string(short), `"lock_delay_ms":1`) {
		t.Errorf("a microsecond is %s, %v", short, err)
	}
}
