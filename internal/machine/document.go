package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// A document is a named text with numbered versions. The rules do not know the language of the
// text. The object of the kind DocumentObject has the list of the versions; every change of the
// document changes this object, so that changes of one document come one after the other. The text
// of each version is an object of the kind TextObject, which is written once. Lists of documents
// read no texts.
const (
	DocumentObject ObjectKind = "document"
	TextObject     ObjectKind = "document_text"
	// countObject is the kind of the one object that has the number of documents with a version.
	countObject ObjectKind = "document_count"
)

// DocumentRef is the name of a document's object.
func DocumentRef(name string) ObjectRef { return documentCodec.ref(name) }

// TextRef is the name of the object that has the text of a version.
func TextRef(name string, version int) ObjectRef {
	return ObjectRef{TextObject, belay.DocumentRef{Name: name, Version: version}.String()}
}

var (
	documentCodec = codec[documentBody]{DocumentObject}
	countCodec    = codec[total]{countObject}
	countRef      = countCodec.ref("all")
)

// documentBody is the body of the object of a document. A document whose versions were all removed
// keeps its object, because the numbers of its versions are never used again.
type documentBody struct {
	Last     int               `json:"last"` // the highest number that was given to a version
	Versions []documentVersion `json:"versions,omitempty"`
	Done     []documentDone    `json:"done,omitempty"`
	Owned
}

type documentVersion struct {
	Number     int                  `json:"n"`
	Hash       string               `json:"hash"` // in hexadecimal digits
	Size       int                  `json:"size"`
	At         Time                 `json:"at"`
	By         string               `json:"by,omitempty"`
	Deprecated *documentDeprecation `json:"deprecated,omitempty"`
}

