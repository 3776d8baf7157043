package belay

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxNotifications is the largest number of notifications of one submission.
	MaxNotifications = 10
	// MaxNotificationURL is the largest size of the URL of a notification, in bytes.
	MaxNotificationURL = 2 << 10
	// NotificationWorkflow is the workflow of deliveries: the built-in workflow of HTTP requests.
	NotificationWorkflow = "http"
)

// LabelNotification is the label of a delivery, an execution that sends a notification. Its value is the id of the
// execution whose end the notification reports.
const LabelNotification = "notification"

// Notification asks for an HTTP request when an execution ends. The request is a delivery: an execution of
// NotificationWorkflow, which the Backend creates in the commit that ends the execution, with the trigger
// TriggerNotification, a NotificationPayload, and the id NotificationID. If the execution is reopened and ends again,
// there is another delivery.
type Notification struct {
	// URL is an http or https URL without a user name, a password and a fragment. References such as
	// ${{ secrets.NAME }} stand for secrets: the whole URL, or parts of its path or query.
	URL string `json:"url"`
	// Format is the form of the body: FormatEvent if it is empty, or FormatSlack.
	Format NotificationFormat `json:"format,omitempty"`
	// On are the states of an end that is reported: Succeeded, Failed and Cancelled. Empty means Failed, which
	// includes executions that were too late, were lost, or found no worker.
	On []State `json:"on,omitempty"`
	// Secret refers to the secret with which the request is signed as Standard Webhooks describes. Empty means
	// that the request is not signed.
	Secret string `json:"secret,omitempty"`
}

// NotificationFormat is the form of the body of a notification.
type NotificationFormat string

// The values of NotificationFormat.
const (
	// FormatEvent: the body is a NotificationEvent as JSON. It is the default.
	FormatEvent NotificationFormat = "event"
	// FormatSlack: the body is an object with a text, which incoming webhooks of Slack and compatible services
	// accept.
	FormatSlack NotificationFormat = "slack"
)

// Reports reports whether the notification is for an end in this state.
func (n *Notification) Reports(s State) bool {
	if len(n.On) == 0 {
		return s == Failed
	}
	return slices.Contains(n.On, s)
}

// NotificationEvent is the body of a notification in FormatEvent, in the form of Standard Webhooks.
type NotificationEvent struct {
	// Type is "execution." and the state, as in execution.failed.
	Type string `json:"type"`
	// Timestamp is when the execution ended.
	Timestamp time.Time        `json:"timestamp"`
	Data      NotificationData `json:"data"`
}

// NotificationData describes the execution that has ended. It has neither the input nor the output; read the
// execution for them.
type NotificationData struct {
	ID         ExecutionID `json:"id"`
	Workflow   string      `json:"workflow"`
	Version    string      `json:"version,omitempty"`
	Queue      string      `json:"queue"`
	State      State       `json:"state"`
	Generation int         `json:"generation"`
	// Error is set if the execution failed. Its Message has at most 1 KiB, and there is no Stack.
	Error      *Failure  `json:"error,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at"`
}

// NotificationPayload is the trigger payload of a delivery: the end that it reports.
type NotificationPayload struct {
	Execution  ExecutionID `json:"execution"`
	Generation int         `json:"generation"`
	State      State       `json:"state"`
	// Target is the index of the notification in the submission. Name is the name of the NotificationTarget if an
	// operator has asked for the delivery; Target is 0 then.
	Target int    `json:"target"`
	Name   string `json:"name,omitempty"`
}

// idVersion is the version of the ids of deliveries and the 12 bits after it. No other execution may have such an id.
const idVersion = 0x8be1

// NotificationID returns the id of the delivery that reports the end of a generation of an execution to one of its
// notifications, by index. The Backend refuses submissions and forks with an id of this form.
func NotificationID(execution ExecutionID, generation, target int) ExecutionID {
	return notificationID("notification", execution, int64(generation), int64(target), "")
}

// TargetNotificationID returns the id of the delivery that reports the end of a generation of an execution to the
// NotificationTarget with this name.
func TargetNotificationID(execution ExecutionID, generation int, name string) ExecutionID {
	return notificationID("notification target", execution, int64(generation), 0, name)
}

// AlertNotificationID returns the id of the delivery of an alert to the NotificationTarget with this name. The id of
// the occurrence is unique among the alerts of one kind, and has the time of the delivery's id.
func AlertNotificationID(a Alert, occurrence ExecutionID, name string) ExecutionID {
	return notificationID("alert "+string(a), occurrence, 0, 0, name)
}

func notificationID(what string, of ExecutionID, a, b int64, name string) ExecutionID {
	h := sha256.New()
	h.Write([]byte(what))
	h.Write(of[:])
	_ = binary.Write(h, binary.BigEndian, [2]int64{a, b})
	h.Write([]byte(name))
	id := ExecutionID(h.Sum(nil)[:16])
	copy(id[:6], of[:6]) // the timestamp of the execution, so that the table stores both near each other
	binary.BigEndian.PutUint16(id[6:], idVersion)
	id[8] = id[8]&0x3f | 0x80
	return id
}

