package mqtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// callTimeout bounds one evaluation, which takes a few milliseconds on an idle machine.
const callTimeout = time.Minute

// Eval evaluates an Erlang expression in the server and returns the value as Erlang writes it. It skips the
// test if the server is one that BELAY_TEST_RABBITMQ names.
//
// Eval uses erl_call, because a run of rabbitmqctl starts Erlang with all its libraries, and takes a core for
// more than a second.
func (s *Server) Eval(t testing.TB, expression string) string {
	t.Helper()
	s.private(t)
	out, err := s.eval(expression)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *Server) eval(expression string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	// erl_call reads the cookie from the home directory. Its node needs a name that no other has.
	cmd := exec.CommandContext(ctx, s.programs.call, "-h", s.Name("call"), "-n", s.node(), "-e")
	cmd.Env, cmd.Dir, cmd.Stdin = s.environment(), s.dir, strings.NewReader(expression+".\n")
	out, err := cmd.CombinedOutput()
	value, ok := strings.CutPrefix(string(out), "{ok, ")
	if err != nil || !ok {
		return "", fmt.Errorf("evaluate %s: %w: %s", expression, errors.Join(err, errEval), out)
	}
	return strings.TrimSuffix(strings.TrimSpace(value), "}"), nil
}

// errEval reports that the server could not evaluate an expression.
var errEval = errors.New("the server has no value for it")

// do evaluates an expression whose value must be ok.
func (s *Server) do(t testing.TB, format string, args ...any) {
	t.Helper()
	for i, a := range args {
		if text, is := a.(string); is {
			args[i] = erlang(text)
		}
	}
	if out := s.Eval(t, fmt.Sprintf(format, args...)); out != "ok" {
		t.Fatalf("%s: the value is %s", fmt.Sprintf(format, args...), out)
	}
}

// erlang writes a text as an Erlang binary.
func erlang(text string) string {
	var b strings.Builder
	for i, c := range []byte(text) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(c)))
	}
	return "<<" + b.String() + ">>"
}

// private skips a test that needs a server of its own kind: a server that the tests may control.
func (s *Server) private(t testing.TB) {
	t.Helper()
	if s.outside != nil {
		t.Skip("the server of " + envURL + " must not be controlled by a test")
	}
}

// Name returns a name that no other test uses, on any server, beginning with the given word.
func (s *Server) Name(word string) string {
	return fmt.Sprintf("%s-%d-%d-%d", word, os.Getpid(), s.ports.client, s.names.Add(1))
}

// Common returns the name of a virtual host that all tests with this server use.
func (s *Server) Common() string {
	if s.outside != nil {
		return strings.TrimPrefix(s.outside.Path, "/")
	}
	return "/"
}

// VHost makes an empty virtual host and returns its name. On a server that BELAY_TEST_RABBITMQ names,
// it returns the virtual host of that URL, which other tests use too.
func (s *Server) VHost(t testing.TB) string {
	t.Helper()
	if s.outside != nil {
		return s.Common()
	}
	name := s.Name("test")
	s.do(t, "rabbit_vhost:add(%s, %[2]s), rabbit_auth_backend_internal:set_permissions(%[3]s, %[1]s, %[4]s, %[4]s, "+
		"%[4]s, %[2]s)", name, by, user, ".*")
	return name
}

// by is the name under which the server logs the changes that tests make.
const by = "mqtest"

// Permissions are regular expressions for the names of the queues and exchanges that a user may
// configure (declare and delete), write to and read from. An empty one permits nothing.
type Permissions struct{ Configure, Write, Read string }

// User makes a user with permissions on a virtual host, and returns the URL for this user.
func (s *Server) User(t testing.TB, vhost string, p Permissions) string {
	t.Helper()
	name, secret := s.Name("user"), rand.Text()
	s.do(t, "rabbit_auth_backend_internal:add_user(%s, %s, %s)", name, secret, by)
	of := s.urlOf(vhost, url.UserPassword(name, secret))
	s.Permit(t, of, vhost, p)
	return of
}

// Permit changes the permissions of the user of a URL that User returned.
func (s *Server) Permit(t testing.TB, of, vhost string, p Permissions) {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	s.do(t, "rabbit_auth_backend_internal:set_permissions(%s, %s, %s, %s, %s, %s)", u.User.Username(), vhost,
		p.Configure, p.Write, p.Read, by)
}

// Queue is a queue of the server.
type Queue struct {
	Type                string
	Messages, Consumers int
}

// Queue returns a queue of a virtual host, and false if there is none of that name.
func (s *Server) Queue(t testing.TB, vhost, name string) (q Queue, ok bool) {
	t.Helper()
	out := s.Eval(t, fmt.Sprintf(`case rabbit_amqqueue:lookup(rabbit_misc:r(%s, queue, %s)) of
		{ok, Q} -> [{_, T}, {_, M}, {_, C}] = rabbit_amqqueue:info(Q, [type, messages, consumers]), {T, M, C};
		{error, not_found} -> none end`, erlang(vhost), erlang(name)))
	if out == "none" {
		return Queue{}, false
	}
	fields := strings.FieldsFunc(out, func(c rune) bool { return strings.ContainsRune("{}, ", c) })
	if _, err := fmt.Sscan(strings.Join(fields, " "), &q.Type, &q.Messages, &q.Consumers); err != nil {
		t.Fatalf("read the queue %q: %v", out, err)
	}
	return q, true
}

// Names returns the names of the queues of a virtual host.
func (s *Server) Names(t testing.TB, vhost string) (names []string) {
	t.Helper()
	out := s.Eval(t, fmt.Sprintf("[binary_to_list(element(4, amqqueue:get_name(Q))) || Q <- rabbit_amqqueue:list(%s)]",
		erlang(vhost)))
	for _, m := range quoted.FindAllStringSubmatch(out, -1) {
		names = append(names, m[1])
	}
	return names
}

var quoted = regexp.MustCompile(`"([^"]*)"`)

// Purge deletes the messages of a queue that no consumer has received.
func (s *Server) Purge(t testing.TB, vhost, queue string) {
	t.Helper()
	s.do(t, "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(%s, queue, %s)), {ok, _} = rabbit_amqqueue:purge(Q), ok",
		vhost, queue)
}

// Delete deletes a queue with its messages.
func (s *Server) Delete(t testing.TB, vhost, queue string) {
	t.Helper()
	s.do(t, "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(%s, queue, %s)), "+
		"{ok, _} = rabbit_amqqueue:delete(Q, false, false, %s), ok", vhost, queue, by)
}

// CloseConnections closes all connections of a virtual host, as an operator would. Connections of other tests may end
// meanwhile, so asking one for its virtual host may fail.
func (s *Server) CloseConnections(t testing.TB, vhost string) {
	t.Helper()
	s.do(t, `[rabbit_networking:close_connection(P, "closed by a test") || P <- rabbit_networking:connections(), `+
		"(catch rabbit_networking:connection_info(P, [vhost])) =:= [{vhost, %s}]], ok", vhost)
}

// Alarm raises the memory alarm of the server: it accepts no message any more, and stops reading from
// connections that publish. The returned function ends the alarm, and so does the end of the test.
func (s *Server) Alarm(t testing.TB) (end func()) {
	t.Helper()
	s.do(t, "vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1000000})")
	over := false
	end = func() {
		if over {
			return
		}
		over = true
		if _, err := s.eval("vm_memory_monitor:set_vm_memory_high_watermark(0.4)"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return end
}
