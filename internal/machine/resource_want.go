package machine

import "slices"

// want is a mode for which executions wait.
type want struct {
	Mode  string `json:"mode"`
	Since Time   `json:"since"`
	// Until is set while a program wants to lock an execution of this mode. Such an execution waits
	// in no line, so the want counts until this time although the line of the mode is empty.
	Until Time `json:"until,omitzero"`
	// Failures is the number of swaps to this mode that failed in a row. The next one begins at
	// RetryAt at the earliest. Until then other modes have their turns, and the want stays even if
	// its line is empty, so that the resource does not forget the failure.
	Failures int  `json:"failures,omitempty"`
	RetryAt  Time `json:"retry_at,omitzero"`
}

// wants reports whether executions wait for the mode.
func (r *Resource) wants(mode string) bool {
	return slices.ContainsFunc(r.Wants, func(w want) bool { return w.Mode == mode })
}

// want notes that executions wait for the mode. It reports false if too many modes wait.
func (r *Resource) want(mode string, now Time) bool {
	if r.wants(mode) {
		return true
	}
	if len(r.Wants) >= maxWants {
		return false
	}
	r.Wants = append(slices.Clip(r.Wants), want{Mode: mode, Since: now})
	return true
}

// wish notes that a program wants to lock an execution of the mode.
func (r *Resource) wish(mode string, now Time) {
	if !r.want(mode, now) {
		return
	}
	r.Wants = slices.Clone(r.Wants)
	for i := range r.Wants {
		if w := &r.Wants[i]; w.Mode == mode {
			w.Until = max(now, w.RetryAt).Add(wishFor)
		}
	}
}

// forget removes a mode for which nothing waits any more.
func (r *Resource) forget(mode string) {
	r.Wants = slices.DeleteFunc(slices.Clone(r.Wants), func(w want) bool { return w.Mode == mode })
}

// modes lists the modes for which executions wait.
func (r *Resource) modes() []string {
	all := make([]string, len(r.Wants))
	for i, w := range r.Wants {
		all[i] = w.Mode
	}
	return all
}

// putLast puts a mode at the end of the order, as if its executions waited since now. The mode must be
// wanted.
func (r *Resource) putLast(mode string, now Time) *want {
	at := slices.IndexFunc(r.Wants, func(w want) bool { return w.Mode == mode })
	last := r.Wants[at]
	last.Since = now
	r.forget(mode)
	r.Wants = append(r.Wants, last)
	return &r.Wants[len(r.Wants)-1]
}

// other returns the mode to which the resource changes next: the mode beside the present one for which
// executions have waited longest, nil if there is none. A mode whose last swap has failed does not
// count until it is time to try again. A stale mode counts like any other.
func (r *Resource) other(now Time) *want {
	for i := range r.Wants {
		if w := &r.Wants[i]; (w.Mode != r.Mode || r.Stale) && w.RetryAt <= now {
			return w
		}
	}
	return nil
}

// retryAt returns when the next swap to the mode begins at the earliest, or for the mode "" the next
// swap to any mode, if the mode of the resource is unknown because swaps have failed; otherwise 0.
func (r *Resource) retryAt(mode string, now Time) Time {
	if r.Mode != "" || mode == "" && r.other(now) != nil {
		return 0
	}
	var at Time
	for _, w := range r.Wants {
		if (mode == "" || w.Mode == mode) && w.RetryAt > now {
			at = first(at, w.RetryAt)
		}
	}
	return at
}
