package chaos

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// readers is the number of concurrent readers of the store.
const readers = 32

// read reads everything in the store through the servers, and the ledgers of the workers.
func (w *world) read(ctx context.Context, r *record) error {
	if err := w.readTales(ctx, r); err != nil {
		return err
	}
	var err error
	r.Read = time.Now()
	if r.Sessions, err = w.servers[0].client.Workers(ctx); err != nil {
		return err
	}
	if err := w.readLetters(r); err != nil {
		return err
	}
	if err := w.lookAtGateInTheEnd(ctx); err != nil {
		return err
	}
	if err := w.lookAtResourceInTheEnd(ctx, r); err != nil {
		return err
	}
	if err := w.readTold(r); err != nil {
		return err
	}
	r.Agents = w.jobs.tell()
	return nil
}

// readTold reads the results of calls that the clients and workers have recorded.
func (w *world) readTold(r *record) error {
	for _, s := range w.workers {
		for _, file := range s.books {
			if err := readLedger(file, r); err != nil {
				return err
			}
		}
	}
	w.into(r)
	return nil
}

func (w *world) readTales(ctx context.Context, r *record) error {
	for cursor := ""; ; {
		page, err := w.servers[0].client.Executions(ctx, belay.Filter{Children: true, Limit: 1000, Cursor: cursor})
		if err != nil {
			return err
		}
		for i := range page.Executions {
			r.Tales = append(r.Tales, &tale{Execution: page.Executions[i]})
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	errs := make([]error, readers)
	var all sync.WaitGroup
	for i := range readers {
		all.Go(func() {
			for k := i; k < len(r.Tales) && errs[i] == nil; k += readers {
				errs[i] = w.servers[k%len(w.servers)].tell(ctx, r.Tales[k])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// tell reads the row and all events of one execution into t, the record of this execution.
func (s *server) tell(ctx context.Context, t *tale) error {
	var err error
	if t.Execution, err = s.client.Execution(ctx, t.Execution.ID); err != nil {
		return err
	}
	for after := int64(0); ; {
		events, err := s.client.Events(ctx, belay.EventQuery{Execution: t.Execution.ID, After: after, Data: true})
		if err != nil {
			return err
		}
		t.Events = append(t.Events, events...)
		if len(events) == 0 || events[len(events)-1].Seq >= t.Execution.Seq {
			return nil
		}
		after = events[len(events)-1].Seq
	}
}

// readLetters reads the dead letters and the number of executions in each state. It reads them from
// the store, since the API does not show them.
func (w *world) readLetters(r *record) error {
	id := "encode(uuid_send(execution), 'hex')"
	if w.store == onSQLite {
		id = "hex(execution)"
	}
	text, err := w.query("SELECT " + id +
		", generation, seq, coalesce(token, 0), at, coalesce(resolution, '') FROM dead_letters")
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "|")
		l := promise.Letter{Resolution: f[5]}
		var at int64
		id, err := hex.DecodeString(f[0])
		copy(l.Execution[:], id)
		_, err2 := fmt.Sscan(strings.Join(f[1:5], " "), &l.Generation, &l.Seq, &l.Token, &at)
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("dead letter %q: %w", line, err)
		}
		l.At = time.UnixMicro(at)
		r.Letters = append(r.Letters, l)
	}
	text, err = w.query("SELECT state, count(*) FROM executions GROUP BY state")
	r.States = make(map[belay.State]int64)
	for line := range strings.Lines(text) {
		var state belay.State
		var n int64
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "%d|%d", (*uint8)(&state), &n); err != nil {
			return fmt.Errorf("states %q: %w", line, err)
		}
		r.States[state] = n
	}
	return err
}

// readLedger reads the ledger of one worker. The last line of the ledger may be incomplete.
func readLedger(file string, r *record) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the worker was killed before it could write
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("ledger %s: %w", file, err)
		}
		r.Told = append(r.Told, e)
	}
	return err
}
