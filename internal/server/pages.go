package server

import (
	"net/http"
	"time"

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

// activity tells the web UI what this server did in the last minutes.
func (s *Server) activity() ([]webui.Minute, time.Time) {
	recent, since := s.recent.Minutes()
	all := make([]webui.Minute, len(recent))
	for i, m := range recent {
		all[i] = webui.Minute(m)
	}
	return all, since
}

// visit tells the web UI who sends a request.
func visit(r *http.Request, v httpapi.Visitor) *http.Request {
	return webui.WithVisitor(r, webui.Visitor(v))
}
