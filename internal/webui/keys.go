package webui

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// mostKeys is how many keys the page lists.
const mostKeys = 500

// keyPage is the page of the API keys.
type keyPage struct {
	Rows   []keyRow
	More   int // keys for which the page has no room
	Made   *madeKey
	Note   string // about an action
	Failed string // an action that was refused
}

// keyRow is one key.
type keyRow struct {
	ID, Name string
	Scopes   names
	Created  *moment
	Revoked  *moment // nil while the key is valid
	Revoke   string  // the address of the form
}

// madeKey is a new key, whose secret only this page shows.
type madeKey struct{ ID, Name, Secret string }

// keyScopes are the scopes in the form for a new key.
var keyScopes = []struct {
	scope belay.Scope
	about string
}{
	{belay.ScopeRead, "read everything: executions, inputs, results, histories, logs and workers"},
	{belay.ScopeSubmit, "submit executions and signals"},
	{belay.ScopeOperate, "cancel, pause, resume, retry, take from an owner, drain, change gates and documents"},
	{belay.ScopeWorker, "own executions: claim, save, settle, lock"},
	{belay.ScopeAdmin, "everything, and the management of keys"},
}

// keyring adds the pages about keys. All of them need the scope admin.
func (p *pages) keyring(mux *http.ServeMux) {
	mux.HandleFunc("GET /keys", p.page(func(ctx context.Context, r *http.Request) (view, error) {
		k := keyPage{}
		if r.URL.Query().Get("done") == "revoke" {
			k.Note = "The key is revoked."
		}
		return p.keys(ctx, k)
	}))
	for path, do := range map[string]func(http.ResponseWriter, *http.Request){
		keyCreate: p.createKey, keyRevoke: p.revokeKey,
	} {
		do = p.asAdmin(do)
		mux.HandleFunc("GET "+path, do)
		mux.HandleFunc("POST "+path, do)
	}
}

// The addresses of the forms.
const (
	keyCreate = "/keys/create"
	keyRevoke = "/keys/{id}/revoke"
)

// asAdmin refuses visitors without the scope admin, bounds the time, and reads the form.
func (p *pages) asAdmin(do func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		switch {
		case !visitorOf(ctx).allows(belay.ScopeAdmin):
			p.refuse(w, r, lacks(belay.ScopeAdmin))
		case r.ParseForm() != nil:
			p.refuse(w, r, &belay.Error{
				Code: belay.CodeMalformed, Message: "The form cannot be read, or it is too large.",
			})
		default:
			do(w, r)
		}
	}
}

// keys lists the keys: the valid ones first, and of them the newest first.
func (p *pages) keys(ctx context.Context, k keyPage) (view, error) {
	if !visitorOf(ctx).allows(belay.ScopeAdmin) {
		return view{}, lacks(belay.ScopeAdmin)
	}
	all, err := p.backend.Keys(ctx)
	if err != nil {
		return view{}, err
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b belay.Key) int {
		switch valid := a.RevokedAt.IsZero(); {
		case valid == b.RevokedAt.IsZero():
			return b.CreatedAt.Compare(a.CreatedAt)
		case valid:
			return -1
		}
		return 1
	})
	now := p.options.Now()
	for i := range all[:min(len(all), mostKeys)] {
		x := &all[i]
		row := keyRow{
			ID: x.ID.String(), Name: excerpt(x.Name, maxLine), Created: when(x.CreatedAt, now),
			Revoked: when(x.RevokedAt, now),
		}
		var scopes []string
		for _, s := range x.Scopes {
			scopes = append(scopes, string(s))
		}
		if row.Scopes = namesOf(scopes); row.Revoked == nil {
			row.Revoke = revokeAt(x.ID)
		}
		k.Rows = append(k.Rows, row)
	}
	k.More = max(0, len(all)-mostKeys)
	return view{template: "keys", Title: "Keys", Page: k}, nil
}

func revokeAt(id belay.KeyID) string { return "/keys/" + id.String() + "/revoke" }

