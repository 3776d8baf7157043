package simulation

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// sometimes lists the events that must happen at least once in a run as long as that of `make
// test`, because a promise counts as checked only if the events that could break it have happened.
var sometimes = []string{
	"stale write refused", "outcome unknown", "session expired", "grace written", "death proven", "run lost",
	"resumed from checkpoints", "retried", "run timed out", "start timed out", "dead letter", "gave up after losses",
	"cancelled while running",
	"cancel raced with the end", "cancel enforced", "paused while running", "stolen", "preempted", "forked",
	"run again",
	"released", "claim's reply lost", "run revoked", "signal overtook a suspend", "child's end overtook a suspend",
	"submission replayed", "key with another body refused", "repeated write answered", "loss seen by a watcher",
	"lock refused: held", "lock lost", "lock reopened", "lock asked again", "stale renewal refused",
	"node died in a commit", "write of a dead process arrived", "deleted after the retention",
	"swap began", "swap succeeded", "mode changed at once",
	"parked", "admitted", "admission expired", "place passed on in one commit", "submission rejected at a full limit",
	"replaced while it had a place", "limit unset with a line", "pause ended by its time", "breaker opened",
	"breaker forced", "probe passed", "probe failed", "replaced", "step kept from its target",
	"step let through as a probe",
	"cost reported again", "cost of a refused write", "cost of a write without an answer",
	"cost of a child charged to its parent", "budget spent in a child", "root resumed by a raise",
	"child resumed after a raise",
	"content replayed", "content taken over", "dead letter fixed", "dead letter discarded", "dead letter retried",
	"dead letter requeued", "second resolution refused", "resumed after a retry from a step", "forked before a step",
	"deleted by hand",
	"slot started", "slot started by hand", "slot skipped", "slot missed",
	"end reported", "end of a later generation reported", "end reported to a target", "alert raised",
	"end reported by an older list of targets",
	"offered by a heartbeat", "accepted",
}

// tally counts the events in the list of the variable sometimes, except the events that checkers
// count.
func (b *book) tally() {
	for _, s := range b.stories {
		b.tallyRows(s)
		for _, d := range s.written.Deeds {
			switch d.Kind {
			case "steal":
				b.count("stolen")
			case "fork":
				b.count("forked")
			case "retry", "requeue":
				if strings.HasSuffix(d.Reason, "from outside") {
					b.count("lock reopened")
				}
			case "start_timeout":
				b.count("start timed out")
			}
		}
		for _, a := range s.runs {
			switch {
			case a.Outcome == belay.OutcomePreempted:
				b.count("preempted")
			case a.Outcome == belay.OutcomeCancelled && a.Op.IsZero() && a.Final:
				b.count("cancel enforced")
			}
		}
	}
	b.tallyCalls()
}

func (b *book) tallyRows(s *story) {
	for i, r := range s.rows {
		if strings.HasPrefix(r.ReasonText, "the reply to its claim") &&
			(i == 0 || s.rows[i-1].ReasonText != r.ReasonText) {
			b.count("claim's reply lost")
		}
		if r.State == belay.Failed && strings.HasPrefix(r.Message, "lost ") {
			b.count("gave up after losses")
		}
		if i == 0 || s.rows[i-1].State != belay.Running {
			continue
		}
		if r.State == belay.Paused {
			b.count("paused while running")
		}
		if r.State == belay.Waiting && r.SignalSeq > r.SignalSeen {
			b.count("signal overtook a suspend")
			for _, k := range s.written.Signals {
				if k.Seq == r.SignalSeq && !k.Child.IsZero() {
					b.count("child's end overtook a suspend")
				}
			}
		}
	}
}

func (b *book) tallyCalls() {
	unknown := make(map[belay.OpID]time.Duration) // operations whose caller did not learn the outcome
	for _, c := range b.calls {
		var op belay.OpID
		switch r := c.request.(type) {
		case *belay.Save:
			op = r.Op
		case *belay.Settlement:
			op = r.Op
		case *belay.SignalRequest:
			op = r.Op
		case *belay.Control:
			op = r.Op
		}
		if l, is := c.reply.(belay.Lock); is && c.end == promise.OK && l.Replayed {
			b.count("lock asked again")
		}
		if c.kind == "lock" && c.end == promise.Refused && belay.CodeOf(c.err) == belay.CodeLeaseHeld {
			b.count("lock refused: held")
		}
		if reply, is := c.reply.(belay.HeartbeatReply); is && len(reply.Revoked) > 0 {
			b.count("run revoked")
		}
		if reply, is := c.reply.(belay.HeartbeatReply); is && len(reply.Offers) > 0 {
			b.count("offered by a heartbeat")
		}
		if reply, is := c.reply.(belay.AcceptReply); is && len(reply.Assignments) > 0 {
			b.count("accepted")
		}
		if op.IsZero() {
			continue
		}
		if _, before := unknown[op]; before && c.end == promise.OK {
			b.count("repeated write answered")
		}
		if c.end == promise.Unknown {
			unknown[op] = c.from
		}
	}
	b.sometimes["node died in a commit"] += b.faults["node died in a commit"]
	b.sometimes["write of a dead process arrived"] += b.faults["request of a dead process arrived"]
}
