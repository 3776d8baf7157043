package webui

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// fileWait is the time in which a client must take a chunk of a file.
const fileWait = 30 * time.Second

func fileAt(id belay.ExecutionID, name string) string {
	return "/executions/" + id.String() + "/files/" + url.PathEscape(name)
}

// fileName is the name under which a browser stores an artifact. It has only harmless characters.
func fileName(id belay.ExecutionID, name string) string {
	return id.String() + "-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, name[:min(len(name), 80)])
}

// file sends an artifact with changes of a job. The page of the job must name the artifact: other logs and artifacts,
// such as a saved HOME, are no files of a page. A browser stores the file, and never shows it as a page.
func (p *pages) file(w http.ResponseWriter, r *http.Request) {
	e, err := p.jobOf(r.Context(), r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	var out jobOutput
	_ = json.Unmarshal(e.Output, &out) // an output of another form names no artifacts
	name := r.PathValue("name")
	if !slices.Contains(out.Changes.names(), name) {
		p.refuse(w, r, nothingThere())
		return
	}
	q := belay.ChunkQuery{Execution: e.ID, Name: name, Limit: 1} // one chunk, because each may be large
	chunks, err := p.backend.Chunks(r.Context(), q)
	if err == nil && len(chunks) == 0 {
		err = &belay.Error{Code: belay.CodeNotFound, Message: "The artifact " + excerpt(name, 100) + " is gone."}
	}
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+fileName(e.ID, name)+`"`)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cache-Control", "no-store")
	for out := http.NewResponseController(w); len(chunks) > 0; {
		_ = out.SetWriteDeadline(time.Now().Add(fileWait)) // a recorder in a test has no deadline
		if _, err = w.Write(chunks[0].Data); err == nil {
			q.From = chunks[0].N + 1
			chunks, err = p.backend.Chunks(r.Context(), q)
		}
		if err != nil {
			panic(http.ErrAbortHandler) // half a file must not look complete
		}
	}
}