// createKey shows the form for a new key, or makes the key and shows its secret. The answer to the form has the secret
// itself: an address, and so the history of the browser, never has it. A form that is sent twice makes one key, and
// the second answer has no secret.
func (p *pages) createKey(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		p.keyForm(w, r, nil)
		return
	}
	ctx := r.Context()
	spec := belay.KeySpec{Name: strings.TrimSpace(r.PostForm.Get("name")), Actor: visitorOf(ctx).actor()}
	if err := spec.Op.UnmarshalText([]byte(r.PostForm.Get("op"))); err != nil || spec.Op.IsZero() {
		p.refuse(w, r, incomplete())
		return
	}
	for _, s := range keyScopes {
		if r.PostForm.Get(string(s.scope)) != "" {
			spec.Scopes = append(spec.Scopes, s.scope)
		}
	}
	made, err := p.backend.CreateKey(ctx, spec)
	switch code := belay.CodeOf(err); {
	case err == nil:
		p.showKeys(w, r, http.StatusOK, keyPage{Made: &madeKey{
			ID: made.ID.String(), Name: excerpt(made.Name, maxLine), Secret: made.Secret,
		}})
	case code == belay.CodeConflict:
		p.showKeys(w, r, http.StatusConflict, keyPage{Failed: "This form was sent before. " +
			excerpt(sentence(err), maxMessage) + " If the secret is lost, revoke the key and make another."})
	case code == belay.CodeInvalid:
		p.keyForm(w, r, err)
	default:
		p.refuse(w, r, err)
	}
}

// showKeys shows the list of keys after an action.
func (p *pages) showKeys(w http.ResponseWriter, r *http.Request, status int, k keyPage) {
	v, err := p.keys(r.Context(), k)
	if err != nil && k.Made != nil { // the secret must be shown even if the list cannot be read
		v, err = view{template: "keys", Title: "Keys", Page: k}, nil
	}
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	p.render(w, r, status, v)
}

func (p *pages) keyForm(w http.ResponseWriter, r *http.Request, failed error) {
	f := actionForm{
		UpName: "Keys", Up: "/keys", Back: "/keys", Post: keyCreate, Heading: "Make a key", Button: "Make the key",
		About: "The page that follows shows the key, only this once. As soon as a key exists, the server requires a key " +
			"for every request.",
		Fields: []field{{
			Name: "name", Kind: "line", Label: "Name", Required: true, Value: excerpt(r.PostForm.Get("name"), maxLine),
			About: "The program or person that will use the key. Histories and the audit show it as the actor.",
		}},
	}
	for _, s := range keyScopes {
		f.Fields = append(f.Fields, field{
			Name: string(s.scope), Kind: "check", Label: string(s.scope) + ": " + s.about,
			Value: r.PostForm.Get(string(s.scope)),
		})
	}
	f.Op = newOp()
	p.showForm(w, r, f, failed)
}

// revokeKey shows the form that revokes a key, or revokes it.
func (p *pages) revokeKey(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var id belay.KeyID
	if err := id.UnmarshalText([]byte(r.PathValue("id"))); err != nil || id.IsZero() {
		p.refuse(w, r, nothingThere())
		return
	}
	all, err := p.backend.Keys(ctx)
	i := slices.IndexFunc(all, func(k belay.Key) bool { return k.ID == id })
	switch {
	case err != nil:
		p.refuse(w, r, err)
		return
	case i < 0:
		p.refuse(w, r, &belay.Error{Code: belay.CodeNotFound, Message: "No key has this id: " + id.String()})
		return
	case r.Method == http.MethodPost:
		err = p.backend.RevokeKey(ctx, belay.Revocation{
			Key: id, Actor: visitorOf(ctx).actor(), Reason: formReason(r.PostForm),
		})
		if err == nil {
			w.Header().Set("Cache-Control", "no-store")
			http.Redirect(w, r, "/keys?"+url.Values{"done": {"revoke"}}.Encode(), http.StatusSeeOther)
			return
		}
		if !repairable(err) {
			p.refuse(w, r, err)
			return
		}
	}
	reason := reasonField
	reason.Value, reason.About = r.PostForm.Get("reason"), "The audit shows it. It may be empty."
	p.showForm(w, r, actionForm{
		ID: id.String(), UpName: "Keys", Up: "/keys", Back: "/keys", Post: revokeAt(id),
		Heading: "Revoke the key " + excerpt(all[i].Name, 80), Button: "Revoke", Danger: true, Op: newOp(),
		About: "The server refuses the key for ever: programs with this key stop, and its page sessions and streams end. " +
			"If it is the key of your own session, you must sign in with another.",
		Fields: []field{reason},
	}, err)
}
