package mqtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// ctlTimeout bounds one run of rabbitmqctl, which takes half a second on an idle machine.
const ctlTimeout = time.Minute

// Ctl runs rabbitmqctl with the arguments, and returns its output. It skips the test if the server
// is one that BELAY_TEST_RABBITMQ names.
func (s *Server) Ctl(t testing.TB, args ...string) string {
	t.Helper()
	s.private(t)
	out, err := s.ctl(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *Server) ctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ctlTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.programs.ctl, append([]string{"--quiet", "--node", s.node()}, args...)...)
	cmd.Env, cmd.Dir = s.environment(), s.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
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

// VHost makes an empty virtual host and returns its name. On a server that BELAY_TEST_RABBITMQ names,
// it returns the virtual host of that URL, which other tests use too.
func (s *Server) VHost(t testing.TB) string {
	t.Helper()
	if s.outside != nil {
		return strings.TrimPrefix(s.outside.Path, "/")
	}
	name := s.Name("test")
	s.Ctl(t, "add_vhost", name)
	s.Ctl(t, "set_permissions", "--vhost", name, user, ".*", ".*", ".*")
	return name
}

// Permissions are regular expressions for the names of the queues and exchanges that a user may
// configure (declare and delete), write to and read from. An empty one permits nothing.
type Permissions struct{ Configure, Write, Read string }

// User makes a user with permissions on a virtual host, and returns the URL for this user.
func (s *Server) User(t testing.TB, vhost string, p Permissions) string {
	t.Helper()
	name, secret := s.Name("user"), rand.Text()
	s.Ctl(t, "add_user", name, secret)
	s.Ctl(t, "set_permissions", "--vhost", vhost, name, p.Configure, p.Write, p.Read)
	return s.urlOf(vhost, url.UserPassword(name, secret))
}

// Permit changes the permissions of the user of a URL that User returned.
func (s *Server) Permit(t testing.TB, of, vhost string, p Permissions) {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	s.Ctl(t, "set_permissions", "--vhost", vhost, u.User.Username(), p.Configure, p.Write, p.Read)
}

// Queue is a queue of the server.
type Queue struct {
	Name, Type          string
	Messages, Consumers int
}

// Queues returns the queues of a virtual host by their names.
func (s *Server) Queues(t testing.TB, vhost string) map[string]Queue {
	t.Helper()
	all := make(map[string]Queue)
	out := s.Ctl(t, "list_queues", "--vhost", vhost, "--no-table-headers", "name", "type", "messages", "consumers")
	for line := range strings.Lines(out) {
		var q Queue
		if _, err := fmt.Sscan(line, &q.Name, &q.Type, &q.Messages, &q.Consumers); err != nil {
			t.Fatalf("read the queue %q: %v", line, err)
		}
		all[q.Name] = q
	}
	return all
}

// Purge deletes the messages of a queue that no consumer has received.
func (s *Server) Purge(t testing.TB, vhost, queue string) {
	t.Helper()
	s.Ctl(t, "purge_queue", "--vhost", vhost, queue)
}

// Delete deletes a queue with its messages.
func (s *Server) Delete(t testing.TB, vhost, queue string) {
	t.Helper()
	s.Ctl(t, "delete_queue", "--vhost", vhost, queue)
}

// CloseConnections closes all connections of a virtual host, as an operator would.
func (s *Server) CloseConnections(t testing.TB, vhost string) {
	t.Helper()
	s.Ctl(t, "close_all_connections", "--vhost", vhost, "closed by a test")
}

// Alarm raises the memory alarm of the server: it accepts no message any more, and stops reading from
// connections that publish. The returned function ends the alarm, and so does the end of the test.
func (s *Server) Alarm(t testing.TB) (end func()) {
	t.Helper()
	s.Ctl(t, "set_vm_memory_high_watermark", "absolute", "1000000")
	over := false
	end = func() {
		if over {
			return
		}
		over = true
		if _, err := s.ctl("set_vm_memory_high_watermark", "0.4"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return end
}
