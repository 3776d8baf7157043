package test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/mqtest"
)

// Environment variables of tests with RabbitMQ: the URL for servers and workers, and whether a worker's session
// outlives its messages.
const (
	brokerEnv  = "BELAY_BROKER_URL"
	patientEnv = "BLACKBOX_PATIENT"
)

// expired is the error of an execution whose message its worker did not take in time.
const expired = "Message expired in worker queue (worker unavailable)"

// newBrokerTasks starts a server that dispatches its executions through RabbitMQ, with a virtual host of its own. The
// test fails if the server sends no message.
func newBrokerTasks(t *testing.T, args ...string) tasks {
	t.Helper()
	s := idleBrokerTasks(t, args...)
	t.Cleanup(func() {
		if n := s.metric(`belay_broker_messages_total{event="confirmed"}`); n == 0 {
			t.Error("the server has sent no message")
		}
	})
	return s
}

// idleBrokerTasks starts the server of newBrokerTasks, which need not send a message.
func idleBrokerTasks(t *testing.T, args ...string) tasks {
	t.Helper()
	return brokerTasks(t, nil, args...)
}

// brokerTasks is idleBrokerTasks with further variables in the environment of the server.
func brokerTasks(t *testing.T, env []string, args ...string) tasks {
	t.Helper()
	mq := mqtest.Shared(t)
	vhost := mq.VHost(t)
	p := newPlace(t)
	p.more = append([]string{brokerEnv + "=" + mq.URL(vhost)}, env...)
	x, a := p.serve(append([]string{
		"--broker-queues", "default", "--broker-prefix", mq.Name("belay"), "--broker-worker-queue-ttl", "2s",
	}, args...)...)
	s := tasks{place: p, api: a, t: t, vhost: vhost}
	x.until("the server is connected to RabbitMQ", s.connected)
	return s
}

// connected reports whether the server can send messages and receive dead letters.
func (s tasks) connected() bool {
	return s.metric(`belay_broker_connected{connection="publish"}`) == 1 &&
		s.metric(`belay_broker_connected{connection="consume"}`) == 1
}

