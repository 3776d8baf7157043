package definition

import (
	"errors"
	"strings"

	"github.com/belaydev/belay"
)

// Notifications returns the notifications of a document, without the check of its other keys. A text that is no
// document has none: its execution fails and says why. file names the document in the problems.
func Notifications(file, text string) ([]belay.Notification, error) {
	// A key that the parser reads as notify has these letters in the text, or an escape.
	if !strings.Contains(text, "notify") && !strings.Contains(text, `\`) {
		return nil, nil
	}
	r := &report{file: file}
	n := parse([]byte(text), r)
	list := n.get("notify")
	if list == nil || len(r.list) > 0 {
		return nil, nil
	}
	r.check(list, &fieldOf(Format.Fields, "notify").Type, "notify")
	if all := r.notify(list); len(r.list) == 0 {
		return all, nil
	}
	return nil, r.sorted()
}

// notify returns the notifications of a list that was compared with the table of the format.
func (r *report) notify(n *node) []belay.Notification {
	if n == nil || n.kind != listNode || len(n.items) > belay.MaxNotifications {
		return nil
	}
	all := make([]belay.Notification, 0, len(n.items))
	for i, x := range n.items {
		one := belay.Notification{
			URL: x.get("url").text(), Format: belay.NotificationFormat(x.get("format").text()),
			Secret: x.get("secret").text(),
		}
		known := x.get("url") != nil && x.get("url").kind == textNode && one.URL != ""
		for _, s := range texts(x.get("on")) {
			var state belay.State
			if state.UnmarshalText([]byte(s)) != nil || !state.Terminal() {
				known = false // the table refuses it
			}
			one.On = append(one.On, state)
		}
		if !known || x.get("format") != nil && one.Format != belay.FormatEvent && one.Format != belay.FormatSlack {
			continue
		}
		if message := wrongNotification(one); message != "" {
			at := x.get("url").at
			switch {
			case strings.HasPrefix(message, "the secret must"):
				at = x.get("secret").at
			case strings.HasPrefix(message, "on "):
				at = x.get("on").at
			}
			r.add(at, "", "entry %d of notify: %s", i+1, message)
		}
		all = append(all, one)
	}
	return all
}

// wrongNotification describes the first error of a notification; it is empty if there is none.
func wrongNotification(n belay.Notification) string {
	var e *belay.Error
	if !errors.As(belay.CheckNotifications("", []belay.Notification{n}), &e) {
		return ""
	}
	return strings.TrimPrefix(e.Message, "notify[0]: ")
}
