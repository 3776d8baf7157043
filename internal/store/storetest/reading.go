package storetest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

var readCases = []testCase{
	{"a lane is listed with all its fields while an execution is ready in it, now or later", func(e *env) {
		labels := map[string]string{"gpu": "a100", "zone": "ü"}
		in := func(queue string, more ...func(*belay.Submission)) belay.ExecutionID {
			return e.submit(append(more, func(s *belay.Submission) { s.Queue = queue })...)
		}
		full := func(s *belay.Submission) { s.Priority, s.Version, s.WorkerLabels = -3, "v2", labels }
		moment := e.now()
		in("now", full)
		e.clock.Advance(time.Second)
		in("now", full)
		in("later", func(s *belay.Submission) { s.DueAt = e.now().Time().Add(time.Hour) })
		e.control(in("paused"), belay.ActionPause)
		e.control(in("ended"), belay.ActionCancel)
		in("outside", func(s *belay.Submission) { s.External = true })
		in("owned")
		owned := machine.NewLane("owned", "w", "", 0, nil)
		l := leaseOf(&e.ok(&machine.Claim{
			ClaimRequest: belay.ClaimRequest{Worker: e.open(), Number: 1, Slots: 1}, Lanes: []machine.Lane{owned},
			Secrets: []belay.Secret{{1}},
		}).Claims[0].Execution)
		check := func(what string, want ...machine.Lane) {
			e.Helper()
			slices.SortFunc(want, func(a, b machine.Lane) int { return cmp.Compare(a.ID, b.ID) })
			asked := []machine.LaneID{owned.ID, machine.NewLane("ended", "w", "", 0, nil).ID, 12345}
			var hints []store.LaneHint
			for _, l := range want {
				hints = append(hints, store.LaneHint{Lane: l.ID, At: map[string]machine.Time{
					"now": moment, "later": e.now().Add(time.Hour), "owned": e.now(),
				}[l.Queue]})
				asked = append(asked, l.ID, l.ID)
			}
			ready, err := e.store.ReadyLanes(e.Context())
			if err != nil {
				e.Fatal(err)
			}
			e.same(what+": lanes that are ready", hints, ready)
			got, err := e.store.Lanes(e.Context(), asked)
			if err != nil {
				e.Fatal(err)
			}
			e.same(what+": the lanes' fields", want, got)
		}
		now, later := machine.NewLane("now", "w", "v2", -3, labels), machine.NewLane("later", "w", "", 0, nil)
		check("before", now, later)
		e.settle(l, belay.OutcomeReleased)
		check("after a release", now, later, owned)
	}},
	{"reading an execution that does not exist is not_found", func(e *env) {
		e.submit()
		if _, err := e.store.Read(e.Context(), store.Read{Execution: e.id(),
			Spec: true}); belay.CodeOf(err) != belay.CodeNotFound {
			e.Errorf("read: %v", err)
		}
	}},
	{"a read returns the parts that it asks for and nothing else", func(e *env) {
		l, _ := e.eventful()
		bare := e.read(store.Read{Execution: l.Execution})
		if bare.Spec != nil || bare.Runs != nil || bare.Checkpoints != nil || bare.Signals != nil || bare.Deeds != nil {
			e.Errorf("a bare read brings %+v", bare)
		}
		run := e.read(store.Read{Execution: l.Execution, Run: true}).Runs
		if len(run) != 1 || run[0].Token != bare.Execution.Token || string(run[0].Output) != `"out"` {
			e.Errorf("runs %+v, want the newest with its output", run)
		}
		heads := e.read(store.Read{Execution: l.Execution, History: true})
		for _, k := range heads.Checkpoints {
			if k.Data != nil {
				e.Errorf("checkpoint %d has its data unasked", k.Seq)
			}
		}
		if heads.Signals[0].Payload != nil || heads.Runs[0].Output != nil || len(heads.Runs) != 2 ||
			len(heads.Deeds) != 1 {
			e.Errorf("history without data: %+v", heads)
		}
	}},
	{"rows that two parts of a read share come once, with their data", func(e *env) {
		l, _ := e.eventful()
		rec := e.read(store.Read{Execution: l.Execution, Run: true, History: true, Resume: true})
		seen := make(map[int64]bool)
		for _, k := range rec.Checkpoints {
			if seen[k.Seq] {
				e.Errorf("checkpoint %d twice", k.Seq)
			}
			seen[k.Seq] = true
		}
		if len(rec.Runs) != 2 || string(rec.Runs[1].Output) != `"out"` || string(rec.Checkpoints[1].Data) != `2` {
			e.Errorf("runs %+v checkpoints %+v", rec.Runs, rec.Checkpoints)
		}
	}},
	{"history read in pages equals history read at once", func(e *env) {
		l, _ := e.eventful()
		rec := e.read(store.Read{Execution: l.Execution, History: true, Data: true})
		whole := machine.Events(rec, 0, 1000)
		for i, ev := range whole {
			if ev.Seq != int64(i)+1 {
				e.Fatalf("event %d has seq %d: %+v", i, ev.Seq, whole)
			}
		}
		if len(whole) != int(rec.Execution.Seq) {
			e.Errorf("%d events for seq %d", len(whole), rec.Execution.Seq)
		}
		for limit := 1; limit <= len(whole)+1; limit++ {
			var paged []belay.Event
			for after := int64(0); ; after = int64(len(paged)) {
				rec := e.read(store.Read{Execution: l.Execution, History: true, After: after, Limit: limit, Data: true})
				page := machine.Events(rec, after, limit)
				if len(page) == 0 || len(paged) > len(whole) {
					break
				}
				paged = append(paged, page...)
			}
			e.same(named("history in pages of", limit), whole, paged)
		}
	}},
	{"a resume gets the checkpoints that count and the signals not consumed", func(e *env) {
		l, taken := e.eventful()
		rec := e.read(store.Read{Execution: l.Execution, Resume: true})
		var data []string
		for _, k := range rec.Checkpoints {
			data = append(data, k.Key+"="+string(k.Data))
		}
		e.same("checkpoints", []string{"a=2", "wait=", "state=5"}, data)
		for _, s := range rec.Signals {
			if s.Seq == taken {
				e.Errorf("signal %d was consumed", s.Seq)
			}
		}
		if len(rec.Signals) != 1 {
			e.Errorf("%d signals, want the one not consumed", len(rec.Signals))
		}
	}},
	{"a resume in pages equals a resume at once", func(e *env) {
		l := e.run(e.open(), 1)
		for i := range 12 {
			e.save(l, belay.KindStep, named("step", i%7), `"`+strings.Repeat("x", 300*i)+`"`)
			e.signal(l.Execution, named("signal", i))
			e.ok(&machine.Deliver{
				SignalRequest: belay.SignalRequest{Execution: l.Execution, Name: "large", Op: e.id(),
					Payload: []byte(`"` + strings.Repeat("y", 500*(12-i)) + `"`)},
			})
		}
		whole := e.read(store.Read{Execution: l.Execution, Resume: true})
		if whole.More || len(whole.Checkpoints) != 7 || len(whole.Signals) != 24 {
			e.Fatalf("%d checkpoints and %d signals, more: %v", len(whole.Checkpoints), len(whole.Signals), whole.More)
		}
		for _, size := range []int{1, 600, 5000, 20_000, 1 << 20} {
			var paged machine.Record
			for after, pages := int64(0), 0; ; pages++ {
				page := e.read(store.Read{Execution: l.Execution, Resume: true, ResumeAfter: after, Bytes: size})
				most := 2 * size
				for _, k := range page.Checkpoints {
					after = max(after, k.Seq)
					most -= len(k.Data) + store.RowBytes
				}
				for _, s := range page.Signals {
					after = max(after, s.Seq)
					most -= len(s.Payload) + store.RowBytes
				}
				if most < -2*(6000+store.RowBytes) || pages > 31 {
					e.Fatalf("page %d of %d bytes has %d more", pages, size, -most)
				}
				paged.Checkpoints, paged.Signals = append(paged.Checkpoints, page.Checkpoints...),
					append(paged.Signals, page.Signals...)
				if !page.More {
					break
				}
			}
			e.same(named("checkpoints in pages of", size), whole.Checkpoints, paged.Checkpoints)
			e.same(named("signals in pages of", size), whole.Signals, paged.Signals)
		}
		signals := e.read(store.Read{Execution: l.Execution, Signals: true, ResumeAfter: whole.Signals[3].Seq})
		if len(signals.Checkpoints) != 0 {
			e.Errorf("signals alone come with checkpoints")
		}
		e.same("signals after the fourth", whole.Signals[4:], signals.Signals)
	}},
	{"an execution counts the signals that it keeps", func(e *env) {
		worker := e.open()
		l := e.run(worker, 1)
		first := e.signal(l.Execution, "s")
		e.ok(&machine.Deliver{
			SignalRequest: belay.SignalRequest{Execution: l.Execution, Name: "t", Payload: []byte(`"1234"`)},
		})
		e.settle(e.take(worker, 2, e.child(l, "c")), belay.OutcomeSucceeded)
		counts := func(signals int, bytes int64) {
			e.Helper()
			if x := e.row(l.Execution); x.Signals != signals || x.SignalBytes != bytes {
				e.Errorf("%d signals of %d bytes, want %d of %d", x.Signals, x.SignalBytes, signals, bytes)
			}
		}
		size := int64(len(e.read(store.Read{Execution: l.Execution, Signals: true}).Signals[0].Payload))
		counts(2, 6+size)
		e.ok(&machine.Save{Save: belay.Save{Lease: l, Op: e.id(), Kind: belay.KindWait, Key: "w", Consumes: first}})
		counts(1, 6)
		e.settle(l, belay.OutcomeFailed)
		e.ok(&machine.Act{
			Control: belay.Control{Execution: l.Execution, Action: belay.ActionRequeue, Input: []byte(`2`)},
		})
		counts(0, 0)
	}},
	{"a large input is read only after its execution was won", func(e *env) {
		small, large := `"`+strings.Repeat("x", machine.MaxCarried-2)+`"`,
			`"`+strings.Repeat("x", machine.MaxCarried-1)+`"`
		inputs := map[belay.ExecutionID]string{}
		for _, in := range []string{small, large} {
			inputs[e.submit(func(s *belay.Submission) { s.Input = []byte(in) })] = in
		}
		worker := e.open()
		c := e.claims(worker, 1, 2)
		var need machine.Need
		c.Need(&need)
		for _, s := range e.rows(need).Specs {
			if want := len(inputs[s.Execution]) > machine.MaxCarried; s.Large != want || want == (s.Input != nil) {
				e.Errorf("an input of %d bytes: large %v, with %d bytes", len(inputs[s.Execution]), s.Large,
					len(s.Input))
			}
		}
		for _, won := range e.ok(c).Claims {
			want := inputs[won.Execution.ID]
			if won.Known != (want == small) || won.Known && string(won.Input) != want {
				e.Errorf("won one of %d bytes, known: %v", len(want), won.Known)
			}
			if rec := e.read(store.Read{Execution: won.Execution.ID, Spec: true}); string(rec.Spec.Input) != want ||
				rec.Spec.Large {
				e.Errorf("read %d bytes of %d", len(rec.Spec.Input), len(want))
			}
		}
	}},
	{"after a new input no older checkpoint or signal counts", func(e *env) {
		worker := e.open()
		l := e.run(worker, 1)
		e.save(l, belay.KindStep, "a", `1`)
		e.signal(l.Execution, "old")
		e.settle(l, belay.OutcomeFailed)
		e.ok(&machine.Act{
			Control: belay.Control{Execution: l.Execution, Action: belay.ActionRequeue, Input: []byte(`{"n":2}`)},
		})
		rec := e.read(store.Read{Execution: l.Execution, Resume: true, Spec: true})
		if len(rec.Checkpoints)+len(rec.Signals) != 0 || string(rec.Spec.Input) != `{"n":2}` {
			e.Errorf("resume with %+v, %+v and input %s", rec.Checkpoints, rec.Signals, rec.Spec.Input)
		}
		e.save(e.claim(worker, 2, 1)[0], belay.KindStep, "b", `2`)
		if rec := e.read(store.Read{Execution: l.Execution, Resume: true}); len(rec.Checkpoints) != 1 ||
			rec.Checkpoints[0].Key != "b" {
			e.Errorf("resume with %+v, want b alone", rec.Checkpoints)
		}
	}},
	{"chunks are read in order, from a number, up to a limit", func(e *env) {
		l := e.run(e.open(), 1)
		for n := range int64(70) {
			e.append(l, "log", n, named("chunk", int(n)))
		}
		e.append(l, "other", 1, "x")
		q := belay.ChunkQuery{Execution: l.Execution, Name: "log", From: 3, Limit: 2}
		e.same("numbers", []int64{3, 4}, e.chunkNumbers(q))
		q.Limit = 0
		if n := len(e.chunkNumbers(q)); n != 64 {
			e.Errorf("%d chunks without a limit, want 64", n)
		}
		q.Name = "absent"
		e.same("none", []int64(nil), e.chunkNumbers(q))
	}},
}

// eventful runs an execution in which all kinds of events happen, and ends it. It returns the lease
// of the last run, and the seq of the signal that this run consumed. A second signal is never
// consumed.
func (e *env) eventful() (belay.Lease, int64) {
	e.Helper()
	worker := e.open()
	first := e.run(worker, 1)
	e.save(first, belay.KindStep, "a", `1`)
	e.save(first, belay.KindStep, "a", `2`)
	e.save(first, belay.KindState, "state", `3`)
	taken := e.signal(first.Execution, "s")
	e.control(first.Execution, belay.ActionPreempt)
	e.settle(first, belay.OutcomePreempted)
	e.clock.Advance(time.Second)
	l := e.claim(worker, 2, 1)[0]
	e.ok(&machine.Save{Save: belay.Save{Lease: l, Op: e.id(), Kind: belay.KindWait, Key: "wait", Consumes: taken}})
	e.signal(l.Execution, "s")
	e.save(l, belay.KindState, "state", `5`)
	e.settle(l, belay.OutcomeSucceeded)
	return l, taken
}
