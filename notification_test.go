package belay

import (
	"strings"
	"testing"
)

// The check of notifications accepts URLs of http and https, and references to secrets where a request can resolve
// them. It refuses credentials, other schemes and all that two programs could read differently; its errors contain no
// part of a URL.
func TestNotificationsAreChecked(t *testing.T) {
	at := func(url string) []Notification { return []Notification{{URL: url}} }
	const url = "https://example.org/hook"
	secret := func(text string) []Notification { return []Notification{{URL: url, Secret: text}} }
	for name, c := range map[string]struct {
		all  []Notification
		says string // empty if the notifications are accepted
	}{
		"none":                {nil, ""},
		"https":               {at("https://example.org/a?b=c%20d"), ""},
		"http, port, IPv6":    {at("http://[2001:db8::1]:8080/"), ""},
		"a secret is the URL": {at("${{ secrets.SLACK }}"), ""},
		"a secret begins it":  {at("${{secrets.BASE}}/hook"), ""},
		"a secret in path":    {at("https://example.org/${{ secrets.PATH }}?k=${{ secrets.KEY }}"), ""},
		"signed":              {[]Notification{{URL: url, Secret: "${{ secrets.HOOK_1 }}"}}, ""},
		"Slack, every end": {
			[]Notification{{URL: url, Format: "slack", On: []State{Failed, Succeeded, Cancelled}}}, "",
		},
		"ten":                    {make10(url), ""},
		"eleven":                 {append(make10(url), Notification{URL: url}), "11 notifications"},
		"no URL":                 {at(""), "is empty"},
		"too long":               {at("https://example.org/" + strings.Repeat("x", MaxNotificationURL)), "the limit is 2048"},
		"user":                   {at("https://topsecret@example.org/"), "user name"},
		"user and password":      {at("https://me:topsecret@example.org/"), "user name"},
		"fragment":               {at("https://example.org/#topsecret"), "fragment"},
		"empty fragment":         {at("https://example.org/#"), "fragment"},
		"fragment after secret":  {at("${{ secrets.BASE }}#topsecret"), "fragment"},
		"file":                   {at("file:///etc/passwd"), "http or https"},
		"gopher":                 {at("gopher://example.org/"), "http or https"},
		"unix":                   {at("http+unix://topsecret/"), "http or https"},
		"no scheme":              {at("//example.org/"), "http or https"},
		"no host":                {at("https:///topsecret"), "http or https"},
		"opaque":                 {at("https:example.org"), "http or https"},
		"only a port":            {at("https://:443/"), "http or https"},
		"a wrong port":           {at("https://example.org:x/"), "http or https"},
		"a line break":           {at("https://example.org/\r\nHost: topsecret"), "a space"},
		"a space":                {at("https://example.org/top secret"), "a space"},
		"a NUL":                  {at("https://example.org/\x00"), "a space"},
		"not UTF-8":              {at("https://example.org/\xff"), "UTF-8"},
		"a host outside ASCII":   {at("https://exämple.org/"), "xn--"},
		"an escaped host":        {at("https://ex%C3%A4mple.org/"), "xn--"},
		"a secret in the host":   {at("https://${{ secrets.HOST }}/"), "part of its host"},
		"a secret in the port":   {at("https://example.org:${{ secrets.PORT }}/"), "part of its host"},
		"a secret in the scheme": {at("http${{ secrets.S }}://example.org/"), "part of its host"},
		"another expression":     {at("https://example.org/${{ env.topsecret }}"), "after ${{"},
		"half a reference":       {at("https://example.org/${{ secrets.A"), "after ${{"},
		"a plain secret":         {[]Notification{{URL: url, Secret: "whsec_topsecret"}}, "must be a reference"},
		"a secret and more":      {secret("topsecret${{ secrets.A }}"), "must be a reference"},
		"two secrets":            {secret("${{ secrets.A }}${{ secrets.B }}"), "must be a reference"},
		"another format":         {[]Notification{{URL: url, Format: "xml"}}, "event or slack"},
		"a state that is no end": {[]Notification{{URL: url, On: []State{Running}}}, "running"},
		"no state":               {[]Notification{{URL: url, On: []State{0}}}, "on has the state"},
		"a state twice":          {[]Notification{{URL: url, On: []State{Failed, Failed}}}, "twice"},
	} {
		err := CheckNotifications("submit", c.all)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (CodeOf(err) != CodeInvalid || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %s", name, err, c.says)
		case err != nil && strings.Contains(err.Error(), "topsecret"):
			t.Errorf("%s: the error contains a credential: %v", name, err)
		}
	}
}

func make10(url string) []Notification {
	all := make([]Notification, MaxNotifications)
	for i := range all {
		all[i].URL = url
	}
	return all
}

// The endpoint names the host and not the path, which may be a credential. It is a valid name, whatever the URL is, and
// each URL has its own.
func TestEndpointsHideThePath(t *testing.T) {
	seen := make(map[string]bool)
	for url, prefix := range map[string]string{
		"https://hooks.slack.com/services/T0/B0/topsecret":         "notification:hooks.slack.com:",
		"https://hooks.slack.com/services/T0/B0/topsecret?a=1":     "notification:hooks.slack.com:",
		"https://EXAMPLE.org:8443/topsecret":                       "notification:example.org:8443:",
		"${{ secrets.SLACK }}":                                     "notification:SLACK:",
		"https://" + strings.Repeat("a.", 120) + "org/topsecret":   "notification:a.a.",
		"https://example.org/${{ secrets.A }}/topsecret?b=${{ x }": "notification:example.org:",
	} {
		n := Notification{URL: url}
		got := n.Endpoint()
		if !strings.HasPrefix(got, prefix) || strings.Contains(got, "topsecret") || len(got) > MaxName || seen[got] {
			t.Errorf("the endpoint of %s is %s", url, got)
		}
		seen[got] = true
	}
}

// FuzzNotifications checks that every accepted notification has an endpoint that is a valid name.
func FuzzNotifications(f *testing.F) {
	f.Add("https://example.org/${{ secrets.A }}", "${{ secrets.B }}")
	f.Add("${{ secrets.A }}/x#y", "")
	f.Add("http://[::1]:80/%zz", "x")
	f.Fuzz(func(t *testing.T, url, secret string) {
		n := Notification{URL: url, Secret: secret}
		if CheckNotifications("submit", []Notification{n}) != nil {
			return
		}
		end := n.Endpoint()
		for _, r := range end {
			if r <= ' ' || r > '~' {
				t.Fatalf("the endpoint of %q is %q", url, end)
			}
		}
		if len(end) > MaxName || len(strings.Split(end, ":")) < 3 {
			t.Fatalf("the endpoint of %q is %q", url, end)
		}
	})
}

// Ids of deliveries are computed from the execution, the generation and the target, and have a form of their own.
func TestNotificationIDsHaveTheirForm(t *testing.T) {
	parent := ExecutionID{1, 2, 3, 4, 5, 6, 0x7f, 8, 0x9a}
	seen := map[ExecutionID]bool{parent: true, ChildID(parent, 1, "a"): true}
	for id := range seen {
		if IsNotificationID(id) {
			t.Errorf("%s counts as a delivery", id)
		}
	}
	for _, x := range [][2]int{{1, 0}, {1, 1}, {2, 0}, {2, 1}} {
		id := NotificationID(parent, x[0], x[1])
		if seen[id] || !IsNotificationID(id) || id != NotificationID(parent, x[0], x[1]) {
			t.Errorf("%v has the id %s", x, id)
		}
		seen[id] = true
	}
}
