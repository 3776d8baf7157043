package webui

import (
	"net/http"
	"sync"
)

// press renders pages. For each sheet one rendering runs at a time, and all requests that arrive in the meantime get
// the next one. So a thousand browsers that read a page after a change cost two renderings, and no request gets a page
// that is older than itself. The zero press is ready for use.
type press struct {
	mu    sync.Mutex
	works map[sheet]*work
}

// work is the rendering of one sheet.
type work struct {
	busy chan struct{} // has a value while an edition is rendered
	next *edition      // the rendering that has not begun; nil if no request waits
	uses int           // how many requests use the work
}

// edition is one rendering, with all requests that get it.
type edition struct {
	done chan struct{} // closed when page is there
	page printed
}

// spoiled is the answer of an edition whose rendering has panicked.
var spoiled = printed{
	status: http.StatusInternalServerError, header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
	body: []byte("this page could not be made\n"),
}

// get returns the page that render makes. It calls the render of one of the requests that get the page. The first
// request that waits for an edition renders it.
func (p *press) get(s sheet, render func() printed) *printed {
	p.mu.Lock()
	w := p.works[s]
	if w == nil {
		w = &work{busy: make(chan struct{}, 1)}
		if p.works == nil {
			p.works = make(map[sheet]*work)
		}
		p.works[s] = w
	}
	w.uses++
	e, first := w.next, w.next == nil
	if first {
		e = &edition{done: make(chan struct{}), page: spoiled}
		w.next = e
	}
	p.mu.Unlock()
	defer p.leave(s, w)
	if first {
		p.run(w, e, render)
	}
	<-e.done
	return &e.page
}

// run waits until the edition before has been rendered, and renders this one.
func (p *press) run(w *work, e *edition, render func() printed) {
	w.busy <- struct{}{}
	defer func() { <-w.busy }()
	defer close(e.done)
	p.mu.Lock()
	w.next = nil // from now on requests wait for another edition
	p.mu.Unlock()
	e.page = render()
}

// leave forgets a work that no request uses.
func (p *press) leave(s sheet, w *work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.uses--; w.uses == 0 {
		delete(p.works, s)
	}
}
