package faultproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/faultproxy"
)

// patience is how long a test waits for an event that must happen.
const patience = 10 * time.Second

// echo is a server that answers each line with the same line, until the test ends. The returned
// channel gets the lines that the server received.
func echo(t *testing.T, network, address string) (string, <-chan string) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 1000)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for in := bufio.NewScanner(c); in.Scan(); {
					heard <- in.Text()
					_, _ = fmt.Fprintln(c, in.Text())
				}
			}()
		}
	}()
	return l.Addr().String(), heard
}

// through opens a proxy in front of an echo server.
func through(t *testing.T) (*faultproxy.Proxy, <-chan string) {
	t.Helper()
	target, heard := echo(t, "tcp", "127.0.0.1:0")
	return open(t, target), heard
}

func open(t *testing.T, target string) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.Listen(target, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// line is a connection that sends and receives lines.
type line struct {
	net.Conn
	t  *testing.T
	in *bufio.Reader
}

func dial(t *testing.T, p *faultproxy.Proxy) *line {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &line{c, t, bufio.NewReader(c)}
}

func (l *line) say(s string) {
	l.t.Helper()
	if _, err := fmt.Fprintln(l, s); err != nil {
		l.t.Fatalf("say %s: %v", s, err)
	}
}

func (l *line) wantAnswer(s string) {
	l.t.Helper()
	if got, err := l.in.ReadString('\n'); err != nil || got != s+"\n" {
		l.t.Fatalf("answer %q, %v; want %q", got, err, s)
	}
}

// wantReset checks that the connection breaks with an error instead of ending.
func (l *line) wantReset() {
	l.t.Helper()
	got, err := l.in.ReadString('\n')
	if got != "" || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		l.t.Fatalf("received %q, %v; want a reset", got, err)
	}
}

// wantSilence checks that nothing arrives for a moment.
func (l *line) wantSilence() {
	l.t.Helper()
	_ = l.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if b, err := l.in.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatalf("received %q, %v; want silence", b, err)
	}
	_ = l.SetDeadline(time.Now().Add(patience))
}

func wantHeard(t *testing.T, heard <-chan string, s string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != s {
			t.Fatalf("the server received %q, want %q", got, s)
		}
	case <-time.After(patience):
		t.Fatalf("the server did not receive %q", s)
	}
}

// Without a fault the proxy changes nothing, over TCP and over a Unix socket.
func TestPassesOn(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	_, overSocket := echo(t, "unix", socket)
	p, overTCP := through(t)
	for heard, p := range map[<-chan string]*faultproxy.Proxy{overSocket: open(t, "unix:"+socket), overTCP: p} {
		l := dial(t, p)
		l.say("hello")
		wantHeard(t, heard, "hello")
		l.wantAnswer("hello")
		long := strings.Repeat("x", 60<<10)
		l.say(long)
		l.wantAnswer(long)
		_ = l.Conn.(*net.TCPConn).CloseWrite()
		if _, err := l.in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("the end is %v", err)
		}
	}
}

// A direction with the fault Hold delivers its data late and in order, and the other direction is
// not affected.
func TestHoldsOneWay(t *testing.T) {
	for _, d := range []faultproxy.Direction{faultproxy.Up, faultproxy.Down} {
		p, heard := through(t)
		l := dial(t, p)
		l.say("before")
		l.wantAnswer("before")
		wantHeard(t, heard, "before")
		p.Set(faultproxy.Fault{Hold: d})
		l.say("one")
		l.say("two")
		if d == faultproxy.Down {
			wantHeard(t, heard, "one") // the server has received both lines, and the proxy keeps the server's answers
			wantHeard(t, heard, "two")
		}
		l.wantSilence()
		if len(heard) > 0 {
			t.Errorf("the server received %q", <-heard)
		}
		p.Heal()
		l.wantAnswer("one")
		l.wantAnswer("two")
	}
}

// Cut resets open connections and drops their undelivered data, and the proxy accepts new
// connections.
func TestCut(t *testing.T) {
	p, heard := through(t)
	l := dial(t, p)
	l.say("a")
	l.wantAnswer("a")
	wantHeard(t, heard, "a")
	p.Set(faultproxy.Fault{Hold: faultproxy.Up})
	l.say("lost")
	l.wantSilence()
	p.Cut()
	l.wantReset()
	p.Heal()
	again := dial(t, p)
	again.say("b")
	again.wantAnswer("b")
	wantHeard(t, heard, "b")
	if c := p.Counts(); c.Connections != 2 || c.Cut != 1 {
		t.Errorf("%+v", c)
	}
}

// A proxy with the fault Refuse resets new connections and does not affect open connections.
func TestRefuses(t *testing.T) {
	p, _ := through(t)
	l := dial(t, p)
	l.say("a")
	l.wantAnswer("a")
	p.Set(faultproxy.Fault{Refuse: true})
	c, err := net.Dial("tcp", p.Addr())
	if err == nil { // the reset may arrive during the connect or later
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection got %v, want a reset", err)
	}
	l.say("b")
	l.wantAnswer("b")
}

// A half-open connection accepts data and never answers.
func TestHalfOpen(t *testing.T) {
	p, heard := through(t)
	l := dial(t, p)
	l.say("a")
	l.wantAnswer("a")
	wantHeard(t, heard, "a")
	p.HalfOpen()
	for range 3 {
		l.say("into the void")
		l.wantSilence()
	}
	if len(heard) > 0 {
		t.Errorf("the server received %q", <-heard)
	}
}

// CutAfter cuts a reply after the given number of bytes, although the server has received the
// request.
func TestCutAfter(t *testing.T) {
	p, heard := through(t)
	l := dial(t, p)
	p.CutAfter(3)
	l.say("abcdef")
	wantHeard(t, heard, "abcdef")
	got, err := io.ReadAll(l.in)
	if string(got) != "abc" || err == nil {
		t.Errorf("%q, %v", got, err)
	}
	again := dial(t, p)
	again.say("whole")
	again.wantAnswer("whole")
}

// Latency and Bandwidth delay data by the given amounts.
func TestSlow(t *testing.T) {
	p, _ := through(t)
	l := dial(t, p)
	began := time.Now()
	p.Set(faultproxy.Fault{Latency: 40 * time.Millisecond})
	l.say("there and back")
	l.wantAnswer("there and back")
	if d := time.Since(began); d < 80*time.Millisecond {
		t.Errorf("a way of 80 ms took %s", d)
	}
	began = time.Now()
	p.Set(faultproxy.Fault{Bandwidth: 100_000})
	long := strings.Repeat("x", 5000)
	l.say(long)
	l.wantAnswer(long)
	if d := time.Since(began); d < 100*time.Millisecond {
		t.Errorf("10,000 bytes at 100,000 a second took %s", d)
	}
}

// The seed decides all random faults: with the same seed, the proxy cuts the same pieces of data.
func TestChancesAreSeeded(t *testing.T) {
	lengths := func() (out []int) {
		p, _ := through(t)
		p.Set(faultproxy.Fault{CutDown: 0.2})
		for range 5 {
			l := dial(t, p)
			n := 0
			for ; n < 1000; n++ {
				l.say("x")
				if _, err := l.in.ReadString('\n'); err != nil {
					break
				}
			}
			out = append(out, n)
		}
		return out
	}
	first, second := lengths(), lengths()
	if fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("%v, then %v", first, second)
	}
}
