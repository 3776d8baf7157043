package machine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// oneByOne applies the commands of a batch again, each in a batch of its own with the same clock
// reading. It compares the results with those of the batch, because a batch must give the same
// result as its commands one after the other. It leaves out batches with claims, because a claim
// may choose another order among executions that became due at the same time, and batches with two
// Admits of one gate, because each lets through what the batch has read for the other.
func oneByOne(before, together *keeper, commands []Command, replies []Reply) error {
	admits := make(map[belay.GateID]bool)
	for _, c := range commands {
		switch c := c.(type) {
		case *Claim:
			return nil
		case *Admit:
			if admits[c.Gate] {
				return nil
			}
			admits[c.Gate] = true
		}
	}
	k := before.clone()
	for i, c := range commands {
		_, r, err := k.fold(c)
		if err != nil {
			return err
		}
		if alone, batch := answer(r[0]), answer(replies[i]); alone != batch {
			return fmt.Errorf("alone, command %d is answered\n%s\nin the batch\n%s", i, alone, batch)
		}
	}
	for id, r := range together.records {
		if !reflect.DeepEqual(k.records[id], r) {
			return fmt.Errorf("alone, %s ends as\n%+v\nin the batch\n%+v", id, k.records[id].execution, r.execution)
		}
	}
	if !reflect.DeepEqual(k.workers, together.workers) || !reflect.DeepEqual(k.keys, together.keys) ||
		len(k.records) != len(together.records) || !reflect.DeepEqual(k.places, together.places) {
		return fmt.Errorf("alone, sessions, keys, places or executions have another end state")
	}
	return nil
}

// answer formats a whole reply. It sorts the elements of lists, because their order has no meaning.
func answer(r Reply) string {
	var parts []string
	for _, c := range r.Follow {
		parts = append(parts, fmt.Sprintf("follow %T %+v", c, c))
	}
	h := r.Heartbeat
	for _, list := range []any{h.Revoked, h.Cancel, h.Pause, h.Preempt, h.Signals, h.Offers} {
		v := reflect.ValueOf(list)
		for i := range v.Len() {
			parts = append(parts, fmt.Sprintf("%T %+v", list, v.Index(i)))
		}
	}
	slices.Sort(parts)
	e := ""
	if r.Execution != nil {
		x := *r.Execution
		x.New, x.Attention, x.Policy = false, false, nil // these fields depend on how commands are divided into batches
		x.Gates = nil
		e = fmt.Sprintf("%+v", x)
	}
	return fmt.Sprintf("%s seq %d repeated %v drain %v in %s err %v %v %s %s",
		r.ID, r.Seq, r.Replayed, h.Drain, h.ExpiresIn, r.Err, r.Session, e, strings.Join(parts, "\n"))
}
