package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// ContentPrefix begins the key of a submission that is recognized by its content. The SHA-256 of the
// input and the SHA-256 of the configuration follow, in hexadecimal and with a colon between them. No
// submission may choose a key of this form.
const ContentPrefix = "content:"

// contentKey returns the idempotency key that follows from the content of a submission. The content
// is the input and the configuration, both in canonical form: two submissions whose JSON differs only
// in its notation have the same key. The configuration is what else decides how the execution runs:
// the version of the workflow, the policy without the defaults of the server, and whether an owner
// from outside runs the execution. The workflow's name is a part of every idempotency key.
func contentKey(s *belay.Submission) string {
	config, err := json.Marshal(struct {
		External bool            `json:"external,omitempty"`
		Policy   json.RawMessage `json:"policy,omitempty"`
		Version  string          `json:"version,omitempty"`
	}{s.External, s.Policy.Text(), s.Version})
	if err != nil {
		panic(err) // the policy is JSON, and the other fields can always be encoded
	}
	return ContentPrefix + contentHash(s.Input) + ":" + contentHash(config)
}

// contentHash is the SHA-256 of the canonical form of a JSON text.
func contentHash(text []byte) string {
	sum := sha256.Sum256(appendCanonical(nil, text))
	return hex.EncodeToString(sum[:])
}

// contentHashes returns the two hashes of a key that follows from a content. ok is false for every
// other key.
func contentHashes(key string) (inputs, config string, ok bool) {
	rest, ok := strings.CutPrefix(key, ContentPrefix)
	inputs, config, both := strings.Cut(rest, ":")
	if !ok || !both || !isContentHash(inputs) || !isContentHash(config) {
		return "", "", false
	}
	return inputs, config, true
}

func isContentHash(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

// Hashes returns the hashes of the input and the configuration of the runs of a generation, if the
// execution was submitted with the idempotency content. They are empty if the generation may have
// another input than the submission.
func (r *Record) Hashes(generation int) (inputs, config string) {
	if r.Spec == nil {
		return "", ""
	}
	return ContentHashes(r.Spec.Key, r.Execution.InputGen, generation)
}

// ContentHashes is [Record.Hashes] of an execution with this key and this InputGen.
func ContentHashes(key string, inputGen, generation int) (inputs, config string) {
	if inputGen > 1 && generation > 1 {
		return "", ""
	}
	inputs, config, _ = contentHashes(key)
	return inputs, config
}

// KeyHolder has the fields that decide whether an execution answers further submissions with the
// same content. The zero KeyHolder stands for an execution that was deleted.
type KeyHolder struct {
	State    belay.State
	InputGen int
	CancelBy Time
	Reason   string
}

// KeyHolderOf returns the holder of the keys that lead to an execution; e is nil if it was deleted.
func KeyHolderOf(e *Execution) KeyHolder {
	if e == nil {
		return KeyHolder{}
	}
	return KeyHolder{e.State, e.InputGen, e.CancelBy, e.Reason}
}

// answers reports whether further submissions of the content are answered with this execution: it has
// succeeded, or it has not ended. An execution that is being cancelled will not succeed. An execution
// that was requeued with another input has another content. The result of an execution that was
// deleted, or is being deleted, cannot be read.
func (h KeyHolder) answers() bool {
	if h.InputGen != 1 || h.CancelBy != 0 {
		return false
	}
	return h.State == belay.Succeeded && h.Reason != Forgotten || h.State != 0 && !h.State.Terminal()
}

// joins returns the execution that answers a submission with the idempotency content, and false if
// there is none, so that the submission starts an execution and takes the key over.
func (c *Submit) joins(w *world) (belay.ExecutionID, bool) {
	row, ok := w.keys[c.key()]
	if !ok {
		return belay.ExecutionID{}, false
	}
	if e := w.execs[row.Execution]; e != nil { // this batch may have changed the execution
		row.Holder = KeyHolderOf(e)
	}
	return row.Execution, row.Holder.answers()
}

// hold makes a key lead to an execution. If the key led to another execution before, that execution
// gives the key up.
func (w *world) hold(row KeyRow) {
	old, taken := w.keys[row.Key]
	w.keys[row.Key] = row
	if !taken {
		w.out.Keys = append(w.out.Keys, row)
		return
	}
	row.Was = old.Execution
	i := slices.IndexFunc(w.out.Keys, func(k KeyRow) bool { return k.Key == row.Key })
	if i >= 0 { // the key was written earlier in this batch
		row.Was = w.out.Keys[i].Was
		w.out.Keys[i] = row
		return
	}
	w.out.Keys = append(w.out.Keys, row)
}
