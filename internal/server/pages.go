package server

import (
	"net/http"

	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/webui"
)

// forms are the addresses to which the web UI sends forms.
func forms() []httpapi.PageForm {
	var all []httpapi.PageForm
	for _, f := range webui.Forms() {
		all = append(all, httpapi.PageForm(f))
	}
	return all
}

// visit tells the web UI who sends a request.
func visit(r *http.Request, v httpapi.Visitor) *http.Request {
	return webui.WithVisitor(r, webui.Visitor(v))
}
