package machine

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// source makes an execution with several steps, one of them saved twice, and with a state that was
// saved twice.
func source(t *testing.T) (*stage, belay.Lease) {
	t.Helper()
	s := newStage(t)
	l := s.run(s.worker("w", ttl(hour)))
	for _, c := range []struct {
		kind belay.CheckpointKind
		key  string
	}{
		{belay.KindStep, "a"}, {belay.KindState, "state"}, {belay.KindStep, "b"}, {belay.KindStep, "a"},
		{belay.KindState, "state"},
		{belay.KindWait, "a"},
	} {
		save := s.save(l, c.kind, c.key)
		save.Data = json.RawMessage{'0' + byte(s.row(l.Execution).Seq+1)} // the data of each checkpoint is its own seq
		s.do(save)
	}
	return s, l
}

// A fork starts with copies of the source's newest checkpoint of each kind and key, up to a seq. The
// seqs of the copies have no gaps. The history of the source gets only an event for the fork.
func TestForkCopiesTheNewestCheckpoints(t *testing.T) {
	for _, c := range []struct {
		upTo int64
		want string // the data of the checkpoints in the fork: their seqs in the source
	}{{0, "5678"}, {8, "5678"}, {100, "5678"}, {7, "567"}, {3, "3"}, {2, ""}, {1, ""}} {
		s, l := source(t)
		r, seq := s.row(l.Execution), s.row(l.Execution).Seq
		reply := s.do(s.act(l.Execution, belay.ActionFork, func(x *belay.Control) { x.UpTo = c.upTo }))
		f := s.records[reply.ID]
		got := ""
		for i, k := range f.checkpoints {
			got += string(k.Data)
			if k.Seq != int64(i+2) || k.Token != 0 {
				t.Errorf("up to %d: checkpoint %+v", c.upTo, *k)
			}
		}
		if got != c.want {
			t.Errorf("up to %d: keeps %q, want %q", c.upTo, got, c.want)
		}
		if e := f.execution; e.Seq != int64(len(c.want)+1) || e.Token != 0 || e.Generation != 1 ||
			e.State != belay.Pending || e.Lane != r.Lane {
			t.Errorf("up to %d: %+v", c.upTo, *e)
		}
		if e := s.row(l.Execution); e.Seq != seq+1 || e.State != belay.Running || reply.Seq != e.Seq {
			t.Errorf("the source is %+v", *e)
		}
	}
}

// A fork up to a seq is refused if the execution had a state at that seq and the state was pruned,
// because a fork must not lose a state silently.
func TestForkRefusesAStateThatIsGone(t *testing.T) {
	s, l := source(t)
	for _, upTo := range []int64{4, 5} {
		s.refused(s.act(l.Execution, belay.ActionFork, func(x *belay.Control) { x.UpTo = upTo }), belay.CodeConflict)
	}
}

// An execution has one state, even if it saves states under several keys.
func TestAnExecutionHasOneState(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	for _, k := range []string{"x", "y"} {
		s.do(s.save(l, belay.KindState, k))
	}
	checkpoints := Resume(s.records[l.Execution].history(), s.now).Checkpoints
	if len(checkpoints) != 1 || checkpoints[0].Key != "y" || checkpoints[0].Data == nil {
		t.Errorf("resumes from %+v", checkpoints)
	}
}

func TestForkTakesAnotherInput(t *testing.T) {
	s, l := source(t)
	for _, input := range []string{"", `{"n":9}`} {
		r := s.do(s.act(l.Execution, belay.ActionFork, func(x *belay.Control) { x.Input = json.RawMessage(input) }))
		want := `{"n":1}`
		if input != "" {
			want = input
		}
		if got := string(s.input(r.ID)); got != want {
			t.Errorf("input %s, want %s", got, want)
		}
	}
}

// An idempotency key leads to the original execution and not to its fork.
func TestAForkHasNoIdempotencyKey(t *testing.T) {
	s := newStage(t)
	id := s.submit(key("k"))
	f := s.do(s.act(id, belay.ActionFork)).ID
	if r := s.do(s.submission(key("k"))); r.ID != id {
		t.Errorf("the key leads to %s, want %s", r.ID, id)
	}
	if v := View(s.records[f].history()); v.Key != "" {
		t.Errorf("the fork shows key %q", v.Key)
	}
}