// IsNotificationID reports whether an id has the form of NotificationID.
func IsNotificationID(id ExecutionID) bool {
	return binary.BigEndian.Uint16(id[6:]) == idVersion && id[8]&0xc0 == 0x80
}

// CheckNotifications returns an error if a submission cannot have these notifications. It does not check whether the
// hosts may be reached. The error contains no part of a URL, since it may contain a credential.
func CheckNotifications(op string, all []Notification) error {
	if len(all) > MaxNotifications {
		return notificationError(op, fmt.Sprintf("there are %d notifications; the limit is %d", len(all),
			MaxNotifications))
	}
	for i := range all {
		if what := all[i].wrong(); what != "" {
			return notificationError(op, fmt.Sprintf("notify[%d]: %s", i, what))
		}
	}
	return nil
}

func notificationError(op, message string) error {
	return &Error{Code: CodeInvalid, Op: op, Message: message}
}

// secretReference matches a reference to a secret.
var secretReference = regexp.MustCompile(`\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]{0,99})\s*\}\}`)

// wrong describes the first error of a notification; it is empty if there is none.
func (n *Notification) wrong() string {
	if n.Format != "" && n.Format != FormatEvent && n.Format != FormatSlack {
		return fmt.Sprintf("the format is %q; it can be event or slack", clipped(string(n.Format)))
	}
	if what := n.endsWrong(); what != "" {
		return what
	}
	whole := secretReference.FindString(n.Secret) == n.Secret
	if n.Secret != "" && (!whole || len(n.Secret) > MaxName) {
		return "the secret must be a reference such as ${{ secrets.NAME }}, because Belay stores it"
	}
	return n.wrongURL()
}

// endsWrong describes the first error of On; it is empty if there is none.
func (n *Notification) endsWrong() string {
	for i, s := range n.On {
		if !s.Terminal() || s > Cancelled {
			return fmt.Sprintf("on has the state %s; it can have failed, succeeded and cancelled", s)
		}
		if slices.Contains(n.On[:i], s) {
			return fmt.Sprintf("on has the state %s twice", s)
		}
	}
	return ""
}

func (n *Notification) wrongURL() string {
	switch {
	case n.URL == "":
		return "the url is empty; give one"
	case len(n.URL) > MaxNotificationURL:
		return fmt.Sprintf("the url has %d bytes; the limit is %d", len(n.URL), MaxNotificationURL)
	}
	plain := n.plain()
	switch {
	case strings.Contains(plain, "${{"):
		return "after ${{ in the url the name of a secret must follow, as in ${{ secrets.NAME }}"
	case !utf8.ValidString(plain) || strings.ContainsFunc(plain, unicode.IsSpace) ||
		strings.ContainsFunc(plain, unicode.IsControl):
		return "the url has a space, a control character or invalid UTF-8"
	case strings.Contains(plain, "#"):
		return "the url has a fragment; leave out the # and all after it"
	case n.secretHost() != "":
		return ""
	case strings.Contains(n.authority(), "${{"):
		return "a secret may be the whole url, or a part of its path or query, but not a part of its host"
	}
	u, err := url.Parse(plain)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Hostname() == "":
		return "the url must be an http or https URL, such as https://example.org/hooks/belay"
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }):
		return "a host outside of ASCII is written in its encoded form, which begins with xn--"
	case u.User != nil:
		return "the url contains a user name or password; sign the requests with a secret instead"
	}
	return ""
}

// plain returns the URL with a word in the place of each reference to a secret.
func (n *Notification) plain() string {
	return secretReference.ReplaceAllLiteralString(n.URL, "secret")
}

// secretHost returns the name of the secret with which the URL begins, so that only the secret names the host.
func (n *Notification) secretHost() string {
	found := secretReference.FindStringSubmatch(n.URL)
	if len(found) == 0 || !strings.HasPrefix(n.URL, found[0]) {
		return ""
	}
	return found[1]
}

// authority returns the part of the URL before its path.
func (n *Notification) authority() string {
	scheme, rest, _ := strings.Cut(n.URL, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return scheme + rest
}

// Endpoint returns the name of the receiver, for its circuit breaker and its limit: the host, and a hash of the whole
// URL, since the path and the query may be credentials.
func (n *Notification) Endpoint() string {
	host := n.secretHost()
	if host == "" {
		if u, err := url.Parse(n.plain()); err == nil {
			host = strings.ToLower(u.Host)
		}
	}
	sum := sha256.Sum256([]byte(n.URL))
	return NotificationPrefix + host[:min(len(host), 120)] + ":" + hex.EncodeToString(sum[:8])
}

// NotificationPrefix begins the names of the limits and targets, and the idempotency keys of deliveries. No submission
// may choose a name with this prefix.
const NotificationPrefix = "notification:"

func clipped(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}
