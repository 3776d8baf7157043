package broker

import (
	gocmp "cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/faultproxy"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/google/go-cmp/cmp"
)

// These tests stop the server, or raise its alarm. They use the shared one, because a start takes seconds, and they
// are not parallel, so that they end before the other tests of this package begin.
func TestOutages(t *testing.T) {
	server := mqtest.Shared(t)
	if server.Outside() {
		t.Skip("the server must not be stopped by a test")
	}
	t.Run("Alarm", func(t *testing.T) { testAlarm(t, server) })
	t.Run("Crash", func(t *testing.T) { testCrash(t, server) })
}

// With an alarm, publishing fails at once and says so, receiving and declaring work, and afterwards
// publishing works again on the same connection.
func testAlarm(t *testing.T, server *mqtest.Server) {
	s := newSite(t, server)
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	publish(t, b, queue, m)
	end := s.server.Alarm(t)
	// RabbitMQ tells a connection about the alarm when the connection publishes, which may be some messages later. It
	// does not confirm that message until the alarm is over.
	sent, err := 1, error(nil)
	await(t, "a refusal", func() bool {
		if err = b.Publish(ctxOf(t), queue, m); err == nil {
			sent++
		}
		return err != nil
	})
	wants(t, err, belay.CodeUnavailable, "alarm", "memory")
	await(t, "the state", func() bool { return b.State().Publish.Blocked != "" })
	wants(t, b.State().Ready(), belay.CodeUnavailable, "alarm", "memory")
	wants(t, b.Publish(ctxOf(t), queue, m), belay.CodeUnavailable, "alarm", "memory")
	if used := len(b.publisher.slots); used != 0 {
		t.Errorf("%d messages have a slot during the alarm", used)
	}
	var got inbox[Message]
	s.receive(m.Worker, queue, got.put)
	got.wait(t, sent)
	declared(t, b, newMessage())
	end()
	await(t, "the end of the alarm", func() bool { return b.State().Ready() == nil })
	publish(t, b, queue, m)
	got.wait(t, sent+2) // with the one that RabbitMQ read during the alarm
	if n := b.State().Publish.Attempts; n != 1 {
		t.Errorf("%d connections for publishing, want 1", n)
	}
}

// Confirmed messages survive a restart and a crash of RabbitMQ. Both sides come back by themselves, while
// publishing fails at once in between. A queue that was declared in the moment of the crash may never have a
// leader again, and then blocks the connection that publishes to it: publishing to it ends in time and deletes
// it, and declaring it again helps.
func testCrash(t *testing.T, server *mqtest.Server) {
	s := newSite(t, server)
	s.options.ConfirmTimeout = 3 * time.Second
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	publish(t, b, queue, m)
	if mqtest.Long() { // a restart in order, in addition to the crash
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	second := m
	second.Token++
	await(t, "the second message", func() bool { return b.Publish(ctxOf(t), queue, second) == nil })
	await(t, "the connections", func() bool { return b.State().Ready() == nil })
	newest := newMessage()
	stuck := declared(t, b, newest)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, "the outage", func() bool { return b.State().Publish.Err != nil && b.State().Consume.Err != nil })
	wants(t, b.Publish(ctxOf(t), queue, second), belay.CodeUnavailable)
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	var got inbox[Message]
	s.receive(m.Worker, queue, got.put)
	all := got.wait(t, 2) // they are handled at the same time
	slices.SortFunc(all, func(a, b Message) int { return gocmp.Compare(a.Token, b.Token) })
	if diff := cmp.Diff([]Message{m, second}, all); diff != "" {
		t.Error(diff)
	}
	await(t, "the connections", func() bool { return b.State().Ready() == nil })
	third := m
	third.Token += 2
	publish(t, b, queue, third)
	got.wait(t, 3)
	if !mqtest.Long() { // what follows takes ten seconds if the queue is stuck
		return
	}
	if err := b.Publish(ctxOf(t), stuck, newest); err != nil { // RabbitMQ may have saved the declaration in time
		wants(t, err, belay.CodeNotFound, stuck, "was stuck")
		declared(t, b, newest)
		await(t, "the connection", func() bool { return b.Publish(ctxOf(t), queue, third) == nil })
		publish(t, b, stuck, newest)
	}
}

// A server that accepts the connection and says nothing more is given up in time, and a call to it
// returns when its context ends.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	server := mqtest.Shared(t)
	s := newSite(t, server)
	s.options.ConfirmTimeout, s.options.call = 200*time.Millisecond, 500*time.Millisecond
	proxy, err := faultproxy.Listen(server.Address(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	s.options.URL = strings.Replace(s.options.URL, server.Address(), proxy.Addr(), 1)
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	publish(t, b, queue, m)
	proxy.Set(faultproxy.Fault{Hold: faultproxy.Up | faultproxy.Down})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.Declare(ctx, m.Worker); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("declare through a dead connection: %v", err)
	}
	wants(t, b.Publish(ctxOf(t), queue, m), belay.CodeUnavailable, "did not confirm")
	await(t, "the end of the other connection", func() bool { return b.State().Consume.Err != nil })
	proxy.Heal()
	proxy.Cut()
	await(t, "a message", func() bool { return b.Publish(ctxOf(t), queue, m) == nil })
	if used := len(b.publisher.slots); used != 0 {
		t.Errorf("%d messages have a slot although all have an answer", used)
	}
}
