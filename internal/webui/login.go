package webui

import (
	"context"
	"net/http"
)

// loginForm is the page on which a person enters a key. The server checks the key and begins the session.
type loginForm struct {
	Next string // the address to which the browser goes afterwards
	Note string
	Bad  bool // the note is about a mistake
}

// loginNotes are the notes of the form, by the parameter failed.
var loginNotes = map[string]string{
	"key":         "The server does not know this key, or it was revoked.",
	"scope":       "This key may not read executions. Use a key with the scope read.",
	"unavailable": "The server cannot check keys at the moment. Try again.",
	"open":        "This server needs no key.",
}

func (p *pages) login(_ context.Context, r *http.Request) (view, error) {
	q := r.URL.Query()
	f := loginForm{Next: q.Get("next"), Note: loginNotes[q.Get("failed")]}
	f.Bad = f.Note != ""
	switch left := q.Get("left"); {
	case f.Bad || left == "":
	case left == "here":
		f.Note = "This browser has signed out. The server could not write to its store, so that a copy of the cookie " +
			"stays valid until the session ends by itself, or until the key is revoked."
		f.Bad = true
	default:
		f.Note = "You have signed out."
	}
	v := view{template: "login", Title: "Sign in", Page: f}
	if q.Get("again") != "" && len(f.Next) > 1 && f.Next[0] == '/' && f.Next[1] != '/' && f.Next[1] != '\\' {
		v.Next = f.Next // a person who is signed in followed a link of another site; this request has the cookie
	}
	return v, nil
}
