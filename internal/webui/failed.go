package webui

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// failure is the page of an error.
type failure struct {
	Status  int
	Heading string
	Message []span
}

var headings = map[int]string{
	http.StatusNotFound:           "Not found",
	http.StatusForbidden:          "Not allowed",
	http.StatusBadRequest:         "This address is not valid",
	http.StatusGone:               "This page of the list has expired",
	http.StatusServiceUnavailable: "Not available right now",
}

// failed returns the page of an error and its status. The text of an internal error is logged and
// not shown.
func (p *pages) failed(r *http.Request, err error) (view, int) {
	f := failure{
		Status: belay.CodeOf(err).Status(), Heading: "The request has failed",
		Message: spans(sentence(err)),
	}
	if errors.Is(err, context.DeadlineExceeded) {
		f.Status = http.StatusServiceUnavailable
	}
	if h := headings[f.Status]; h != "" {
		f.Heading = h
	}
	switch f.Status {
	case http.StatusInternalServerError:
		p.options.Log.Error("make a page", "path", r.URL.Path, "error", err)
		f.Message = spans("The reason is in the server's log.")
	case http.StatusServiceUnavailable:
		f.Message = spans("The server did not finish the page in time, or its store cannot be reached. Try again in " +
			"a moment.")
	}
	return view{template: "error", Title: f.Heading, Page: f}, f.Status
}

// sentence returns the message of an error as a sentence.
func sentence(err error) string {
	var e *belay.Error
	if !errors.As(err, &e) || e.Message == "" {
		return err.Error()
	}
	first, n := utf8.DecodeRuneInString(e.Message)
	return strings.TrimRight(string(unicode.ToUpper(first))+e.Message[n:], ".") + "."
}
