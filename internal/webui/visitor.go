package webui

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
)

// Visitor is the person who opens a page or sends its form. A request without a visitor may only read.
type Visitor struct {
	// Name is the name of the person's key, which histories and the audit show; empty if the server needs no key.
	Name string
	// Allows reports whether the person may do what needs a scope.
	Allows func(belay.Scope) bool
}

type visitorKey struct{}

// WithVisitor returns the request with its visitor.
func WithVisitor(r *http.Request, v Visitor) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), visitorKey{}, v))
}

// visitorOf returns the visitor of a request; the zero Visitor if there is none.
func visitorOf(ctx context.Context) Visitor {
	v, _ := ctx.Value(visitorKey{}).(Visitor)
	return v
}

func (v Visitor) allows(s belay.Scope) bool { return v.Allows != nil && v.Allows(s) }

// actor is the name under which the visitor's actions stand in histories.
func (v Visitor) actor() string {
	if v.Name == "" {
		return "the web pages"
	}
	return v.Name
}