type documentDeprecation struct {
	At     Time   `json:"at"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// documentDone is a change of a document. Its repetition, after its reply was lost, must not undo
// the change of another operator.
type documentDone struct {
	Op      belay.OpID `json:"op"`
	Action  string     `json:"action"`
	Version int        `json:"version"`
	Hash    string     `json:"hash,omitempty"`
}

// newest returns the version with the highest number; nil if there is none.
func (b *documentBody) newest() *documentVersion {
	if len(b.Versions) == 0 {
		return nil
	}
	return &b.Versions[len(b.Versions)-1]
}

// usual returns the number of the newest version that is not deprecated; 0 if there is none.
func (b *documentBody) usual() int {
	for _, v := range slices.Backward(b.Versions) {
		if v.Deprecated == nil {
			return v.Number
		}
	}
	return 0
}

func (b *documentBody) version(number int) *documentVersion {
	for i := range b.Versions {
		if b.Versions[i].Number == number {
			return &b.Versions[i]
		}
	}
	return nil
}

// view is the version as the public API shows it.
func (v *documentVersion) view(name string) belay.DocumentVersion {
	out := belay.DocumentVersion{
		Name: name, Version: v.Number, Hash: v.Hash, Size: v.Size, CreatedAt: v.At.Time(), CreatedBy: v.By,
	}
	if d := v.Deprecated; d != nil {
		out.Deprecated = &belay.Deprecation{At: d.At.Time(), By: d.By, Reason: d.Reason}
	}
	return out
}

// DocumentView decodes the versions of a document from its object, the newest first.
func DocumentView(o *Object) (belay.DocumentVersions, error) {
	b, err := documentCodec.decode(o)
	if err != nil {
		return belay.DocumentVersions{}, err
	}
	out := belay.DocumentVersions{
		Name: o.Name, Default: b.usual(), Versions: []belay.DocumentVersion{}, Schedules: b.Schedules,
		Webhooks: b.Webhooks,
	}
	for i := range slices.Backward(b.Versions) {
		out.Versions = append(out.Versions, b.Versions[i].view(o.Name))
	}
	return out, nil
}

// ApplyDocument adds a version to a document, unless its newest version has the same text, and makes the schedules and
// webhooks of the document those that the text defines.
type ApplyDocument struct {
	belay.DocumentApply
	// Schedules and Webhooks are those that the text defines; the engine reads them from the text.
	Schedules []*PutSchedule
	Webhooks  []*PutWebhook
	// Owned are the schedules and webhooks of the document that the engine has read. The command is refused if the
	// document has others by now.
	Owned  Owned
	judged *judgedText
}

type judgedText struct {
	hash string
	err  error
}

// Judge checks the text and computes its hash.
func (c *ApplyDocument) Judge() {
	if c.judged == nil {
		c.judged = &judgedText{err: c.check()}
		if c.judged.err == nil {
			c.judged.err = c.checkTriggers()
		}
		if c.judged.err == nil {
			sum := sha256.Sum256([]byte(c.Text))
			c.judged.hash = hex.EncodeToString(sum[:])
		}
	}
}

func (c *ApplyDocument) check() error {
	const op = "apply document"
	if err := belay.CheckDocumentName(op, c.Name); err != nil {
		return err
	}
	if err := checkName(op, "the actor", c.Actor, false); err != nil {
		return err
	}
	if err := checkName(op, "the reason", c.Reason, false); err != nil {
		return err
	}
	switch {
	case c.IfVersion < 0:
		return refuse(belay.CodeInvalid, op, "if_version is %d; it must be the number of a version", c.IfVersion)
	case c.IfVersion > 0 && c.IfNew:
		return refuse(belay.CodeInvalid, op, "if_version and if_new exclude each other; give one")
	case c.Text == "":
		return refuse(belay.CodeInvalid, op, "the text is empty")
	case len(c.Text) > belay.MaxDocument:
		return refuse(belay.CodePayloadTooLarge, op, "the document has %d bytes; the limit is %d", len(c.Text),
			belay.MaxDocument)
	case !utf8.ValidString(c.Text) || strings.ContainsRune(c.Text, 0):
		return refuse(belay.CodeInvalid, op, "the text is not valid UTF-8, or contains a NUL")
	}
	return nil
}

// Need asks the store for the object of the document, for the number of documents, and for the objects of its schedules
// and webhooks.
func (c *ApplyDocument) Need(n *Need) {
	n.Objects = append(n.Objects, DocumentRef(c.Name), countRef)
	c.wanted().need(n)
	c.Owned.need(n)
}

func (c *ApplyDocument) apply(w *world) (Reply, error) {
	c.Judge()
	if c.judged.err != nil {
		return Reply{}, c.judged.err
	}
	op := "apply document " + c.Name
	d, err := w.document(c.Name)
	if err != nil {
		return Reply{}, err
	}
	done := documentDone{Op: c.Op, Action: "apply", Hash: c.judged.hash}
	if r, found, err := d.replay(op, done); found || err != nil {
		return r, err
	}
	newest := d.body.newest()
	if err := d.expect(op, c.IfVersion, c.IfNew); err != nil {
		return Reply{}, err
	}
	triggers, err := d.triggers(w, op, c)
	if err != nil {
		return Reply{}, err
	}
	fresh := newest == nil || newest.Hash != c.judged.hash
	if !fresh && !triggers.any() {
		return Reply{Document: newest.view(c.Name), Replayed: true}, nil
	}
	if fresh && len(d.body.Versions) >= belay.MaxDocumentVersions {
		return Reply{}, refuse(belay.CodeConflict, op,
			"the document has %d versions, the limit; remove old ones, as in: belay workflows rm %s@%d",
			len(d.body.Versions), c.Name, d.body.Versions[0].Number)
	}
	if newest == nil {
		if err := w.countDocuments(op, 1); err != nil {
			return Reply{}, err
		}
	}
	// Nothing is refused from here on.
	if fresh {
		newest = d.add(w, c)
	}
	done.Version = newest.Number
	reply := newest.view(c.Name)
	if err := triggers.write(w, d, reply.String(), c.Actor, c.Reason); err != nil {
		return Reply{}, err
	}
	r, err := d.write(w, op, done, c.Actor, c.Reason, reply)
	r.Triggers, r.Fresh = triggers.changes(), fresh
	return r, err
}

// add adds a version.
func (d *document) add(w *world, c *ApplyDocument) *documentVersion {
	d.body.Last++
	v := documentVersion{Number: d.body.Last, Hash: c.judged.hash, Size: len(c.Text), At: w.Now, By: c.Actor}
	d.body.Versions = append(d.body.Versions, v)
	w.add(TextRef(c.Name, v.Number), c.Actor, []byte(c.Text))
	return d.body.newest()
}

// ChangeDocument deprecates, restores or removes versions of a document. The removal of its last version removes its
// schedules and webhooks too.
type ChangeDocument struct {
	belay.DocumentChange
	// Owned is that of ApplyDocument, for a removal.
	Owned Owned
}

// Need asks the store for the object of the document, for the number of documents, and for the objects of its schedules
// and webhooks.
func (c *ChangeDocument) Need(n *Need) {
	n.Objects = append(n.Objects, DocumentRef(c.Name), countRef)
	c.Owned.need(n)
}

func (c *ChangeDocument) apply(w *world) (Reply, error) {
	op := fmt.Sprintf("%s document %s", c.Action, c.Name)
	if err := c.check(op); err != nil {
		return Reply{}, err
	}
	d, err := w.document(c.Name)
	if err != nil {
		return Reply{}, err
	}
	done := documentDone{Op: c.Op, Action: string(c.Action), Version: c.Version}
	if r, found, err := d.replay(op, done); found || err != nil {
		return r, err
	}
	if err := d.expect(op, c.IfVersion, false); err != nil {
		return Reply{}, err
	}
	v := d.body.version(c.Version)
	switch {
	case c.Version > 0 && v == nil:
		return Reply{}, refuse(belay.CodeNotFound, op, "the document %s has no version %d", c.Name, c.Version)
	case d.body.newest() == nil:
		return Reply{}, refuse(belay.CodeNotFound, op, "there is no document %s", c.Name)
	}
	switch c.Action {
	case belay.DocumentDeprecate:
		if v.Deprecated != nil && v.Deprecated.Reason == c.Reason {
			return Reply{Document: v.view(c.Name), Replayed: true}, nil
		}
		v.Deprecated = &documentDeprecation{At: w.Now, By: c.Actor, Reason: c.Reason}
	case belay.DocumentRestore:
		if v.Deprecated == nil {
			return Reply{Document: v.view(c.Name), Replayed: true}, nil
		}
		v.Deprecated = nil
	case belay.DocumentRemove:
		return d.remove(w, op, c, done)
	}
	return d.write(w, op, done, c.Actor, c.Reason, v.view(c.Name))
}

func (c *ChangeDocument) check(op string) error {
	if err := belay.CheckDocumentName(op, c.Name); err != nil {
		return err
	}
	for _, n := range []struct{ what, s string }{{"the actor", c.Actor}, {"the reason", c.Reason}} {
		if err := checkName(op, n.what, n.s, false); err != nil {
			return err
		}
	}
	switch c.Action {
	case belay.DocumentDeprecate, belay.DocumentRestore, belay.DocumentRemove:
	default:
		return refuse(belay.CodeInvalid, op, "there is no action %q on a document", c.Action)
	}
	if c.Version < 0 || c.Version == 0 && c.Action != belay.DocumentRemove || c.IfVersion < 0 {
		return refuse(belay.CodeInvalid, op, "the version must be a number from 1")
	}
	return nil
}

// document is the object of a document in the state after the earlier commands of the batch. body is
// a copy that the present command may change.
type document struct {
	name string
	row  *Object // nil if there is none
	body documentBody
}

func (w *world) document(name string) (*document, error) {
	d := &document{name: name, row: w.object(DocumentRef(name))}
	if d.row == nil {
		return d, nil
	}
	b, err := documentCodec.decode(d.row)
	if err != nil {
		return nil, err
	}
	d.body = *b
	return d, nil
}

// expect refuses a change that expects another newest version.
func (d *document) expect(op string, version int, none bool) error {
	newest := d.body.newest()
	switch {
	case none && newest != nil:
		return refuse(belay.CodeConflict, op, "the document exists; its newest version is %d", newest.Number)
	case version > 0 && newest == nil:
		return refuse(belay.CodeConflict, op, "the document has no version, and not %d", version)
	case version > 0 && newest.Number != version:
		return refuse(belay.CodeConflict, op, "the newest version is %d, not %d: read it and apply again",
			newest.Number, version)
	}
	return nil
}

// replay answers a change that was carried out before.
func (d *document) replay(op string, change documentDone) (Reply, bool, error) {
	if change.Op.IsZero() {
		return Reply{}, false, nil
	}
	for _, was := range d.body.Done {
		if was.Op != change.Op {
			continue
		}
		version := change.Hash != "" || was.Version == change.Version // an apply does not know its version
		if was.Action != change.Action || was.Hash != change.Hash || !version {
			return Reply{}, true, refuse(belay.CodeIdempotencyMismatch, op,
				"the operation %s was another change of the document %s", change.Op, d.name)
		}
		r := Reply{Replayed: true, Document: belay.DocumentVersion{Name: d.name, Version: was.Version, Hash: was.Hash}}
		if v := d.body.version(was.Version); v != nil {
			r.Document = v.view(d.name)
		}
		return r, true, nil
	}
	return Reply{}, false, nil
}

// remove removes one version or all versions with their texts.
func (d *document) remove(w *world, op string, c *ChangeDocument, done documentDone) (Reply, error) {
	var kept, removed []documentVersion
	for _, v := range d.body.Versions {
		if c.Version != 0 && v.Number != c.Version {
			kept = append(kept, v)
		} else {
			removed = append(removed, v)
		}
	}
	if len(kept) == 0 {
		triggers, err := d.without(w, op, c)
		if err != nil {
			return Reply{}, err
		}
		if err := w.countDocuments(op, -1); err != nil {
			return Reply{}, err
		}
		if err := triggers.write(w, d, d.name, c.Actor, c.Reason); err != nil {
			return Reply{}, err
		}
	}
	for _, v := range removed {
		w.remove(TextRef(d.name, v.Number))
	}
	d.body.Versions = kept
	return d.write(w, op, done, c.Actor, c.Reason, belay.DocumentVersion{Name: d.name, Version: c.Version})
}

// maxDocumentDone is how many changes a document remembers.
const maxDocumentDone = 8

// write writes the object of the document, and an entry in the audit that names the version.
func (d *document) write(w *world, op string, done documentDone, actor, reason string,
	reply belay.DocumentVersion) (Reply, error) {
	if !done.Op.IsZero() {
		d.body.Done = append(d.body.Done[max(0, len(d.body.Done)-maxDocumentDone+1):], done)
	}
	body, err := documentCodec.encode(&d.body)
	if err != nil {
		return Reply{}, err
	}
	expected := int64(0)
	if d.row != nil {
		expected = d.row.Version
	}
	about := fmt.Sprintf("version %d", done.Version)
	if done.Version == 0 {
		about = "all versions"
	}
	if reason != "" {
		about += ": " + reason
	}
	r, err := w.put(op, put{
		ref: DocumentRef(d.name), expected: expected, body: body, action: done.Action, actor: actor, reason: about,
		op: done.Op,
	})
	r.Document = reply
	return r, err
}

// countDocuments adds by to the number of documents that have a version, and refuses a number above
// the limit.
func (w *world) countDocuments(op string, by int) error {
	return w.count(op, countCodec, "documents", by, belay.MaxDocuments)
}