// A repeated fork command finds the fork that the first command made, by the operation id or by the
// id of the fork.
func TestARepeatedForkFindsTheFirst(t *testing.T) {
	s := newStage(t)
	id, unrelated := s.submit(), s.submit(func(b *belay.Submission) { b.Input = json.RawMessage(`"x"`) })
	c := s.act(id, belay.ActionFork)
	first := s.do(c)
	for _, again := range []*Act{c, s.act(id, belay.ActionFork, func(x *belay.Control) { x.Fork = c.Fork })} {
		if r := s.do(again); r.ID != first.ID || !r.Replayed || r.Execution.ID != first.ID {
			t.Errorf("answered %+v", r)
		}
	}
	if got := s.row(id).Seq; got != 2 {
		t.Errorf("the source has seq %d after one fork", got)
	}
	another := *c
	another.Fork = belay.ExecutionID(s.id())
	s.refused(&another, belay.CodeIdempotencyMismatch) // the operation has already made another fork
	s.refused(s.act(id, belay.ActionFork, func(x *belay.Control) { x.Fork = unrelated }), belay.CodeConflict)
}

func TestForkIsRefused(t *testing.T) {
	s := newStage(t)
	id := s.submit()
	for name, change := range map[string]func(*belay.Control){
		"no id":       func(x *belay.Control) { x.Fork = belay.ExecutionID{} },
		"its own id":  func(x *belay.Control) { x.Fork = id },
		"negative":    func(x *belay.Control) { x.UpTo = -1 },
		"bad payload": func(x *belay.Control) { x.Input = json.RawMessage(`{`) },
	} {
		t.Log(name)
		s.refused(s.act(id, belay.ActionFork, change), belay.CodeInvalid)
	}
}

// A fork copies a checkpoint that was saved earlier in the same batch.
func TestAForkCopiesACheckpointSavedInItsFold(t *testing.T) {
	apart, l := source(t)
	together, _ := source(t)
	for _, s := range []*stage{apart, together} {
		s.ids = 200
		save, fork := s.save(l, belay.KindStep, "new"), s.act(l.Execution, belay.ActionFork)
		if s == apart {
			s.do(save)
			s.do(fork)
		} else {
			s.batch(save, fork)
		}
	}
	if d := cmp.Diff(kept(apart), kept(together)); d != "" {
		t.Error(d)
	}
}

func kept(s *stage) (keys []string) {
	for id, r := range s.records {
		if r.execution.Token == 0 {
			for _, k := range s.records[id].checkpoints {
				keys = append(keys, k.Kind.String()+" "+k.Key+" "+string(k.Data))
			}
		}
	}
	return keys
}

// A fork of a fork, and a fork of an execution that was reopened with another input, start from the
// valid checkpoints of their source.
func TestForkOfAFork(t *testing.T) {
	s, l := source(t)
	f := s.do(s.act(l.Execution, belay.ActionFork)).ID
	g := s.do(s.act(f, belay.ActionFork, func(x *belay.Control) { x.UpTo = 3 })).ID
	if r := s.records[g]; len(r.checkpoints) != 2 || r.execution.Checkpoints != 2 {
		t.Errorf("the fork of a fork keeps %d", len(r.checkpoints))
	}
	s.do(s.act(s.win(s.worker("w2", ttl(hour))).Execution, belay.ActionSteal)) // the older fork is due first
	own := s.win(s.worker("w3", ttl(hour)))
	s.do(s.save(own, belay.KindState, "state"))
	again := s.do(s.act(own.Execution, belay.ActionFork)).ID
	var data []string
	for _, k := range s.records[again].checkpoints {
		if k.Kind == belay.KindState {
			data = append(data, string(k.Data))
		}
	}
	if len(data) != 1 || data[0] != `"state"` {
		t.Errorf("the fork of a fork with a state of its own has states %q", data)
	}
	if k := s.records[own.Execution].checkpoints; !k[2].Pruned {
		t.Errorf("the state that the fork brought along is kept: %+v", *k[2])
	}
	s2, _, id := failedExecution(t)
	s2.do(s2.act(id, belay.ActionRequeue, func(x *belay.Control) { x.Input = json.RawMessage(`2`) }))
	h := s2.do(s2.act(id, belay.ActionFork)).ID
	if r := s2.records[h]; len(r.checkpoints) != 0 || string(s2.input(h)) != `2` {
		t.Errorf("keeps %d checkpoints, input %s", len(r.checkpoints), s2.input(h))
	}
}
