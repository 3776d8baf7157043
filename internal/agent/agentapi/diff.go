package agentapi

import (
	"net/http"
	"strconv"

	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httpapi"
)

const (
	diffType = "text/x-diff"
	// diffEnd is the last line of a diff that is cut.
	diffEnd = "# This is only the first MiB of the diff.\n"
	// diffRoom is the memory, in bytes, that is needed to read a diff.
	diffRoom = 2*agent.MaxDiff + httpapi.PageBytes
)

// diff sends the changes of a job as a diff. The names and contents of files are hostile: the
// headers prevent that a browser takes them for a page.
func (d *endpoint) diff(w http.ResponseWriter, r *http.Request) {
	x, err := d.find(r)
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	give, err := d.o.Reading.Take(r.Context(), diffRoom)
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	defer give()
	diff, cut, err := agent.ReadDiff(r.Context(), &x, d.b.Chunks)
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	if cut {
		diff = append(diff, diffEnd...)
	}
	h := w.Header()
	h.Set("Content-Type", diffType+"; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", `attachment; filename="`+x.ID.String()+`.diff"`)
	h.Set("Belay-Diff-Cut", strconv.FormatBool(cut))
	h.Set("Content-Length", strconv.Itoa(len(diff)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(diff)
}
