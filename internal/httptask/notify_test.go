package httptask_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httptask"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/worker"
)

// broken registers a workflow that fails for good.
func broken(w *worker.Worker) {
	worker.Register(w, "broken", func(context.Context, json.RawMessage) (any, error) {
		return nil, belay.Permanent(errors.New("it is broken: ${{ secrets.TOKEN }}"))
	})
}

// breaks submits an execution that fails and reports its end, and waits for its end.
func breaks(t *testing.T, b belay.Backend, notify ...belay.Notification) belay.Execution {
	t.Helper()
	out, err := b.Submit(t.Context(), belay.Submission{
		ID: belay.ExecutionID(embedded.NewID()), Workflow: "broken", Notify: notify,
	})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
	return ended(t, b, out[0].ID)
}

// Rule: the receiver of a notification gets one request for each end, with the end as JSON, signed as Standard Webhooks
// describes. The message of the failure is data: a reference to a secret in it is not resolved.
func TestTheEndOfAnExecutionIsReported(t *testing.T) {
	type request struct {
		http.Header
		body string
	}
	got := make(chan request, 10)
	s := receive(t, func(_ http.ResponseWriter, r *http.Request, _ int) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header, string(body)}
	})
	b := open(t, s.caller(t, "http"), broken)
	x := breaks(t, b, belay.Notification{URL: s.URL + "/hook", Secret: "${{ secrets.TOKEN }}"})
	d := ended(t, b, belay.NotificationID(x.ID, 1, 0))
	if d.State != belay.Succeeded || d.Trigger != belay.TriggerNotification {
		t.Fatalf("the delivery %s: %+v", d.State, d.Error)
	}
	r := <-got
	var ev belay.NotificationEvent
	if err := json.Unmarshal([]byte(r.body), &ev); err != nil || ev.Type != "execution.failed" || ev.Data.ID != x.ID ||
		ev.Data.Error.Message != x.Error.Message || strings.Contains(r.body, token) {
		t.Errorf("%v: %s", err, r.body)
	}
	id, at := r.Get("Webhook-Id"), r.Get("Webhook-Timestamp")
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(id + "." + at + "." + r.body))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Get("Webhook-Signature") != want ||
		id != d.ID.String()+"-1" {
		t.Errorf("the request %s has the signature %q, want %q", id, r.Get("Webhook-Signature"), want)
	}
	if len(got) > 0 {
		t.Errorf("%d more requests", len(got))
	}
}

// Attack: a notification leads into the network of the server, itself, by a redirect, or with a secret of another
// workflow. Each delivery fails for good and leaves a dead letter; the execution that ended stays as it is.
func TestNotificationsReachOnlyAllowedHosts(t *testing.T) {
	inside := receive(t, func(http.ResponseWriter, *http.Request, int) { t.Error("a request came inside") })
	outside := receive(t, func(rw http.ResponseWriter, r *http.Request, _ int) {
		http.Redirect(rw, r, inside.URL, http.StatusTemporaryRedirect)
	})
	b := open(t, outside.caller(t, "deploy", "deploy"), broken)
	for name, n := range map[string]belay.Notification{
		"loopback":         {URL: inside.URL},
		"a cloud":          {URL: "http://169.254.169.254/latest/meta-data/"},
		"an odd address":   {URL: "http://0x7f000001/"},
		"a redirect":       {URL: outside.URL},
		"another's secret": {URL: outside.URL, Secret: "${{ secrets.TOKEN }}"},
	} {
		x := breaks(t, b, n)
		d := ended(t, b, belay.NotificationID(x.ID, 1, 0))
		if d.State != belay.Failed || d.Error.Class != belay.ClassPermanent {
			t.Errorf("%s: the delivery %s: %+v, %s", name, d.State, d.Error, d.Output)
		}
		if x.State != belay.Failed || !strings.Contains(x.Error.Message, "it is broken") {
			t.Errorf("%s: the execution %s: %+v", name, x.State, x.Error)
		}
	}
}

// Every input of a delivery passes the check of the workflow, whatever the URL is.
func FuzzDeliveriesAreRequests(f *testing.F) {
	f.Add("https://example.org/${{ secrets.A }}?x=1", "${{ secrets.B }}")
	f.Add("${{ secrets.A }}", "")
	f.Add("http://[::1]:8080/%2f", "")
	f.Fuzz(func(t *testing.T, url, secret string) {
		n := belay.Notification{URL: url, Secret: secret}
		if belay.CheckNotifications("submit", []belay.Notification{n}) != nil {
			return
		}
		x, err := machine.DeliverySample(&n)
		if err != nil {
			t.Fatal(err)
		}
		// The check of the workflow knows more about hosts; it refuses nothing else.
		if err := httptask.CheckInput(x.Input); err != nil && !strings.Contains(err.Error(), "host") {
			t.Errorf("%q: %v", url, err)
		}
	})
}