// metric returns the value of a metric of the server.
func (s tasks) metric(name string) float64 {
	s.t.Helper()
	response, err := http.Get(s.url + "/metrics") // also at the end of the test
	must(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(s.t, err)
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(string(text))
	if found == nil {
		return 0
	}
	v, err := strconv.ParseFloat(found[1], 64)
	must(s.t, err)
	return v
}

// reaches waits until a worker gets its executions by messages: it submits tasks that end at once, until one of
// them was scheduled. Other workers have no free slot meanwhile.
func (s tasks) reaches(name string) {
	s.t.Helper()
	until(s.t, name+" has a mailbox", func() bool { return s.session(name).Mailbox != "" })
	warm := s
	warm.terms = ""
	for n := 1; ; n++ {
		file := fmt.Sprint(name, " warm ", n)
		s.free(file)
		id := warm.submit(file, `"scheduled_timeout":"300ms"`) // a worker that a test has stopped may get the message
		s.finishedBy(id, name)
		all := s.history(id)
		i := slices.IndexFunc(all, func(ev belay.Event) bool { return ev.Kind == "started" })
		if all[i-1].Kind == "scheduled" {
			return
		}
	}
}

// scheduledTo waits until an execution is scheduled to a worker, which has not accepted it.
func (s tasks) scheduledTo(id belay.ExecutionID, worker string) {
	s.t.Helper()
	until(s.t, "it is scheduled to "+worker, func() bool {
		x := s.execution(id)
		return x.State == belay.Scheduled && x.Worker == s.session(worker).ID
	})
}

// byMessage checks that the last run of an execution was scheduled before it started.
func (s tasks) byMessage(id belay.ExecutionID) {
	s.t.Helper()
	all := s.history(id)
	if count(all, "scheduled") == 0 || count(all, "scheduled") < count(all, "started") {
		s.t.Errorf("a worker has claimed it, and got no message\n%s", show(all))
	}
}

// Rule: the scenarios of the requirement "Worker Availability Handling", with workers that get their executions
// through RabbitMQ, under on_expired: fail and under the default.
func TestWorkerAvailabilityThroughRabbitMQ(t *testing.T) {
	t.Parallel()
	mqtest.Shared(t)
	for _, c := range append(scenarios,
		scenario{"message expires in queue", nil, messageExpiresAndFails, messageExpiresAndRecovers},
		scenario{"worker never accepts", nil, neverAcceptsAndFails, neverAcceptsAndRecovers},
		scenario{"worker is drained", nil, nil, drainedAndRecovers},
		scenario{"worker dies with messages", nil, nil, diesAndRecovers},
	) {
		if c.fail != nil {
			t.Run(c.name+"/fail", func(t *testing.T) {
				t.Parallel()
				s := newBrokerTasks(t, c.toFail...)
				s.terms = `"on_expired":"fail"`
				c.fail(s)
			})
		}
		t.Run(c.name+"/recover", func(t *testing.T) {
			t.Parallel()
			c.recover(newBrokerTasks(t))
		})
	}
}

// stopped starts a worker whose session outlives its messages, stops it, and closes its connection, so that its
// messages wait in RabbitMQ. (A message that RabbitMQ has delivered does not expire.)
func (s tasks) stopped(name string) *started {
	s.t.Helper()
	x := s.hire(name, patientEnv+"=1")
	x.signal(syscall.SIGSTOP)
	mqtest.Shared(s.t).CloseConnections(s.t, s.vhost)
	until(s.t, "the server has connected again", s.connected)
	return x
}

// messageExpiresAndFails: the worker has a session and does not take its message.
func messageExpiresAndFails(s tasks) {
	one := s.stopped("one")
	id := s.submit("expired", "")
	s.free("expired")
	s.scheduledTo(id, "one")
	s.failed(id, expired, "dead_letter_handler")
	if x := s.execution(id); x.FinishedAt.Sub(x.CreatedAt) < time.Second {
		s.t.Errorf("it failed after %s, before its message expired", x.FinishedAt.Sub(x.CreatedAt))
	}
	one.signal(syscall.SIGCONT)
	later := s.submit("later", "")
	s.free("later")
	s.finishedBy(later, "one")
	s.neverStarted(id)
	until(s.t, "the metrics count the dead letter", func() bool {
		return s.metric(`belay_dead_letters{reason="expired"}`) == 1
	})
}

func messageExpiresAndRecovers(s tasks) {
	one := s.stopped("one")
	id := s.submit("expired", "")
	s.free("expired")
	s.scheduledTo(id, "one")
	s.hire("two")
	s.finishedBy(id, "two")
	s.byMessage(id)
	one.signal(syscall.SIGCONT)
	later := s.submit("later", "")
	s.free("later")
	if x := s.ended(later); x.string("state") != "succeeded" {
		s.t.Errorf("after the worker has continued:\n%s", x.text)
	}
}

// neverAcceptsAndFails: the scheduled timeout is over before the message expires.
func neverAcceptsAndFails(s tasks) {
	s.stopped("one")
	id := s.submit("deaf", `"scheduled_timeout":"500ms"`)
	s.failed(id, notPickedUp+": its worker did not accept it within 500ms", "execution_timeout_monitor")
	s.neverStarted(id)
}

func neverAcceptsAndRecovers(s tasks) {
	s.stopped("one")
	id := s.submit("deaf", `"scheduled_timeout":"500ms"`)
	s.free("deaf")
	s.scheduledTo(id, "one")
	s.hire("two")
	s.finishedBy(id, "two")
}

// drainedAndRecovers: an operator drains the worker, so that another worker gets what was scheduled to it at once.
func drainedAndRecovers(s tasks) {
	one := s.stopped("one")
	id := s.submit("early", "")
	s.free("early")
	s.scheduledTo(id, "one")
	two := s.start(s.role("tasks", urlEnv+"="+s.url, nameEnv+"=two"))
	two.until("the second worker has a mailbox", func() bool { return s.session("two").Mailbox != "" })
	began := time.Now()
	s.want(http.StatusNoContent, "POST", "/v1/workers/"+s.session("one").ID.String()+"/drain", "")
	s.finishedBy(id, "two")
	s.t.Logf("finished %s after the drain", time.Since(began))
	one.signal(syscall.SIGCONT)
	one.wait(patience).want(0)
}

// diesAndRecovers: a worker dies before it takes its message. The reaper gives the execution to another worker, long
// before the scheduled timeout.
func diesAndRecovers(s tasks) {
	one := s.hire("one")
	one.signal(syscall.SIGSTOP) // RabbitMQ delivers the message all the same
	id := s.submit("orphan", `"scheduled_timeout":"5m"`)
	s.free("orphan")
	s.scheduledTo(id, "one")
	one.signal(syscall.SIGKILL)
	until(s.t, "the worker is lost", func() bool { return s.state("one") == "lost" })
	s.hire("two")
	s.finishedBy(id, "two")
}
